// safetensors_header_test.cc: what a header may say, and every way in which it may lie. No files.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/io_test_files.h"
#include "io/safetensors.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::int64_t begin, std::int64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                     shape, begin, end);
}

SafetensorsHeader parse(std::string_view json, std::int64_t data_bytes) {
  return parse_safetensors_header(json, data_bytes, "FILE");
}

TEST(SafetensorsHeader, ReadsEveryDtype) {
  struct Case {
    DType dtype;
    const char* name;
    int bytes;
  };
  const std::vector<Case> cases = {
      {DType::kF32, "F32", 4}, {DType::kBF16, "BF16", 2},    {DType::kF16, "F16", 2},
      {DType::kF64, "F64", 8}, {DType::kE4M3, "F8_E4M3", 1}, {DType::kE8M0, "F8_E8M0", 1},
      {DType::kI8, "I8", 1},   {DType::kU8, "U8", 1},        {DType::kI32, "I32", 4},
      {DType::kI64, "I64", 8}, {DType::kBool, "BOOL", 1}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const SafetensorsHeader header =
        parse(std::string("{") + entry("t", c.name, "[3,5]", 0, 15 * c.bytes) + "}", 15 * c.bytes);
    ASSERT_EQ(header.tensors.size(), 1u);
    EXPECT_EQ(header.tensors[0].dtype, c.dtype);
    EXPECT_EQ(header.tensors[0].shape, (Shape{3, 5}));
    EXPECT_EQ(header.tensors[0].size_bytes(), 15 * c.bytes);
  }
}

TEST(SafetensorsHeader, ReadsScalarsEmptyTensorsAndFourDimensions) {
  const SafetensorsHeader header =
      parse(std::string("{") + entry("scalar", "F32", "[]", 0, 4) + "," +
                entry("one", "F32", "[1]", 4, 8) + "," + entry("empty", "F32", "[0]", 8, 8) + "," +
                entry("empty_wide", "F64", "[0,4611686018427387904]", 8, 8) + "," +
                entry("four", "U8", "[1,2,3,4]", 8, 32) + "}",
            32);
  ASSERT_EQ(header.tensors.size(), 5u);
  EXPECT_EQ(header.tensors[0].shape.rank(), 0);
  EXPECT_EQ(header.tensors[1].shape, Shape{1});
  EXPECT_EQ(header.tensors[2].size_bytes(), 0);
  EXPECT_EQ(header.tensors[3].size_bytes(), 0);
  EXPECT_EQ(header.tensors[4].shape, (Shape{1, 2, 3, 4}));
}

TEST(SafetensorsHeader, OrdersTensorsByOffsetWhateverTheText) {
  const SafetensorsHeader header =
      parse(std::string("{") + entry("c", "U8", "[2]", 3, 5) + "," + entry("z", "U8", "[0]", 3, 3) +
                "," + entry("y", "U8", "[0]", 3, 3) + "," + entry("a", "U8", "[3]", 0, 3) + "}",
            5);
  std::string order;
  for (const TensorInfo& tensor : header.tensors) order += tensor.name;
  EXPECT_EQ(order, "azyc");
}

TEST(SafetensorsHeader, AcceptsNoTensorsAndPadding) {
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
  EXPECT_TRUE(parse("{}      ", 0).tensors.empty());
  EXPECT_TRUE(parse("{ \"__metadata__\" : {} }\n", 0).tensors.empty());
}

TEST(SafetensorsHeader, ReadsMetadata) {
  const SafetensorsHeader header = parse(std::string("{") + entry("t", "U8", "[1]", 0, 1) +
                                             R"(,"__metadata__":{"format":"pt","ключ":"a\nb"}})",
                                         1);
  EXPECT_EQ(header.metadata, (TensorMetadata{{"format", "pt"}, {"ключ", "a\nb"}}));
  EXPECT_EQ(header.tensors.size(), 1u);
}

TEST(SafetensorsHeader, KeepsFieldsInAnyOrderAndEscapedNames) {
  const SafetensorsHeader header =
      parse(R"({"a\"\u00e9":{"data_offsets":[0,2],"shape":[2],"dtype":"I8"}})", 2);
  ASSERT_EQ(header.tensors.size(), 1u);
  EXPECT_EQ(header.tensors[0].name, "a\"é");
}

TEST(SafetensorsHeader, CountsPast31And32And40Bits) {
  const std::vector<std::int64_t> sizes = {(1LL << 31) - 1, 1LL << 31,    (1LL << 31) + 1,
                                           (1LL << 32) - 1, 1LL << 32,    (1LL << 32) + 1,
                                           101'500'000'000, kInt64Max - 1};
  for (const std::int64_t size : sizes) {
    SCOPED_TRACE(size);
    const std::string json = std::string("{") +
                             entry("big", "U8", fmt::format("[{}]", size), 0, size) + "," +
                             entry("last", "U8", "[1]", size, size + 1) + "}";
    const SafetensorsHeader header = parse(json, size + 1);
    ASSERT_EQ(header.tensors.size(), 2u);
    EXPECT_EQ(header.tensors[0].size_bytes(), size);
    EXPECT_EQ(header.tensors[0].shape[0], size);
    EXPECT_EQ(header.tensors[1].begin, size);
  }
}

TEST(SafetensorsHeader, AcceptsTheLargestSizeAndRefusesOneMore) {
  // 2^63 - 1 bytes of U8, and 2^60 - 1 doubles; one element more is past 2^63 - 1.
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{kInt64Max}), kInt64Max);
  EXPECT_EQ(tensor_bytes(DType::kF64, Shape{(1LL << 60) - 1}), ((1LL << 60) - 1) * 8);
  EXPECT_EQ(tensor_bytes(DType::kF64, Shape{1LL << 60}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{1LL << 32, 1LL << 31}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{1LL << 31, 1LL << 31}), 1LL << 62);
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{1LL << 62, 1LL << 62, 0}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{2, -1}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kU8, Shape{-1, 0}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kI32, Shape{}), 4);
}

struct BadHeader {
  const char* fault;
  std::string json;
  std::int64_t data_bytes;
  std::vector<std::string> parts;
  ErrorCode code = ErrorCode::kBadCheckpoint;
};

void expect_all_refused(const std::vector<BadHeader>& cases) {
  for (const BadHeader& c : cases) {
    SCOPED_TRACE(c.fault);
    std::vector<std::string> parts = c.parts;
    parts.push_back("FILE: ");
    expect_error(c.code, parts, [&] { parse(c.json, c.data_bytes); });
  }
}

TEST(SafetensorsHeader, RefusesTextThatIsNotOneObject) {
  const std::string good = entry("t", "U8", "[1]", 0, 1);
  expect_all_refused({
      {"empty", "", 0, {"does not start with"}},
      {"spaces", "   ", 0, {"does not start with"}},
      {"array", "[]", 0, {"does not start with"}},
      {"number", "1", 0, {"does not start with"}},
      {"byte order mark", "\xEF\xBB\xBF{}", 0, {"does not start with"}},
      {"leading space", " {}", 0, {"does not start with"}},
      {"cut in a name", "{\"t", 0, {"not JSON"}},
      {"cut before the end", std::string("{") + good, 1, {"not JSON", "byte"}},
      {"two objects", "{}{}", 0, {"not JSON"}},
      {"text after the end", "{} x", 0, {"not JSON"}},
      {"NUL after the end", std::string("{}\0\0", 4), 0, {"byte 2 is NUL"}},
      {"NUL, then more", std::string("{}\0{", 4), 0, {"byte 2 is NUL"}},
      {"comment", "{/* */}", 0, {"not JSON"}},
      {"trailing comma", std::string("{") + good + ",}", 1, {"not JSON"}},
      {"single quotes", "{'t':1}", 0, {"not JSON"}},
      {"not UTF-8", "{\"\xff\":{}}", 0, {"not UTF-8"}},
      {"overlong UTF-8", "{\"\xc0\x80\":{}}", 0, {"not UTF-8"}},
      {"lone surrogate", R"({"\ud800":{}})", 0, {"not JSON"}},
      {"raw control character", "{\"a\nb\":{}}", 0, {"not JSON"}},
      {"number without end", std::string("{\"t\":") + std::string(5000, '7'), 0, {"FILE"}},
  });
}

TEST(SafetensorsHeader, RefusesDeepNestingWithoutRecursion) {
  const std::string deep(10'000'000, '[');
  expect_all_refused({
      {"arrays", std::string("{\"t\":") + deep, 0, {"tensor \"t\"", "an array", "an object"}},
      {"in a shape", R"({"t":{"dtype":"U8","shape":)" + deep, 0, {"shape contains an array"}},
      {"objects", R"({"a":{"a":{"a":{"a":{}}}}})", 0, {"the field \"a\" is unknown"}},
  });
}

TEST(SafetensorsHeader, RefusesBadEntries) {
  expect_all_refused({
      {"tensor is a number", R"({"t":1})", 0, {"tensor \"t\": it is a number", "an object"}},
      {"tensor is null", R"({"t":null})", 0, {"tensor \"t\": it is null"}},
      {"tensor is a string", R"({"t":"x"})", 0, {"tensor \"t\": it is a string"}},
      {"empty name",
       std::string("{") + entry("", "U8", "[1]", 0, 1) + "}",
       1,
       {"the name is empty"}},
      {"NUL in a name",
       std::string("{") + entry("a\\u0000b", "U8", "[1]", 0, 1) + "}",
       1,
       {"contains a NUL"}},
      {"same name twice",
       std::string("{") + entry("t", "U8", "[1]", 0, 1) + "," + entry("t", "U8", "[1]", 1, 2) + "}",
       2,
       {"tensor \"t\" is there twice"}},
      {"same name, once escaped",
       std::string("{") + entry("ab", "U8", "[1]", 0, 1) + "," +
           entry("\\u0061b", "U8", "[1]", 1, 2) + "}",
       2,
       {"tensor \"ab\" is there twice"}},
      {"no dtype", R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1, {"\"t\"", "dtype is missing"}},
      {"no shape", R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"shape is missing"}},
      {"no offsets", R"({"t":{"dtype":"U8","shape":[1]}})", 1, {"data_offsets is missing"}},
      {"no field", R"({"t":{}})", 0, {"is missing"}},
      {"dtype twice",
       R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"dtype is there twice"}},
      {"shape twice",
       R"({"t":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})",
       1,
       {"shape is there twice"}},
      {"offsets twice",
       R"({"t":{"data_offsets":[0,1],"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
       1,
       {"data_offsets is there twice"}},
      {"unknown field",
       R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"stride":[1]}})",
       1,
       {"\"t\"", "\"stride\" is unknown"}},
      {"dtype is a number", R"({"t":{"dtype":8}})", 0, {"dtype is a number", "a string"}},
      {"dtype is null", R"({"t":{"dtype":null}})", 0, {"dtype is null"}},
      {"shape is a number", R"({"t":{"shape":1}})", 0, {"shape is a number", "an array"}},
      {"shape is an object", R"({"t":{"shape":{}}})", 0, {"shape is an object"}},
      {"offsets are a string", R"({"t":{"data_offsets":"0"}})", 0, {"data_offsets is a string"}},
      {"metadata is a string", R"({"__metadata__":"x"})", 0, {"__metadata__: it is a string"}},
      {"metadata is null", R"({"__metadata__":null})", 0, {"__metadata__: it is null"}},
      {"metadata holds a number", R"({"__metadata__":{"k":1}})", 0, {"\"k\" is a number"}},
      {"metadata holds an object", R"({"__metadata__":{"k":{}}})", 0, {"\"k\" is an object"}},
      {"metadata holds an array", R"({"__metadata__":{"k":[]}})", 0, {"\"k\" is an array"}},
      {"metadata key twice", R"({"__metadata__":{"k":"","k":""}})", 0, {"\"k\" is there twice"}},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"there twice"}},
  });
}

TEST(SafetensorsHeader, RefusesUnknownDtypeNamingIt) {
  for (const char* dtype : {"F4", "U16", "F8_E5M2", "f32", "F32 ", "", "?"}) {
    SCOPED_TRACE(dtype);
    expect_error(ErrorCode::kUnsupported,
                 {"FILE", "tensor \"t\"", fmt::format("dtype \"{}\"", dtype), "BF16"},
                 [&] { parse(std::string("{") + entry("t", dtype, "[1]", 0, 1) + "}", 1); });
  }
}

TEST(SafetensorsHeader, RefusesNumbersThatAreNoSizes) {
  std::vector<BadHeader> cases;
  for (const char* bad :
       {"-1", "-0", "1.0", "1.5", "1e3", "1e400", "18446744073709551616", "9223372036854775808",
        "18446744073709551615", "\"1\"", "null", "true", "[1]", "{}", "-9223372036854775809"}) {
    cases.push_back({bad, fmt::format(R"({{"t":{{"dtype":"U8","shape":[{}]}}}})", bad), 1, {}});
    cases.push_back({bad, fmt::format(R"({{"t":{{"data_offsets":[{},1]}}}})", bad), 1, {}});
    cases.push_back({bad, fmt::format(R"({{"t":{{"data_offsets":[0,{}]}}}})", bad), 1, {}});
  }
  for (BadHeader& c : cases) {
    if (std::string_view(c.fault) != "1e400") c.parts = {"tensor \"t\"", "contains"};
  }
  expect_all_refused(cases);
}

TEST(SafetensorsHeader, RefusesMoreDimensionsThanAShapeHolds) {
  const std::string json = std::string("{") + entry("t", "U8", "[1,1,1,1,1]", 0, 1) + "}";
  expect_error(ErrorCode::kUnsupported, {"tensor \"t\"", "more than 4 dimensions"},
               [&] { parse(json, 1); });
}

TEST(SafetensorsHeader, RefusesOffsetsThatDoNotFit) {
  expect_all_refused({
      {"no number", R"({"t":{"data_offsets":[]}})", 0, {"0 numbers", "2"}},
      {"one number", R"({"t":{"data_offsets":[0]}})", 0, {"1 numbers", "2"}},
      {"three numbers", R"({"t":{"data_offsets":[0,1,2]}})", 0, {"more than 2"}},
      {"reversed",
       std::string("{") + entry("t", "U8", "[1]", 1, 0) + "}",
       1,
       {"\"t\"", "[1, 0]", "reversed"}},
      {"past the end by one",
       std::string("{") + entry("t", "U8", "[2]", 0, 2) + "}",
       1,
       {"\"t\"", "end at byte 2", "has 1 bytes", "truncated"}},
      {"far past the end",
       std::string("{") + entry("t", "U8", "[9223372036854775807]", 0, kInt64Max) + "}",
       1,
       {"truncated"}},
      {"one byte too few",
       std::string("{") + entry("t", "F32", "[2]", 0, 7) + "}",
       7,
       {"7 bytes", "needs 8"}},
      {"one byte too many",
       std::string("{") + entry("t", "F32", "[2]", 0, 9) + "}",
       9,
       {"9 bytes", "needs 8"}},
      {"bytes for an empty shape",
       std::string("{") + entry("t", "F32", "[0]", 0, 4) + "}",
       4,
       {"needs 0"}},
      {"no bytes for a scalar",
       std::string("{") + entry("t", "F32", "[]", 0, 0) + "}",
       0,
       {"needs 4"}},
      {"elements past 2^63",
       std::string("{") + entry("t", "U8", "[4294967296,2147483648]", 0, 0) + "}",
       0,
       {"\"t\"", "2^63 - 1"}},
      {"elements are 2^64 + 1 modulo 2^64 = 1",
       std::string("{") + entry("t", "U8", "[274177,67280421310721]", 0, 1) + "}",
       1,
       {"2^63 - 1"}},
      {"bytes past 2^63",
       std::string("{") + entry("t", "F64", "[1152921504606846976]", 0, 0) + "}",
       0,
       {"2^63"}},
  });
}

TEST(SafetensorsHeader, RefusesHolesAndOverlaps) {
  const auto two = [](std::int64_t b0, std::int64_t e0, std::int64_t b1, std::int64_t e1) {
    return std::string("{") + entry("p", "U8", fmt::format("[{}]", e0 - b0), b0, e0) + "," +
           entry("q", "U8", fmt::format("[{}]", e1 - b1), b1, e1) + "}";
  };
  EXPECT_EQ(parse(two(0, 4, 4, 8), 8).tensors.size(), 2u);
  expect_all_refused({
      {"hole of one byte", two(0, 4, 5, 8), 8, {"bytes 4 to 5", "\"q\"", "no tensor"}},
      {"hole at the start", two(1, 4, 4, 8), 8, {"bytes 0 to 1", "\"p\""}},
      {"unused last byte", two(0, 4, 4, 8), 9, {"bytes 8 to 9", "at the end"}},
      {"unused data without tensors", "{}", 1, {"bytes 0 to 1"}},
      {"overlap of one byte", two(0, 4, 3, 8), 8, {"\"q\" begins at byte 3", "\"p\"", "ends at 4"}},
      {"same place", two(0, 4, 0, 4), 4, {"inside tensor"}},
      {"one inside the other", two(0, 8, 2, 4), 8, {"\"q\"", "inside tensor \"p\""}},
      {"empty one inside the other", two(0, 8, 2, 2), 8, {"\"q\"", "inside tensor \"p\""}},
      {"empty one past the end", two(0, 8, 9, 9), 8, {"end at byte 9"}},
      {"empty one at the end of a hole", two(0, 4, 8, 8), 8, {"bytes 4 to 8", "\"q\""}},
  });
}

TEST(SafetensorsHeader, QuotesHostileNamesShortly) {
  expect_error(ErrorCode::kBadCheckpoint, {"\\n", "\\u001b[31m"},
               [] { parse(R"({"a\n\u001b[31m":1})", 0); });
  expect_error(ErrorCode::kBadCheckpoint, {"\\u007f\\u009b"},  // terminals obey these, too
               [] { parse(R"({"\u007f\u009b":1})", 0); });
  expect_error(ErrorCode::kBadCheckpoint, {"..."},
               [] { parse(std::string("{\"") + std::string(1'000'000, 'x') + "\":1}", 0); });
  expect_error(ErrorCode::kUnsupported, {"..."}, [] {
    parse(std::string("{") + entry("t", std::string(100'000, 'y'), "[]", 0, 0) + "}", 0);
  });
}

TEST(SafetensorsHeader, RefusesATextOverTheLimit) {
  const std::string json = "{}" + std::string(kMaxSafetensorsHeaderBytes - 2, ' ');
  EXPECT_TRUE(parse(json, 0).tensors.empty());
  expect_error(ErrorCode::kBadCheckpoint, {"100000001", "limit"}, [&] { parse(json + " ", 0); });
}

// As many tensors as DeepSeek-V4-Pro's largest conversion, in reversed order.
TEST(SafetensorsHeader, ReadsTheLargestModelsInOneFile) {
  constexpr std::int64_t kNumTensors = 145'116, kBytes = 1 << 20;
  std::string json = "{";
  for (std::int64_t i = kNumTensors - 1; i >= 0; --i) {
    json += entry(fmt::format("layers.{}.ffn.experts.{}.w1.weight_scale_2", i / 384, i), "U8",
                  "[1024,1024]", i * kBytes, (i + 1) * kBytes) +
            (i > 0 ? "," : "}");
  }
  const SafetensorsHeader header = parse(json, kNumTensors * kBytes);
  ASSERT_EQ(header.tensors.size(), static_cast<std::size_t>(kNumTensors));
  EXPECT_EQ(header.tensors.front().name, "layers.0.ffn.experts.0.w1.weight_scale_2");
  EXPECT_EQ(header.tensors.back().end, kNumTensors * kBytes);
}

TEST(SafetensorsHeader, SaysWhatIsWrongWithAName) {
  EXPECT_EQ(tensor_name_fault("a"), "");
  EXPECT_NE(tensor_name_fault(""), "");
  EXPECT_NE(tensor_name_fault(std::string_view("a\0", 2)), "");
  EXPECT_NE(tensor_name_fault("__metadata__"), "");
  EXPECT_EQ(tensor_name_fault("__metadata__x"), "");
}

}  // namespace
}  // namespace dsv4
