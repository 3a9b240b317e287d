// chat_stream_test.cc: completions in pieces against the same completions whole.
#include "text/chat_stream.h"

#include <algorithm>
#include <functional>
#include <random>

#include "text/chat_completion_fixtures.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

using Kind = CompletionDelta::Kind;

// Sizes of the pieces, asked for again and again.
using Splitter = std::function<std::size_t()>;

struct Streamed {
  std::vector<CompletionDelta> deltas;
  Completion finished;
};

Streamed run(std::string_view text, bool thinking, const Splitter& next_size,
             const ToolParameters* tools = nullptr) {
  CompletionStreamParser parser(thinking, tools);
  Streamed result;
  while (!text.empty()) {
    const std::size_t size = std::min(text.size(), next_size());
    for (CompletionDelta& delta : parser.push(text.substr(0, size))) {
      result.deltas.push_back(std::move(delta));
    }
    text.remove_prefix(size);
  }
  result.finished = parser.finish(result.deltas);
  return result;
}

Splitter every(std::size_t size) {
  return [size] { return size; };
}

// What a client makes of the deltas.
Completion join(const std::vector<CompletionDelta>& deltas) {
  Completion joined;
  for (const CompletionDelta& delta : deltas) {
    switch (delta.kind) {
      case Kind::kReasoning:
        joined.reasoning += delta.text;
        break;
      case Kind::kContent:
        joined.content += delta.text;
        break;
      case Kind::kToolCall:
        if (delta.call_idx == joined.tool_calls.size()) {
          joined.tool_calls.push_back({.id = "", .name = delta.name, .arguments = ""});
        } else {
          EXPECT_EQ(delta.name, "");
        }
        EXPECT_EQ(delta.call_idx + 1, joined.tool_calls.size());
        joined.tool_calls.back().arguments += delta.text;
        break;
      case Kind::kToolCallsVoided:
        EXPECT_FALSE(joined.tool_calls.empty());
        joined.tool_calls.clear();
        break;
    }
  }
  return joined;
}

// Ends of deltas inside a mark of the joined text.
void expect_whole_marks(const std::vector<CompletionDelta>& deltas, Kind kind) {
  std::string text;
  std::vector<std::size_t> ends;
  for (const CompletionDelta& delta : deltas) {
    if (delta.kind != kind) continue;
    text += delta.text;
    ends.push_back(text.size());
  }
  for (const std::string_view mark :
       {kBosMark, kEosMark, kThinkMark, kEndThinkMark, kDsmlMark, kToolCallsOpener}) {
    for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; at += mark.size()) {
      const auto end = std::upper_bound(ends.begin(), ends.end(), at);
      ASSERT_NE(end, ends.end());
      EXPECT_GE(*end, at + mark.size()) << "a delta ends inside " << mark;
    }
  }
}

void expect_like_whole(const std::string& text, bool thinking, const Splitter& next_size) {
  SCOPED_TRACE(text);
  const Streamed got = run(text, thinking, next_size);
  const Completion whole = parse_lenient(text, thinking);
  expect_same(join(got.deltas), whole);
  expect_same(got.finished, whole);
  EXPECT_EQ(got.finished.warning, whole.warning);
  for (const CompletionDelta& delta : got.deltas) {
    EXPECT_TRUE(!delta.text.empty() || !delta.name.empty() || delta.kind == Kind::kToolCallsVoided);
    EXPECT_EQ(valid_utf8_prefix(delta.text), delta.text.size());
    EXPECT_EQ(valid_utf8_prefix(delta.name), delta.name.size());
  }
  expect_whole_marks(got.deltas, Kind::kReasoning);
  expect_whole_marks(got.deltas, Kind::kContent);
}

TEST(ChatStream, EveryCompletionInEverySplit) {
  std::mt19937 random(1);
  for (const CompletionCase& c : completion_cases()) {
    for (const bool thinking : {c.thinking, !c.thinking}) {
      for (const std::size_t size : {1, 2, 3, 7, 1000000}) {
        expect_like_whole(c.text, thinking, every(size));
      }
      for (int i = 0; i < 3; ++i) {
        expect_like_whole(c.text, thinking, [&random] { return 1 + random() % 40; });
      }
    }
  }
}

// Pieces that the grammar is made of, put together at random: damage of every kind.
std::string random_damage(const std::string& text, std::mt19937& random) {
  static const std::vector<std::string> pieces = {std::string(kBosMark),
                                                  std::string(kEosMark),
                                                  std::string(kThinkMark),
                                                  std::string(kEndThinkMark),
                                                  std::string(kDsmlMark),
                                                  std::string(kToolCallsOpener),
                                                  std::string(kToolCallsCloser),
                                                  std::string(kInvokeOpener),
                                                  std::string(kInvokeCloser),
                                                  std::string(kParameterOpener),
                                                  std::string(kParameterCloser),
                                                  std::string(kTagEnd),
                                                  std::string(kStringParameter),
                                                  std::string(kJsonParameter),
                                                  "\n",
                                                  "\n\n",
                                                  "<",
                                                  "</",
                                                  ">",
                                                  "\"",
                                                  " name=\"",
                                                  "\u00e9",
                                                  "\u4e2d",
                                                  "x"};
  // Cuts fall between characters: a completion is UTF-8.
  const auto place = [&](const std::string& in) {
    std::size_t at = random() % (in.size() + 1);
    while (at < in.size() && (static_cast<unsigned char>(in[at]) & 0xC0) == 0x80) ++at;
    return at;
  };
  std::string damaged = text;
  for (std::size_t n = 1 + random() % 3; n > 0; --n) {
    const std::size_t a = place(damaged), b = place(damaged);
    switch (random() % 4) {
      case 0:
        damaged.insert(a, pieces[random() % pieces.size()]);
        break;
      case 1:
        damaged.resize(a);
        break;
      case 2:
        if (a < b) damaged.erase(a, std::min<std::size_t>(b, a + 1) - a);
        while (a < damaged.size() && (static_cast<unsigned char>(damaged[a]) & 0xC0) == 0x80) {
          damaged.erase(a, 1);
        }
        break;
      default:
        damaged.insert(a, damaged.substr(std::min(a, b), std::max(a, b) - std::min(a, b)));
    }
  }
  return damaged;
}

TEST(ChatStream, DamagedCompletionsAsWhole) {
  std::mt19937 random(2);
  int num_refused = 0, num_accepted = 0;
  for (int round = 0; round < 20; ++round) {
    for (const CompletionCase& c : completion_cases()) {
      const std::string text = random_damage(c.text, random);
      ASSERT_EQ(valid_utf8_prefix(text), text.size());
      expect_like_whole(text, c.thinking, [&random] { return 1 + random() % 20; });
      (parse_completion(text, c.thinking).ok() ? num_accepted : num_refused) += 1;
    }
  }
  EXPECT_GT(num_refused, 500);
  EXPECT_GT(num_accepted, 200);
}

TEST(ChatStream, BytesThatAreNoTextStillComeBack) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      text += random() % 4 == 0 ? kToolCallsOpener[random() % kToolCallsOpener.size()]
                                : static_cast<char>(random());
    }
    for (const bool thinking : {false, true}) {
      const Streamed got = run(text, thinking, every(1 + random() % 5));
      expect_same(join(got.deltas), parse_lenient(text, thinking));
    }
  }
}

std::string call_text(std::string_view parameters, std::string_view name = "f") {
  return with_eos(concat({"ok", dsml_calls(dsml_invoke(name, parameters))}));
}

TEST(ChatStream, ClosingTagStaysOutOfTheArgumentsByteByByte) {
  for (const char* command :
       {"ls 2>&1", "a <", "a </", "a </\uFF5CDSML", "</\uFF5CDSML\uFF5Cparam"}) {
    const Streamed got = run(call_text(dsml_parameter("command", command)), false, every(1));
    EXPECT_EQ(got.finished.warning, "");
    const Completion joined = join(got.deltas);
    ASSERT_EQ(joined.tool_calls.size(), 1u);
    EXPECT_EQ(joined.tool_calls[0].arguments,
              concat({"{\"command\": ", print_json_string(command), "}"}));
    EXPECT_EQ(joined.content, "ok");
  }
}

// The strict parser stops at the tag's rest, "<" or not, and then there is no call.
TEST(ChatStream, ClosingTagWithoutItsBracketEndsTheCallsInEverySplit) {
  const std::string tag_rest(kParameterCloser.substr(1));
  for (const bool is_string : {true, false}) {
    for (const std::string& parameter :
         {dsml_parameter("k", concat({"a", tag_rest, ">b"}), is_string),
          dsml_parameter("k", tag_rest, is_string),
          dsml_parameter(concat({"k", tag_rest, ">"}), "1", is_string)}) {
      const std::string text = call_text(parameter);
      ASSERT_TRUE(parse_lenient(text, false).tool_calls.empty());
      for (std::size_t size = 1; size <= 30; ++size) expect_like_whole(text, false, every(size));
    }
  }
}

TEST(ChatStream, LongArgumentsComeInSmallPieces) {
  std::string value;
  while (value.size() < 10240) value += "line \"of\" text \u4e2d\n";
  for (const bool is_string : {true, false}) {
    const std::string text =
        call_text(dsml_parameter("a", is_string ? value : print_json_string(value), is_string));
    const Streamed got = run(text, false, every(8));
    std::size_t num_deltas = 0, longest = 0;
    for (const CompletionDelta& delta : got.deltas) {
      if (delta.kind != Kind::kToolCall) continue;
      ++num_deltas;
      longest = std::max(longest, delta.text.size());
    }
    EXPECT_GE(num_deltas, value.size() / 8);
    EXPECT_LE(longest, 64u);  // 8 bytes, a held tail, escapes
    expect_same(join(got.deltas), parse_lenient(text, false));
  }
}

TEST(ChatStream, TextIsHeldOnlyWhileItMayBeginAMark) {
  CompletionStreamParser parser(false);
  const auto text_of = [&parser](std::string_view text) {
    std::string joined;
    for (const CompletionDelta& delta : parser.push(text)) joined += delta.text;
    return joined;
  };
  EXPECT_EQ(text_of("a"), "a");
  EXPECT_EQ(text_of("b\n"), "b");
  EXPECT_EQ(text_of("\n"), "");
  EXPECT_EQ(text_of("\n"), "\n");
  EXPECT_EQ(text_of("<"), "");
  EXPECT_EQ(text_of("b>"), "\n\n<b>");
  EXPECT_EQ(text_of("</thin"), "");
  EXPECT_EQ(text_of("g"), "</thing");
  EXPECT_EQ(text_of("\xE4\xB8"), "");
  EXPECT_EQ(text_of("\xAD"), "\u4e2d");
  EXPECT_EQ(text_of("\uFF5C"), "");
  EXPECT_EQ(text_of("\uFF01"), "\uFF5C\uFF01");
  std::vector<CompletionDelta> last;
  EXPECT_EQ(text_of(kEosMark), "");
  EXPECT_EQ(parser.finish(last).warning, "");
  EXPECT_TRUE(last.empty());
}

TEST(ChatStream, NameComesBeforeTheArguments) {
  CompletionStreamParser parser(false);
  const std::string text = call_text(dsml_parameter("a", "bc"));
  const std::vector<CompletionDelta> first = parser.push(text.substr(0, text.find("bc") + 1));
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].text, "ok");
  EXPECT_EQ(first[1].kind, Kind::kToolCall);
  EXPECT_EQ(first[1].name, "f");
  EXPECT_EQ(first[1].text, "{\"a\": \"b");
}

TEST(ChatStream, EndInsideATagGivesTheMarkupAsContent) {
  const std::string text = call_text(dsml_parameter("a", "b"));
  for (std::size_t size = 0; size < text.size(); ++size) {
    if (next_utf8(text.substr(size)).kind == Utf8Kind::kInvalid) continue;
    expect_like_whole(text.substr(0, size), false, every(1));
  }
  // The call was already announced: it is taken back.
  const Streamed got = run(text.substr(0, text.find("b</")), false, every(1));
  EXPECT_NE(std::find_if(got.deltas.begin(), got.deltas.end(),
                         [](const CompletionDelta& d) { return d.kind == Kind::kToolCallsVoided; }),
            got.deltas.end());
  EXPECT_NE(got.finished.warning, "");
}

TEST(ChatStream, MissingOpenerGivesTheMarkupAsContentAtOnce) {
  const std::string markup =
      dsml_invoke("f", dsml_parameter("a", "b")) + std::string(kToolCallsCloser);
  CompletionStreamParser parser(false);
  std::string seen;
  for (const CompletionDelta& delta : parser.push(concat({"x\n\n", markup}))) {
    EXPECT_EQ(delta.kind, Kind::kContent);
    seen += delta.text;
  }
  EXPECT_EQ(seen, concat({"x\n\n", markup}));
}

TEST(ChatStream, EmptyText) {
  for (const bool thinking : {false, true}) {
    const Streamed got = run("", thinking, every(1));
    EXPECT_TRUE(got.deltas.empty());
    EXPECT_NE(got.finished.warning, "");
  }
}

TEST(ChatStream, EmptyToolCall) {
  const Streamed got = run(call_text(""), false, every(1));
  expect_same(join(got.deltas), {"", "ok", {{"", "f", "{}"}}, ""});
}

TEST(ChatStream, WrappedArgumentsAreUnwrapped) {
  const ToolParameters tools(parse_tools(
      parse_json(R"([{"function": {"name": "plain", "parameters": {"properties": {"a": {}}}}},
                     {"function": {"name": "real",
                                   "parameters": {"properties": {"arguments": {}}}}}])",
                 "test"),
      "tools"));
  const std::string wrapped = dsml_parameter("arguments", "{\"a\":1}", false);
  const std::string wrapped_text = dsml_parameter("input", "{\"a\":1}");
  const std::string more = wrapped + dsml_parameter("a", "x");
  const std::pair<std::string, std::string> cases[] = {
      {call_text(wrapped, "plain"), "{\"a\": 1}"},
      {call_text(wrapped_text, "plain"), "{\"a\": 1}"},
      {call_text(wrapped, "real"), "{\"arguments\": {\"a\":1}}"},
      {call_text(wrapped, "unknown"), "{\"arguments\": {\"a\":1}}"},
      {call_text(more, "plain"), "{\"arguments\": {\"a\":1}, \"a\": \"x\"}"},
      {call_text("", "plain"), "{}"},
      {call_text(dsml_parameter("input", "not json"), "plain"), "{\"input\": \"not json\"}"},
  };
  for (const auto& [text, want] : cases) {
    for (const std::size_t size : {1, 3, 100000}) {
      const Streamed got = run(text, false, every(size), &tools);
      ASSERT_EQ(got.finished.tool_calls.size(), 1u);
      EXPECT_EQ(got.finished.tool_calls[0].arguments, want);
      expect_same(join(got.deltas), got.finished);
    }
  }
  // Damage after held arguments: they appear in the content only.
  const std::string cut = call_text(wrapped, "plain").substr(0, 150);
  const Streamed got = run(cut, false, every(1), &tools);
  expect_same(join(got.deltas), parse_lenient(cut, false));
}

// A tool call's head without an end must not be searched again from its start for every byte.
TEST(ChatStream, LongUnfinishedHeadsComeBackWhole) {
  const std::string name(200000, 'n');
  const std::string in_call =
      concat({"a", kToolCallsOpener, ">\n", kInvokeOpener, " name=\"", name});
  const std::string parameter = concat({kParameterOpener, " name=\"", name});
  for (const std::string& text :
       {in_call, concat({"a", dsml_calls(dsml_invoke("f", parameter))})}) {
    const Streamed got = run(text, false, every(7));
    EXPECT_EQ(join(got.deltas).content, text);
  }
}

TEST(ChatStream, TimeIsLinearInTheNumberOfTags) {
  const auto num_calls = [](const std::string& text, std::size_t piece_bytes) {
    return run(text, false, every(piece_bytes)).finished.tool_calls.size();
  };
  for (const std::size_t piece_bytes : {std::size_t{100}, std::size_t{1} << 30}) {
    EXPECT_EQ(num_calls(many_empty_calls(), piece_bytes), kManyTags);
    EXPECT_EQ(num_calls(many_parameters(true), piece_bytes), 1u);
    EXPECT_EQ(num_calls(many_parameters(false), piece_bytes), 1u);
  }
}

}  // namespace
}  // namespace dsv4
