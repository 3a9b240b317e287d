// tensor_store_test.cc: model directories, whole and contradictory.
#include "io/tensor_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/io_test_files.h"
#include "io/safetensors_writer.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

// A shard of U8 vectors: name to content.
void put_shard(const std::filesystem::path& path,
               const std::vector<std::pair<std::string, std::string>>& contents) {
  std::vector<TensorData> tensors;
  for (const auto& [name, text] : contents) {
    tensors.push_back({name, DType::kU8, Shape{static_cast<std::int64_t>(text.size())},
                       std::as_bytes(std::span(text))});
  }
  write_safetensors(path, tensors, {{"file", path.filename().string()}});
}

void put_index(const TempDir& dir, const std::map<std::string, std::string>& weight_map) {
  std::string entries;
  for (const auto& [tensor, shard] : weight_map) {
    entries += fmt::format("{}\"{}\":\"{}\"", entries.empty() ? "" : ",", tensor, shard);
  }
  // total_size is wrong, as in many converted models.
  put_file(dir / kIndexFileName, R"({"metadata":{"total_size":1},"weight_map":{)" + entries + "}}");
}

std::vector<std::string> names_of(const TensorStore& store) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : store.tensors()) names.push_back(tensor.info->name);
  return names;
}

// Three shards with tensors a, b | c | d, e, and an index that agrees.
class ThreeShards : public testing::Test {
 protected:
  ThreeShards() {
    put_shard(dir_ / "m-1.safetensors", {{"b", "bb"}, {"a", "a"}});
    put_shard(dir_ / "m-2.safetensors", {{"c", "ccc"}});
    put_shard(dir_ / "m-3.safetensors", {{"e", ""}, {"d", "dddd"}});
    put_index(dir_, map_);
  }
  void refuse(const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kBadCheckpoint, parts, [&] { TensorStore::open(dir_.path()); });
  }

  TempDir dir_;
  std::map<std::string, std::string> map_ = {{"e", "m-3.safetensors"},
                                             {"d", "m-3.safetensors"},
                                             {"c", "m-2.safetensors"},
                                             {"b", "m-1.safetensors"},
                                             {"a", "m-1.safetensors"}};
};

TEST_F(ThreeShards, OpenInFileOrder) {
  TensorStore opened = TensorStore::open(dir_.path());
  const std::optional<StoredTensor> before = opened.find("d");
  const TensorStore store = std::move(opened);  // infos and bytes survive a move
  EXPECT_THAT(names_of(store), ElementsAre("b", "a", "c", "e", "d"));
  EXPECT_EQ(store.payload_bytes(), 10);
  EXPECT_TRUE(store.has_data());
  EXPECT_THAT(store.shard_paths(), ElementsAre(dir_ / "m-1.safetensors", dir_ / "m-2.safetensors",
                                               dir_ / "m-3.safetensors"));
  ASSERT_TRUE(before.has_value());
  EXPECT_EQ(to_text(before->bytes), "dddd");
  EXPECT_EQ(before->shard, 2);
  EXPECT_EQ(store.find("d")->info, before->info);
  EXPECT_EQ(to_text(store.find("b")->bytes), "bb");
  EXPECT_EQ(store.find("c")->shard, 1);
  EXPECT_TRUE(store.find("e")->bytes.empty());
  EXPECT_EQ(store.find("f"), std::nullopt);
  EXPECT_EQ(store.metadata(1).at("file"), "m-2.safetensors");
  store.will_need(*before);
  store.release(*before);
  EXPECT_EQ(to_text(before->bytes), "dddd");
}

TEST_F(ThreeShards, MissingShardsAreCountedAndNamed) {
  std::filesystem::remove(dir_ / "m-2.safetensors");
  refuse({dir_.path().string(), "1 of 3 shards", "m-2.safetensors", "missing"});
  std::filesystem::remove(dir_ / "m-3.safetensors");
  refuse({"2 of 3 shards", "m-2.safetensors"});
}

TEST_F(ThreeShards, DanglingLinkIsAMissingShard) {
  std::filesystem::remove(dir_ / "m-2.safetensors");
  std::filesystem::create_symlink("../blobs/absent", dir_ / "m-2.safetensors");
  refuse({"1 of 3 shards", "m-2.safetensors"});
}

TEST_F(ThreeShards, LinksOutOfTheDirectoryAreFollowed) {
  const TempDir blobs;
  std::filesystem::rename(dir_ / "m-2.safetensors", blobs / "0123abcd");
  std::filesystem::create_symlink(blobs / "0123abcd", dir_ / "m-2.safetensors");
  EXPECT_EQ(to_text(TensorStore::open(dir_.path()).find("c")->bytes), "ccc");
}

TEST_F(ThreeShards, TensorOfTheIndexThatNoShardHas) {
  map_["ghost"] = "m-2.safetensors";
  put_index(dir_, map_);
  refuse({"\"ghost\"", "m-2.safetensors", "does not have it"});
}

TEST_F(ThreeShards, TensorOfAShardThatTheIndexLacks) {
  map_.erase("a");
  put_index(dir_, map_);
  refuse({"\"a\"", "m-1.safetensors", "does not name it"});
}

TEST_F(ThreeShards, TensorInAnotherShardThanTheIndexSays) {
  map_["a"] = "m-3.safetensors";
  put_index(dir_, map_);
  refuse({"\"a\"", "m-1.safetensors", "m-3.safetensors"});
  map_["a"] = "m-1.safetensors";
  map_["d"] = "m-2.safetensors";
  put_index(dir_, map_);
  refuse({"\"d\"", "m-3.safetensors", "m-2.safetensors"});
}

TEST_F(ThreeShards, TensorInTwoShards) {
  put_shard(dir_ / "m-2.safetensors", {{"c", "ccc"}, {"a", "a"}});
  refuse({"\"a\"", "two shards", "m-1.safetensors", "m-2.safetensors"});
}

TEST_F(ThreeShards, DamagedShardIsNamed) {
  std::filesystem::resize_file(dir_ / "m-2.safetensors",
                               std::filesystem::file_size(dir_ / "m-2.safetensors") - 1);
  refuse({(dir_ / "m-2.safetensors").string(), "\"c\"", "truncated"});
}

TEST_F(ThreeShards, DamagedIndexIsNamed) {
  put_file(dir_ / kIndexFileName, "{");
  refuse({(dir_ / kIndexFileName).string(), "not JSON"});
}

TEST_F(ThreeShards, PathOutOfTheDirectoryIsRefusedThoughTheFileExists) {
  const TempDir other;
  put_shard(other / "x.safetensors", {{"x", "x"}});
  map_["x"] = (other / "x.safetensors").string();
  put_index(dir_, map_);
  refuse({"\"x\"", "in this directory"});
  map_["x"] = "../" + other.path().filename().string() + "/x.safetensors";
  put_index(dir_, map_);
  refuse({"\"x\"", "in this directory"});
}

TEST_F(ThreeShards, IndexWinsOverASingleFileBesideIt) {
  put_shard(dir_ / kSingleFileName, {{"other", "zz"}});
  const TensorStore store = TensorStore::open(dir_.path());
  EXPECT_EQ(store.tensors().size(), 5u);
  EXPECT_EQ(store.find("other"), std::nullopt);
}

TEST_F(ThreeShards, OneShardCanBeOpenedAlone) {
  const TensorStore store = TensorStore::open(dir_ / "m-1.safetensors");
  EXPECT_THAT(names_of(store), ElementsAre("b", "a"));
}

TEST_F(ThreeShards, TemporariesOfAKilledWriterAreIgnored) {
  put_file(dir_ / ".m-4.safetensors.tmp-1-0", "half");
  EXPECT_EQ(TensorStore::open(dir_.path()).tensors().size(), 5u);
}

TEST(TensorStore, OpensASingleFileByDirectoryAndByName) {
  const TempDir dir;
  put_shard(dir / kSingleFileName, {{"a", "xy"}});
  for (const auto& model : {dir.path(), dir / kSingleFileName}) {
    const TensorStore store = TensorStore::open(model);
    EXPECT_THAT(names_of(store), ElementsAre("a"));
    EXPECT_EQ(to_text(store.find("a")->bytes), "xy");
    EXPECT_EQ(store.shard_paths().size(), 1u);
  }
}

TEST(TensorStore, OpensZeroTensors) {
  const TempDir dir;
  put_shard(dir / kSingleFileName, {});
  const TensorStore store = TensorStore::open(dir.path());
  EXPECT_TRUE(store.tensors().empty());
  EXPECT_EQ(store.payload_bytes(), 0);
  EXPECT_TRUE(store.has_data());
  EXPECT_EQ(store.find("a"), std::nullopt);
}

TEST(TensorStore, RefusesWhatIsNoModel) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {dir.path().string(), "model.safetensors"},
               [&] { TensorStore::open(dir.path()); });
  expect_error(ErrorCode::kNotFound, {"absent"}, [&] { TensorStore::open(dir / "absent"); });
  expect_error(ErrorCode::kBadRequest, {"neither"},
               [&] { TensorStore::open(put_file(dir / "m.gguf", "GGUF")); });
  std::filesystem::create_directory(dir / kSingleFileName);
  expect_error(ErrorCode::kBadRequest, {"is a directory"}, [&] { TensorStore::open(dir.path()); });
}

TEST(TensorStore, OpensTheShippedModel) {
  const TensorStore store = TensorStore::open(DSV4_SOURCE_DIR "/models/nano");
  EXPECT_EQ(store.tensors().size(), 596u);
  EXPECT_EQ(store.payload_bytes(), 10'930'610);
  for (const StoredTensor& tensor : store.tensors()) {
    EXPECT_TRUE(tensor.aligned()) << tensor.info->name;
    EXPECT_EQ(tensor.bytes.size(), static_cast<std::size_t>(tensor.info->size_bytes()));
  }
}

// Data may start at any address: the file is valid, and aligned() says what must be copied.
TEST(TensorStore, ReportsUnalignedTensors) {
  const TempDir dir;
  for (std::size_t pad = 0; pad < 8; ++pad) {
    SCOPED_TRACE(pad);
    std::string header = R"({"f":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("u":{"dtype":"U8","shape":[1],"data_offsets":[4,5]},)"
                         R"("h":{"dtype":"BF16","shape":[1],"data_offsets":[5,7]},)"
                         R"("e":{"dtype":"F64","shape":[0],"data_offsets":[7,7]}})";
    header.resize((header.size() + 7) / 8 * 8 + pad, ' ');
    put_file(dir / kSingleFileName, raw_safetensors(header, "ffffuhh"));
    const TensorStore store = TensorStore::open(dir.path());
    EXPECT_EQ(store.find("f")->aligned(), pad % 4 == 0);
    EXPECT_TRUE(store.find("u")->aligned());
    EXPECT_EQ(store.find("h")->aligned(), (pad + 5) % 2 == 0);
    EXPECT_EQ(store.find("e")->aligned(), (pad + 7) % 8 == 0);
    EXPECT_EQ(to_text(store.find("h")->bytes), "hh");
  }
}

TEST(TensorStoreFromHeaders, KnowsSizesWithoutData) {
  // A routed expert matrix of V4-Pro, stacked to pass 2^31, 2^32 and 2^40 bytes.
  TensorStore made = TensorStore::from_headers({{"a", DType::kU8, Shape{384, 6144, 3584}},
                                                {"scalar", DType::kF32, Shape{}},
                                                {"big", DType::kF64, Shape{1LL << 40}},
                                                {"empty", DType::kF64, Shape{0}}});
  const TensorStore store = std::move(made);
  EXPECT_THAT(names_of(store), ElementsAre("a", "scalar", "big", "empty"));
  EXPECT_EQ(store.find("a")->info->size_bytes(), 8'455'716'864);
  EXPECT_EQ(store.find("big")->info->begin, 8'455'716'868);
  EXPECT_EQ(store.payload_bytes(), 8'455'716'868 + (8LL << 40));
  EXPECT_FALSE(store.has_data());
  EXPECT_TRUE(store.find("a")->bytes.empty());
  EXPECT_TRUE(store.find("big")->aligned());
  EXPECT_TRUE(store.shard_paths().empty());
  EXPECT_EQ(store.find("b"), std::nullopt);
  store.will_need(*store.find("a"));
  store.release(*store.find("a"));
}

TEST(TensorStoreFromHeaders, AcceptsNone) {
  const TensorStore store = TensorStore::from_headers({});
  EXPECT_TRUE(store.tensors().empty());
  EXPECT_EQ(store.payload_bytes(), 0);
}

TEST(TensorStoreFromHeaders, RefusesBadNamesAndSizes) {
  const auto refuse = [](const char* part, std::vector<TensorInfo> tensors) {
    SCOPED_TRACE(part);
    expect_error(ErrorCode::kBadCheckpoint, {part},
                 [&] { TensorStore::from_headers(std::move(tensors)); });
  };
  refuse("\"a\" is there twice", {{"a", DType::kU8, Shape{1}}, {"a", DType::kU8, Shape{1}}});
  refuse("empty", {{"", DType::kU8, Shape{1}}});
  refuse("no shape", {{"a", DType::kU8, Shape{-1}}});
  refuse("2^63", {{"a", DType::kF64, Shape{1LL << 60}}});
  refuse("\"b\"", {{"a", DType::kU8, Shape{kInt64Max}}, {"b", DType::kU8, Shape{1}}});
  EXPECT_EQ(TensorStore::from_headers({{"a", DType::kU8, Shape{kInt64Max}}}).payload_bytes(),
            kInt64Max);
}

// What is released is read again; that the pages go is tested with MappedFile.
TEST(TensorStore, PartsOfATensorCanBeReleased) {
  const TempDir dir;
  put_shard(dir / kSingleFileName, {{"a", "first"}, {"b", "second"}});
  const TensorStore store = TensorStore::open(dir.path());
  const StoredTensor tensor = *store.find("b");
  store.will_need(tensor, 1, 5);
  store.release(tensor, 0, 6);
  store.release(tensor, 6, 0);
  store.release(tensor, 2, 1);
  store.release_all();
  EXPECT_EQ(to_text(tensor.bytes), "second");
  EXPECT_EQ(to_text(store.find("a")->bytes), "first");
  EXPECT_DEATH(store.release(tensor, 1, 6), "");
  EXPECT_DEATH(store.will_need(tensor, -1, 1), "");
}

TEST(TensorStoreDeathTest, ShardOutOfRangeIsOurBug) {
  const TensorStore store = TensorStore::from_headers({});
  EXPECT_DEATH(store.metadata(0), "");
}

}  // namespace
}  // namespace dsv4
