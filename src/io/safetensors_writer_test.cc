// safetensors_writer_test.cc: what is written can be read, and a half-written file never appears.
#include "io/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/io_test_files.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(SafetensorsWriter, WritesTheFormatByteByByte) {
  const TempDir dir;
  const std::vector<TensorData> tensors = {{"a", DType::kU8, Shape{2}, bytes_of("xy")},
                                           {"b", DType::kBF16, Shape{}, bytes_of("zw")}};
  write_safetensors(dir / "m.safetensors", tensors, {{"format", "pt"}});
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                       R"("b":{"dtype":"BF16","shape":[],"data_offsets":[2,4]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(get_file(dir / "m.safetensors"), raw_safetensors(header, "xyzw"));
  EXPECT_THAT(dir.listing(), ElementsAre("m.safetensors"));
}

TEST(SafetensorsWriter, RoundTripsEveryDtypeShapeAndAwkwardName) {
  const TempDir dir;
  const std::string data = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!?";
  std::vector<TensorData> tensors;
  for (const DType dtype :
       {DType::kF64, DType::kI64, DType::kF32, DType::kI32, DType::kBF16, DType::kF16, DType::kE4M3,
        DType::kE8M0, DType::kI8, DType::kU8, DType::kBool}) {
    const std::string name(dtype_name(dtype));
    const auto size = static_cast<std::size_t>(dtype_bytes(dtype));
    tensors.push_back({name + "\"\\\n\t/é", dtype, Shape{2, 3}, bytes_of(data).first(6 * size)});
    tensors.push_back({name + ".scalar", dtype, Shape{}, bytes_of(data).subspan(1, size)});
    tensors.push_back({name + ".empty", dtype, Shape{0, 7}, {}});
    tensors.push_back({name + ".four", dtype, Shape{1, 1, 2, 1}, bytes_of(data).last(2 * size)});
  }
  const TensorMetadata metadata = {{"k\"", "v\n"}, {"", ""}};
  write_safetensors(dir / "m.safetensors", tensors, metadata);
  const SafetensorsFile file = SafetensorsFile::open(dir / "m.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    SCOPED_TRACE(tensors[i].name);
    const TensorInfo& info = file.tensors()[i];
    EXPECT_EQ(info.name, tensors[i].name);
    EXPECT_EQ(info.dtype, tensors[i].dtype);
    EXPECT_EQ(info.shape, tensors[i].shape);
    EXPECT_EQ(to_text(file.bytes(info)), to_text(tensors[i].bytes));
  }
}

TEST(SafetensorsWriter, StartsTheDataAtAMultipleOfEight) {
  const TempDir dir;
  for (std::size_t n = 1; n <= 9; ++n) {
    const std::vector<TensorData> tensors = {
        {std::string(n, 'n'), DType::kF64, Shape{1}, bytes_of("12345678")}};
    write_safetensors(dir / "m.safetensors", tensors);
    EXPECT_EQ(get_file(dir / "m.safetensors").size() % 8, 0u) << n;
    EXPECT_EQ(SafetensorsFile::open(dir / "m.safetensors").tensors().size(), 1u);
  }
}

TEST(SafetensorsWriter, WritesZeroTensors) {
  const TempDir dir;
  write_safetensors(dir / "m.safetensors", {});
  EXPECT_EQ(get_file(dir / "m.safetensors"), raw_safetensors("{}      ", ""));
  EXPECT_TRUE(SafetensorsFile::open(dir / "m.safetensors").tensors().empty());
}

std::vector<TensorDeclaration> three() {
  return {
      {"a", DType::kU8, Shape{4}}, {"zero", DType::kF32, Shape{0}}, {"b", DType::kU8, Shape{2}}};
}

TEST(SafetensorsWriter, TakesATensorInPieces) {
  const TempDir dir;
  SafetensorsWriter writer(dir / "m.safetensors", three());
  writer.append("a", bytes_of("1"));
  writer.append("a", {});
  writer.append("a", bytes_of("234"));
  writer.append("a", {});
  writer.append("b", bytes_of("56"));
  EXPECT_FALSE(std::filesystem::exists(dir / "m.safetensors"));
  writer.finish();
  const SafetensorsFile file = SafetensorsFile::open(dir / "m.safetensors");
  EXPECT_EQ(to_text(file.bytes(*file.find("a"))), "1234");
  EXPECT_EQ(to_text(file.bytes(*file.find("b"))), "56");
}

TEST(SafetensorsWriter, RefusesBytesOutOfOrderOrNumber) {
  const TempDir dir;
  {
    SafetensorsWriter writer(dir / "m.safetensors", three());
    expect_error(ErrorCode::kBadRequest, {"\"b\"", "tensor \"a\" is due"},
                 [&] { writer.append("b", bytes_of("56")); });
    expect_error(ErrorCode::kBadRequest, {"5 bytes", "only 4 of its 4"},
                 [&] { writer.append("a", bytes_of("12345")); });
    writer.append("a", bytes_of("123"));
    expect_error(ErrorCode::kBadRequest, {"2 bytes", "only 1 of its 4"},
                 [&] { writer.append("a", bytes_of("45")); });
    expect_error(ErrorCode::kBadRequest, {"\"a\" lacks 1 of its 4"}, [&] { writer.finish(); });
    writer.append("a", bytes_of("4"));
    expect_error(ErrorCode::kBadRequest, {"\"b\" lacks 2 of its 2"}, [&] { writer.finish(); });
    writer.append("b", bytes_of("56"));
    expect_error(ErrorCode::kBadRequest, {"\"c\"", "none is due"},
                 [&] { writer.append("c", bytes_of("7")); });
  }
  EXPECT_THAT(dir.listing(), IsEmpty());
  const std::vector<TensorData> short_data = {{"a", DType::kU8, Shape{4}, bytes_of("123")}};
  expect_error(ErrorCode::kBadRequest, {"lacks 1"},
               [&] { write_safetensors(dir / "m.safetensors", short_data); });
  EXPECT_THAT(dir.listing(), IsEmpty());
}

TEST(SafetensorsWriter, DestroyedUnfinishedLeavesTheOldFile) {
  const TempDir dir;
  put_file(dir / "m.safetensors", "old");
  {
    SafetensorsWriter writer(dir / "m.safetensors", three());
    writer.append("a", bytes_of("1234"));
  }
  EXPECT_THAT(dir.listing(), ElementsAre("m.safetensors"));
  EXPECT_EQ(get_file(dir / "m.safetensors"), "old");
}

TEST(SafetensorsWriter, RefusesDeclarationsThatCannotBeRead) {
  constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
  struct Case {
    const char* part;
    std::vector<TensorDeclaration> tensors;
    TensorMetadata metadata = {};
  };
  const std::vector<Case> cases = {
      {"empty", {{"", DType::kU8, Shape{1}}}},
      {"NUL", {{std::string("a\0b", 3), DType::kU8, Shape{1}}}},
      {"reserved", {{"__metadata__", DType::kU8, Shape{1}}}},
      {"twice", {{"a", DType::kU8, Shape{1}}, {"b", DType::kU8, {}}, {"a", DType::kI8, Shape{1}}}},
      {"not UTF-8", {{"\xff", DType::kU8, Shape{1}}}},
      {"not UTF-8", {}, {{"k", "\xff"}}},
      {"no shape", {{"a", DType::kU8, Shape{-1}}}},
      {"2^63", {{"a", DType::kF64, Shape{1LL << 60}}}},
      {"2^63", {{"a", DType::kU8, Shape{kInt64Max}}, {"b", DType::kU8, Shape{1}}}},
      {"2^63", {{"a", DType::kU8, Shape{kInt64Max}}}},  // the header does not fit any more
      {"limit", {}, {{"k", std::string(kMaxSafetensorsHeaderBytes, 'v')}}},
  };
  const TempDir dir;
  for (const Case& c : cases) {
    SCOPED_TRACE(c.part);
    expect_error(ErrorCode::kBadRequest, {(dir / "m.safetensors").string(), c.part},
                 [&] { SafetensorsWriter(dir / "m.safetensors", c.tensors, c.metadata); });
    EXPECT_THAT(dir.listing(), IsEmpty());
  }
}

TEST(SafetensorsWriter, NamesATargetThatCannotBeWritten) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {(dir / "absent").string()},
               [&] { write_safetensors(dir / "absent" / "m.safetensors", {}); });
  expect_error(ErrorCode::kBadRequest, {"is a directory"},
               [&] { write_safetensors(dir.path(), {}); });
}

// Before anything is written: a full disk shows at the beginning of a shard.
TEST(SafetensorsWriter, ReservesTheWholeFile) {
  const TempDir dir;
  AtomicFile probe(dir / "probe");
  try {
    probe.reserve(std::int64_t{1} << 62);
    GTEST_SKIP() << "this file system cannot reserve";
  } catch (const Error&) {
  }
  const std::vector<TensorDeclaration> large = {{"t", DType::kU8, Shape{std::int64_t{1} << 62}}};
  expect_error(ErrorCode::kIo, {"reserve", (dir / "m.safetensors").string()},
               [&] { SafetensorsWriter(dir / "m.safetensors", large); });
  EXPECT_THAT(dir.listing(), IsEmpty());
}

TEST(SafetensorsWriter, ChecksumIsThatOfTheFile) {
  const TempDir dir;
  Checksum checksum;
  SafetensorsWriter writer(dir / "f", {{"a", DType::kU8, Shape{3}}, {"b", DType::kU8, Shape{2}}},
                           {{"k", "v"}}, &checksum);
  writer.append("a", std::as_bytes(std::span("xy", 2)));
  writer.append("a", std::as_bytes(std::span("z", 1)));
  writer.append("b", std::as_bytes(std::span("12", 2)));
  const std::int64_t bytes = writer.bytes_written();
  writer.finish();
  EXPECT_EQ(bytes, std::ssize(get_file(dir / "f")));
  EXPECT_EQ(checksum.hex(), checksum_of_file(dir / "f"));
}

}  // namespace
}  // namespace dsv4
