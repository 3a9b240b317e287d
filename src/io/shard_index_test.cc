// shard_index_test.cc: the index's text, without shards.
#include "io/shard_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "io/io_test_files.h"
#include "io/json_events.h"
#include "io/tensor_store.h"

namespace dsv4 {
namespace {

ShardIndex parse(std::string_view json) { return parse_shard_index(json, "INDEX"); }

TEST(ShardIndex, SortsShardsAndKeepsEntries) {
  const ShardIndex index =
      parse(R"({"weight_map":{"z":"b.safetensors","y":"a.safetensors","x":"b.safetensors"}})");
  EXPECT_THAT(index.shard_names, testing::ElementsAre("a.safetensors", "b.safetensors"));
  ASSERT_EQ(index.entries.size(), 3u);
  EXPECT_EQ(index.entries[0].tensor, "z");
  EXPECT_EQ(index.entries[0].shard, 1);
  EXPECT_EQ(index.entries[1].tensor, "y");
  EXPECT_EQ(index.entries[1].shard, 0);
  EXPECT_EQ(index.entries[2].shard, 1);
}

TEST(ShardIndex, SkipsEverythingBesideTheMap) {
  const ShardIndex index = parse(
      "\n"
      R"({"metadata":{"total_size":-1.5e300,"weight_map":{"q":1},"list":[[{"a":[]}],null]},)"
      R"("note":"x","weight_map":{"t":"a.safetensors"},"last":[true,{"weight_map":[]}]})");
  ASSERT_EQ(index.entries.size(), 1u);
  EXPECT_EQ(index.entries[0].tensor, "t");
}

TEST(ShardIndex, RefusesWhatIsNoIndex) {
  struct Case {
    const char* fault;
    std::string json;
    std::string part;
  };
  const std::vector<Case> cases = {
      {"empty", "", "not JSON"},
      {"cut short", R"({"weight_map":{"t":"a.safetens)", "not JSON"},
      {"array", "[]", "it is an array"},
      {"string", "\"x\"", "it is a string"},
      {"null", "null", "it is null"},
      {"NUL after the end", std::string("{}\0", 3), "NUL"},
      {"not UTF-8", "{\"weight_map\":{\"\xff\":\"a.safetensors\"}}", "UTF-8"},
      {"no map", R"({"metadata":{}})", "weight_map is missing"},
      {"empty map", R"({"weight_map":{}})", "weight_map is empty"},
      {"map is an array", R"({"weight_map":["a.safetensors"]})", "weight_map is an array"},
      {"map is a string", R"({"weight_map":"a.safetensors"})", "weight_map is a string"},
      {"map is null", R"({"weight_map":null})", "weight_map is null"},
      {"map is a number", R"({"weight_map":1})", "weight_map is a number"},
      {"two maps", R"({"weight_map":{"t":"a.safetensors"},"weight_map":{}})", "there twice"},
      {"shard is a number", R"({"weight_map":{"t":1}})", "\"t\": the shard is a number"},
      {"shard is null", R"({"weight_map":{"t":null}})", "\"t\": the shard is null"},
      {"shard is an array", R"({"weight_map":{"t":["a.safetensors"]}})", "shard is an array"},
      {"shard is an object", R"({"weight_map":{"t":{"t":"a.safetensors"}}})", "an object"},
      {"tensor twice", R"({"weight_map":{"t":"a.safetensors","t":"a.safetensors"}})",
       "\"t\" is there twice"},
      {"tensor twice, two shards", R"({"weight_map":{"t":"a.safetensors","t":"b.safetensors"}})",
       "\"t\" is there twice"},
      {"empty tensor name", R"({"weight_map":{"":"a.safetensors"}})", "name is empty"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.fault);
    expect_error(ErrorCode::kBadCheckpoint, {"INDEX: ", c.part}, [&] { parse(c.json); });
  }
}

TEST(ShardIndex, RefusesShardsOutsideTheDirectory) {
  for (const char* shard :
       {"../m.safetensors", "/etc/m.safetensors", "a/m.safetensors", "..\\\\m.safetensors",
        "C:\\\\m.safetensors", "", ".", "..", ".safetensors", "m.bin", "m.safetensors/", "/",
        "m\\u0000.safetensors", "m.safetensors\\u0000", "\\u001b[2J.safetensors"}) {
    SCOPED_TRACE(shard);
    expect_error(ErrorCode::kBadCheckpoint, {"tensor \"t\"", "in this directory"},
                 [&] { parse(fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", shard)); });
  }
  EXPECT_EQ(parse(R"({"weight_map":{"t":"...safetensors"}})").shard_names[0], "...safetensors");
}

TEST(ShardIndex, RefusesDeepNestingAndAllowsTheLimit) {
  const auto nested = [](int depth) {
    return R"({"metadata":)" + std::string(static_cast<std::size_t>(depth - 1), '[') +
           std::string(static_cast<std::size_t>(depth - 1), ']') +
           R"(,"weight_map":{"t":"a.safetensors"}})";
  };
  EXPECT_EQ(parse(nested(kMaxJsonDepth)).entries.size(), 1u);
  for (const int depth : {kMaxJsonDepth + 1, 10'000'000}) {
    expect_error(ErrorCode::kBadCheckpoint, {"INDEX", "nested deeper"},
                 [&] { parse(nested(depth)); });
  }
}

TEST(ShardIndex, ReadsTheLargestModel) {
  std::string json = R"({"weight_map":{)";
  for (int i = 0; i < 188'245; ++i) {
    json += fmt::format(
        "{}\"layers.{}.ffn.experts.{}.w1.weight_scale_2\":"
        "\"model-{:05}-of-00048.safetensors\"",
        i > 0 ? "," : "", i / 3000, i, i % 48);
  }
  const ShardIndex index = parse(json + "}}");
  EXPECT_EQ(index.entries.size(), 188'245u);
  EXPECT_EQ(index.shard_names.size(), 48u);
}

TEST(ShardIndex, RefusesAFileOverTheLimitUnread) {
  const TempDir dir;
  put_file(dir / "index.json", "{}");
  std::filesystem::resize_file(dir / "index.json", static_cast<std::uintmax_t>(kMaxIndexBytes) + 1);
  expect_error(ErrorCode::kBadRequest, {"index.json", "100000001 bytes"},
               [&] { read_shard_index(dir / "index.json"); });
}

}  // namespace
}  // namespace dsv4
