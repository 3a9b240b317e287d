// shard_writer_test.cc: a shard written by another thread is the one that would be written here,
// and errors of that thread arrive.
#include "quantizer/shard_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "io/io_test_files.h"

namespace dsv4 {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<TensorDeclaration> two_tensors(std::int64_t size) {
  return {{"a", DType::kU8, Shape{size}}, {"b", DType::kU8, Shape{3}}};
}

TEST(ShardWriter, WritesInOrderWithTheFilesChecksum) {
  const TempDir dir;
  std::string text;
  ShardWriter writer(dir / "f.safetensors", two_tensors(2000), {{"format", "pt"}});
  for (int i = 0; i < 100; ++i) {  // more than the queue takes
    const std::string piece(20, static_cast<char>('a' + i % 26));
    std::vector<std::byte> buffer = writer.buffer(20);
    EXPECT_EQ(buffer.size(), 20u);
    std::memcpy(buffer.data(), piece.data(), piece.size());
    writer.append("a", std::move(buffer));
    text += piece;
  }
  writer.append("b", bytes_of("xyz"));
  bool was_there = true;
  const WrittenShard written =
      writer.finish([&] { was_there = std::filesystem::exists(dir / "f.safetensors"); });
  EXPECT_FALSE(was_there);
  const SafetensorsFile file = SafetensorsFile::open(dir / "f.safetensors");
  EXPECT_EQ(to_text(file.bytes(*file.find("a"))), text);
  EXPECT_EQ(to_text(file.bytes(*file.find("b"))), "xyz");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(written.bytes, std::ssize(get_file(dir / "f.safetensors")));
  EXPECT_EQ(written.checksum, checksum_of_file(dir / "f.safetensors"));
}

TEST(ShardWriter, UnfinishedLeavesNothing) {
  const TempDir dir;
  {
    ShardWriter writer(dir / "f.safetensors", two_tensors(4), {});
    writer.append("a", bytes_of("1234"));
  }
  EXPECT_TRUE(dir.listing().empty());
  {
    ShardWriter writer(dir / "f.safetensors", two_tensors(4), {});
    writer.append("a", bytes_of("1234"));
    writer.append("b", bytes_of("567"));
    const auto stop = [] { throw std::runtime_error("changed"); };
    EXPECT_THROW(writer.finish(stop), std::runtime_error);
  }
  EXPECT_TRUE(dir.listing().empty());
}

TEST(ShardWriter, ErrorsOfTheThreadArrive) {
  const TempDir dir;
  ShardWriter writer(dir / "f.safetensors", two_tensors(4), {});
  expect_error(ErrorCode::kBadRequest, {"\"b\"", "due"}, [&] {
    for (int i = 0; i < 100; ++i) writer.append("b", bytes_of("567"));  // "a" is due
  });
  ShardWriter other(dir / "g.safetensors", two_tensors(4), {});
  other.append("a", bytes_of("1234"));
  expect_error(ErrorCode::kBadRequest, {"lacks 3"}, [&] { other.finish([] {}); });
}

}  // namespace
}  // namespace dsv4
