// mapped_file_test.cc: mapping, moving, hints, and what is no file.
#include "io/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

TEST(MappedFile, ShowsAllBytesAroundAPage) {
  const TempDir dir;
  for (const std::size_t size : {std::size_t{1}, kPage - 1, kPage, kPage + 1}) {
    SCOPED_TRACE(size);
    std::string bytes(size, 'm');
    bytes.front() = 'F';
    bytes.back() = 'L';
    const MappedFile file = MappedFile::open(put_file(dir / "f", bytes));
    EXPECT_EQ(to_text(file.bytes()), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.bytes().data()) % kPage, 0u);
  }
}

TEST(MappedFile, AcceptsAnEmptyFile) {
  const TempDir dir;
  const MappedFile file = MappedFile::open(put_file(dir / "f", ""));
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_EQ(file.path(), dir / "f");
  file.release(file.bytes());
  file.will_need(file.bytes());
}

TEST(MappedFile, KeepsTheAddressWhenMoved) {
  const TempDir dir;
  MappedFile a = MappedFile::open(put_file(dir / "a", "aaa"));
  const std::byte* address = a.bytes().data();
  MappedFile b = std::move(a);
  EXPECT_EQ(b.bytes().data(), address);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT: the moved-from state is part of the contract
  MappedFile c = MappedFile::open(put_file(dir / "c", "cccc"));
  c = std::move(b);
  EXPECT_EQ(to_text(c.bytes()), "aaa");
}

TEST(MappedFile, StaysReadableAfterTheFileIsReplacedOrDeleted) {
  const TempDir dir;
  const MappedFile file = MappedFile::open(put_file(dir / "f", "old"));
  std::filesystem::rename(put_file(dir / "g", "new"), dir / "f");
  EXPECT_EQ(to_text(file.bytes()), "old");
  std::filesystem::remove(dir / "f");
  EXPECT_EQ(to_text(file.bytes()), "old");
}

std::size_t resident_pages(std::span<const std::byte> bytes) {
  std::size_t num_pages = 0;
  // /proc/self/pagemap counts what this process maps; mincore would count the shared page cache.
  std::FILE* map = std::fopen("/proc/self/pagemap", "rb");
  if (map == nullptr) return 0;
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data()) / kPage;
  std::fseek(map, static_cast<long>(first * 8), SEEK_SET);
  for (std::size_t i = 0; i < bytes.size() / kPage; ++i) {
    std::uint64_t entry = 0;
    if (std::fread(&entry, sizeof(entry), 1, map) != 1) break;
    num_pages += entry >> 63;
  }
  std::fclose(map);
  return num_pages;
}

TEST(MappedFile, ReleaseDropsPagesAndKeepsTheBytes) {
  const TempDir dir;
  const std::string bytes(64 * kPage, 'r');
  const MappedFile file = MappedFile::open(put_file(dir / "f", bytes));
  file.will_need(file.bytes());
  EXPECT_EQ(to_text(file.bytes()), bytes);
  if (resident_pages(file.bytes()) == 0) GTEST_SKIP() << "this system does not show residency";
  EXPECT_EQ(resident_pages(file.bytes()), 64u);
  file.release(file.bytes());
  EXPECT_EQ(resident_pages(file.bytes()), 0u);
  EXPECT_EQ(to_text(file.bytes()), bytes);
  file.release(file.bytes().subspan(kPage + 1, 1));  // unaligned and small
  EXPECT_EQ(to_text(file.bytes()), bytes);
}

// Each page is released before the next is read, whose fault maps pages around it.
TEST(MappedFile, ReadAndReleasedInPiecesNothingStays) {
  const TempDir dir;
  const MappedFile file = MappedFile::open(put_file(dir / "f", std::string(1024 * kPage, 'r')));
  std::size_t sum = 0, most = 0;
  for (std::size_t page = 0; page < 1024; ++page) {
    const std::span<const std::byte> piece = file.bytes().subspan(page * kPage, kPage);
    for (const std::byte byte : piece) sum += std::to_integer<std::size_t>(byte);
    file.release(piece);
    const std::span<const std::byte> before = file.bytes().first(page * kPage);
    most = std::max(most, resident_pages(before));
  }
  EXPECT_EQ(sum, 1024 * kPage * 'r');
  EXPECT_EQ(most, 0u);
}

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {(dir / "absent").string(), "No such file"},
               [&] { MappedFile::open(dir / "absent"); });
  expect_error(ErrorCode::kNotFound, {"Not a directory"},
               [&] { MappedFile::open(put_file(dir / "f", "x") / "below"); });
  expect_error(ErrorCode::kNotFound, {}, [] { MappedFile::open(""); });
  expect_error(ErrorCode::kBadRequest, {dir.path().string(), "is a directory"},
               [&] { MappedFile::open(dir.path()); });
  expect_error(ErrorCode::kBadRequest, {"/dev/null", "not a regular file"},
               [] { MappedFile::open("/dev/null"); });
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::kBadRequest, {"not a regular file"},  // and does not hang
               [&] { MappedFile::open(dir / "pipe"); });
  std::filesystem::create_symlink("loop", dir / "loop");
  expect_error(ErrorCode::kIo, {"loop", "symbolic links"}, [&] { MappedFile::open(dir / "loop"); });
  expect_error(ErrorCode::kIo, {"too long"},
               [&] { MappedFile::open(dir / std::string(300, 'n')); });
  expect_error(ErrorCode::kBadRequest, {"NUL"},
               [&] { MappedFile::open(dir / std::string_view("f\0g", 3)); });
}

TEST(MappedFileDeathTest, HintOutsideTheFileIsOurBug) {
  const TempDir dir;
  const MappedFile file = MappedFile::open(put_file(dir / "f", "abc"));
  const std::byte other{};
  EXPECT_DEATH(file.release(std::span(&other, 1)), "");
}

}  // namespace
}  // namespace dsv4
