// safetensors_test.cc: whole files: framing, bytes, and the files that the project ships.
#include "io/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

constexpr std::string_view kTwoTensors =
    R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]},)"
    R"("a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"k":"v"}})";

std::int64_t payload_bytes(const SafetensorsFile& file) {
  std::int64_t sum = 0;
  for (const TensorInfo& tensor : file.tensors()) sum += tensor.size_bytes();
  return sum;
}

TEST(SafetensorsFile, GivesBytesByName) {
  const TempDir dir;
  SafetensorsFile opened =
      SafetensorsFile::open(put_file(dir / "m.safetensors", raw_safetensors(kTwoTensors, "xyzPQ")));
  const TensorInfo* before = opened.find("a");
  const SafetensorsFile file = std::move(opened);  // infos and bytes survive a move
  ASSERT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  ASSERT_EQ(file.find("a"), before);
  EXPECT_EQ(to_text(file.bytes(*before)), "xyz");
  EXPECT_EQ(to_text(file.bytes(*file.find("b"))), "PQ");
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.find(""), nullptr);
  EXPECT_EQ(file.find("__metadata__"), nullptr);
  EXPECT_EQ(file.metadata().at("k"), "v");
}

TEST(SafetensorsFile, OpensZeroTensors) {
  const TempDir dir;
  const SafetensorsFile file =
      SafetensorsFile::open(put_file(dir / "m.safetensors", raw_safetensors("{}", "")));
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
}

TEST(SafetensorsFile, GivesNoBytesForAnEmptyTensorAtTheVeryEnd) {
  const TempDir dir;
  const SafetensorsFile file = SafetensorsFile::open(
      put_file(dir / "m.safetensors",
               raw_safetensors(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("e":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}})",
                               "x")));
  EXPECT_TRUE(file.bytes(*file.find("e")).empty());
}

TEST(SafetensorsFile, RefusesBadFraming) {
  const std::string good = raw_safetensors(kTwoTensors, "xyzPQ");
  const std::string header(kTwoTensors);
  struct Case {
    const char* fault;
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"empty file", "", {"0 bytes"}},
      {"one byte", "{", {"1 bytes"}},
      {"seven bytes", good.substr(0, 7), {"7 bytes"}},
      {"length only", good.substr(0, 8), {"only 0 follow", "truncated"}},
      {"header lacks one byte", u64_le(header.size()) + header.substr(1), {"truncated"}},
      {"length 0", u64_le(0), {"does not start with"}},
      {"length 0 and data", u64_le(0) + "{}", {"does not start with"}},
      {"length one short", u64_le(header.size() - 1) + header + "xyzPQ", {"not JSON"}},
      {"length one long", u64_le(header.size() + 1) + header + "xyzPQ", {"has 4 bytes"}},
      {"length at the limit", u64_le(100'000'000) + "{}", {"100000000", "only 2 follow"}},
      {"length over the limit", u64_le(100'000'001) + "{}", {"100000001", "limit"}},
      {"length 2^31", u64_le(1ull << 31) + "{}", {"2147483648", "limit"}},
      {"length 2^32 + 2, 2 in 32 bits", u64_le((1ull << 32) + 2) + "{}", {"4294967298", "limit"}},
      {"length 2^63", u64_le(1ull << 63) + "{}", {"9223372036854775808", "limit"}},
      {"length 2^64 - 1", u64_le(~0ull) + "{}", {"18446744073709551615", "limit"}},
      {"length 2^64 - 8, wraps when 8 is added", u64_le(~0ull - 7) + "{}", {"limit"}},
      {"data lack one byte", good.substr(0, good.size() - 1), {"tensor \"b\"", "truncated"}},
      {"data missing", raw_safetensors(kTwoTensors, ""), {"truncated"}},
      {"one byte more", good + "!", {"bytes 5 to 6", "no tensor"}},
      {"Git LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0", {"LFS"}},
      {"text file", "this is not a model at all", {"limit"}},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.fault);
    const auto path = put_file(dir / "bad.safetensors", c.bytes);
    std::vector<std::string> parts = c.parts;
    parts.push_back(path.string());
    expect_error(ErrorCode::kBadCheckpoint, parts, [&] { SafetensorsFile::open(path); });
  }
}

// Every prefix of a valid file is refused; only the whole file opens.
TEST(SafetensorsFile, RefusesTruncationAtEveryByte) {
  const TempDir dir;
  const std::string good = raw_safetensors(kTwoTensors, "xyzPQ");
  for (std::size_t n = 0; n < good.size(); ++n) {
    SCOPED_TRACE(n);
    const auto path = put_file(dir / "cut.safetensors", good.substr(0, n));
    expect_error(ErrorCode::kBadCheckpoint, {path.string()}, [&] { SafetensorsFile::open(path); });
  }
  EXPECT_EQ(SafetensorsFile::open(put_file(dir / "cut.safetensors", good)).tensors().size(), 2u);
}

// A flipped header bit is refused or gives another valid header, never bytes outside of the file.
TEST(SafetensorsFile, SurvivesEveryFlippedBit) {
  const TempDir dir;
  const std::string good = raw_safetensors(kTwoTensors, "xyzPQ");
  const std::size_t num_bits = 8 * (good.size() - 5);
  std::size_t num_refused = 0;
  for (std::size_t bit = 0; bit < num_bits; ++bit) {
    std::string bytes = good;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto path = put_file(dir / "flip.safetensors", bytes);
    try {
      const SafetensorsFile file = SafetensorsFile::open(path);
      EXPECT_EQ(payload_bytes(file), 5);
      for (const TensorInfo& tensor : file.tensors()) to_text(file.bytes(tensor));
    } catch (const Error&) {
      ++num_refused;
    }
  }
  // Four characters have no fixed value: two names, the metadata's key and its value.
  EXPECT_GE(num_refused, num_bits - 4 * 8);
}

TEST(SafetensorsFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {"absent.safetensors", "No such file"},
               [&] { SafetensorsFile::open(dir / "absent.safetensors"); });
  expect_error(ErrorCode::kBadRequest, {dir.path().string(), "is a directory"},
               [&] { SafetensorsFile::open(dir.path()); });
}

struct ShippedFile {
  const char* path;
  std::size_t num_tensors;
  std::int64_t payload_bytes;
  std::int64_t hc_head_base_begin;
  std::uint32_t hc_head_base_bits;  // the first F32, as read by another program
};

TEST(SafetensorsFile, OpensTheShippedModels) {
  const std::vector<ShippedFile> files = {
      {"tests/data/golden/flash-bf16/model.safetensors", 233, 6'580'216, 8192, 0x3ec8a05a},
      {"tests/data/golden/flash-nvfp4/model.safetensors", 511, 3'305'086, 8192, 0x3f018c93},
      {"tests/data/golden/flash-official/model.safetensors", 307, 5'934'735, 8192, 0xbef76e5a},
      {"models/nano/model.safetensors", 596, 10'930'610, 65536, 0xbf97a759},
  };
  for (const ShippedFile& expected : files) {
    SCOPED_TRACE(expected.path);
    const SafetensorsFile file =
        SafetensorsFile::open(std::string(DSV4_SOURCE_DIR "/") + expected.path);
    EXPECT_EQ(file.tensors().size(), expected.num_tensors);
    EXPECT_EQ(payload_bytes(file), expected.payload_bytes);
    EXPECT_EQ(file.metadata(), (TensorMetadata{{"format", "pt"}}));
    EXPECT_EQ(file.tensors().front().name, "layers.0.ffn.gate.tid2eid");
    EXPECT_EQ(file.tensors().front().dtype, DType::kI64);
    const TensorInfo* base = file.find("hc_head_base");
    ASSERT_NE(base, nullptr);
    EXPECT_EQ(base->begin, expected.hc_head_base_begin);
    EXPECT_EQ(base->shape, Shape{4});
    std::uint32_t bits = 0;
    std::memcpy(&bits, file.bytes(*base).data(), sizeof(bits));
    EXPECT_EQ(bits, expected.hc_head_base_bits);
  }
}

TEST(SafetensorsFile, OpensEveryShippedFile) {
  int num_files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(DSV4_SOURCE_DIR "/tests/data/golden")) {
    if (entry.path().extension() != ".safetensors") continue;
    SCOPED_TRACE(entry.path().string());
    EXPECT_FALSE(SafetensorsFile::open(entry.path()).tensors().empty());
    ++num_files;
  }
  EXPECT_GE(num_files, 11);
}

}  // namespace
}  // namespace dsv4
