// json_print_test.cc: what is printed against Python's json.dumps, and hostile documents.
#include "text/json_print.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

std::string reprint(std::string_view text) { return print_json(parse_json(text, "test")); }

bool is_json(std::string_view text) {
  std::string problem;
  const bool is = read_json(text, &problem).has_value();
  EXPECT_EQ(is, problem.empty()) << text;
  return is;
}

TEST(JsonPrint, SeparatorsAndOrder) {
  EXPECT_EQ(reprint(" {\"b\":[1,2 ,null],\n\"a\":{},\"c\":[],\"\":true , \"d\":false}\n"),
            "{\"b\": [1, 2, null], \"a\": {}, \"c\": [], \"\": true, \"d\": false}");
  EXPECT_EQ(reprint("null"), "null");
  EXPECT_EQ(reprint("[[[]],[{}]]"), "[[[]], [{}]]");
}

TEST(JsonPrint, RepeatedKeyKeepsFirstPlaceAndLastValue) {
  EXPECT_EQ(reprint(R"({"a":1,"b":2,"a":{"a":3,"a":4},"c":5})"),
            R"({"a": {"a": 4}, "b": 2, "c": 5})");
}

TEST(JsonPrint, RepeatedKeyIsRefusedOnDemand) {
  const JsonLimits strict{.unique_keys = true};
  EXPECT_TRUE(read_json(R"({"a": {"a": 1, "b": [{"a": 2}, {"a": 3}]}, "b": 4})", nullptr, strict));
  for (const char* text : {R"({"a": 1, "b": 2, "a": 1})", R"([{"c": {"a": {}, "a": {}}}])",
                           R"({"a": 1, "\u0061": 2})"}) {
    SCOPED_TRACE(text);
    try {
      read_json(text, nullptr, strict);
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
      EXPECT_STREQ(e.what(), "the key \"a\" stands twice in one object");
    }
  }
}

TEST(JsonPrint, IntegersKeepAllDigits) {
  for (const char* digits :
       {"0", "-1", "9007199254740993", "9223372036854775807", "9223372036854775808",
        "-9223372036854775808", "-9223372036854775809", "18446744073709551615",
        "18446744073709551616", "123456789012345678901234567890123456789012345678901234567890"}) {
    EXPECT_EQ(reprint(digits), digits);
  }
  EXPECT_EQ(reprint("-0"), "0");
}

// Recorded from Python's json.dumps(json.loads(...)).
TEST(JsonPrint, FloatsAsPythonPrintsThem) {
  const std::pair<const char*, const char*> cases[] = {
      {"0.0", "0.0"},
      {"-0.0", "-0.0"},
      {"1.0", "1.0"},
      {"1e0", "1.0"},
      {"0.1", "0.1"},
      {"1e-4", "0.0001"},
      {"0.0001234", "0.0001234"},
      {"9.999e-5", "9.999e-05"},
      {"1e-5", "1e-05"},
      {"1E5", "100000.0"},
      {"123456.789", "123456.789"},
      {"-2.25", "-2.25"},
      {"1e15", "1000000000000000.0"},
      {"1234567890123456.7", "1234567890123456.8"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"1e16", "1e+16"},
      {"-1.5e16", "-1.5e+16"},
      {"123456789012345678.0", "1.2345678901234568e+17"},
      {"1e22", "1e+22"},
      {"1e100", "1e+100"},
      {"5e-324", "5e-324"},
      {"1e-400", "0.0"},
      {"2.2250738585072014e-308", "2.2250738585072014e-308"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"0.30000000000000004", "0.30000000000000004"},
  };
  for (const auto& [text, want] : cases) EXPECT_EQ(reprint(text), want) << text;
}

TEST(JsonPrint, EscapesOnlyWhatJsonRequires) {
  EXPECT_EQ(reprint(R"("\u0000\u0001\b\t\n\u000b\f\r\u001f\u0020\"\\\/\u007f<>&'")"),
            "\"\\u0000\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\"\\\\/\x7F<>&'\"");
  EXPECT_EQ(reprint("\"\\u00e9\\u4e2d\\ud83c\\udf0d\\u2028\""), "\"\u00E9\u4E2D\U0001F30D\u2028\"");
  EXPECT_EQ(reprint("{\"\\n\\\"\":\"\\u0085\"}"), "{\"\\n\\\"\": \"\u0085\"}");
}

TEST(JsonPrint, NotJson) {
  for (const std::string_view text : {std::string_view(""),
                                      std::string_view(" "),
                                      std::string_view("nul"),
                                      std::string_view("{"),
                                      std::string_view("[1,]"),
                                      std::string_view("{'a':1}"),
                                      std::string_view("1 2"),
                                      std::string_view("01"),
                                      std::string_view("1."),
                                      std::string_view("+1"),
                                      std::string_view("NaN"),
                                      std::string_view("-Infinity"),
                                      std::string_view("1e400"),
                                      std::string_view("\"a\nb\""),
                                      std::string_view("\"\\x\""),
                                      std::string_view("\"\xFF\""),
                                      std::string_view("\"\xED\xA0\x80\""),
                                      std::string_view("/**/1"),
                                      std::string_view("\xEF\xBB\xBF{}"),
                                      std::string_view("1\0", 2),
                                      std::string_view("{}\0garbage", 10)}) {
    EXPECT_FALSE(is_json(text)) << text;
  }
}

TEST(JsonPrint, LoneSurrogatesAreNoJson) {
  EXPECT_FALSE(is_json(R"("\ud800")"));
  EXPECT_FALSE(is_json(R"("\udc00")"));
  EXPECT_FALSE(is_json(R"("\ud800a")"));
  EXPECT_FALSE(is_json(R"("\ud800\ud800")"));
  EXPECT_FALSE(is_json(R"({"\udfff":1})"));
  EXPECT_TRUE(is_json(R"("\ud800\udc00")"));
}

void expect_past_limits(const std::string& text, const JsonLimits& limits) {
  try {
    read_json(text, nullptr, limits);
    ADD_FAILURE() << "no error for " << text.substr(0, 40);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
  }
}

TEST(JsonPrint, LimitsAreExact) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(reprint(nested(128)), nested(128));
  expect_past_limits(nested(129), {});
  expect_past_limits(nested(100000), {});
  std::string objects = "1";
  for (int i = 0; i < 129; ++i) objects = "{\"a\":" + objects + "}";
  expect_past_limits(objects, {});

  EXPECT_TRUE(read_json("[1]", nullptr, {.max_bytes = 3}).has_value());
  expect_past_limits("[1] ", {.max_bytes = 3});
  EXPECT_TRUE(read_json("[1,2]", nullptr, {.max_values = 3}).has_value());
  expect_past_limits("[1,2,3]", {.max_values = 3});
  EXPECT_TRUE(read_json("7", nullptr, {.max_depth = 0}).has_value());
  expect_past_limits("[]", {.max_depth = 0});
}

// Closers are never reached, so nothing bounds it but the check at the opener.
TEST(JsonPrint, DepthIsRefusedBeforeTheTextEnds) {
  expect_past_limits(std::string(1 << 20, '['), {});
}

TEST(JsonPrint, ManyKeysInOneObject) {
  std::string text = "{";
  for (int i = 0; i < 20000; ++i) text += "\"k" + std::to_string(i % 10000) + "\":0,";
  text += "\"last\":1}";
  const JsonValue value = parse_json(text, "test");
  ASSERT_NE(value.as_object(), nullptr);
  EXPECT_EQ(value.as_object()->size(), 10001u);
}

// The parser's own messages begin with its name.
TEST(JsonPrint, MessagesSayWhatIsWrongAndWhere) {
  const auto message = [](std::string_view text) {
    std::string problem;
    EXPECT_FALSE(read_json(text, &problem).has_value()) << text;
    EXPECT_EQ(problem.find("exception"), std::string::npos) << problem;
    EXPECT_EQ(problem.find("parse error"), std::string::npos) << problem;
    return problem;
  };
  EXPECT_TRUE(message("# Title").starts_with("column 1: syntax error")) << message("# Title");
  EXPECT_TRUE(message("").starts_with("column 1: ")) << message("");
  EXPECT_TRUE(message("[1,\n x]").starts_with("line 2, column 2: ")) << message("[1,\n x]");
  EXPECT_TRUE(message("[x\n]").starts_with("line 1, column 2: ")) << message("[x\n]");
  EXPECT_EQ(message("\"\xFF\"").find("column 2: "), 0u);
}

TEST(JsonPrint, MessagesNameThePlaceAndStayShort) {
  try {
    parse_json("{\"a\": " + std::string(100000, 'x') + "}", "the request");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    const std::string_view message = e.what();
    EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
    EXPECT_TRUE(message.starts_with("the request: not valid JSON: column 7: ")) << message;
    EXPECT_LT(message.size(), 400u);
  }
}

}  // namespace
}  // namespace dsv4
