// directory_lock_test.cc: one writer at a time, and stamps that see a change.
#include "io/directory_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "io/file_stamp.h"
#include "io/io_test_files.h"

namespace dsv4 {
namespace {

TEST(DirectoryLock, SecondIsRefusedUntilTheFirstIsGone) {
  const TempDir dir;
  std::optional<DirectoryLock> first(dir.path());
  expect_error(ErrorCode::kBadRequest, {"another process", dir.path().string()},
               [&] { const DirectoryLock second(dir.path()); });
  first.reset();
  const DirectoryLock third(dir.path());
  EXPECT_TRUE(dir.listing().empty());
}

TEST(DirectoryLock, OtherDirectoriesAreFree) {
  const TempDir a, b;
  const DirectoryLock of_a(a.path()), of_b(b.path());
  expect_error(ErrorCode::kNotFound, {"missing"}, [&] { const DirectoryLock none(a / "missing"); });
}

TEST(DirectoryLock, KnowsWhenItsDirectoryIsGoneOrReplaced) {
  const TempDir dir;
  const auto path = dir / "locked";
  std::filesystem::create_directory(path);
  const DirectoryLock lock(path);
  std::filesystem::create_directory_symlink(path, dir / "link");
  EXPECT_TRUE(lock.is_at(path));
  EXPECT_TRUE(lock.is_at(dir / "link"));
  std::filesystem::rename(path, dir / "renamed");
  EXPECT_FALSE(lock.is_at(path));
  EXPECT_TRUE(lock.is_at(dir / "renamed"));
  std::filesystem::create_directory(path);
  EXPECT_FALSE(lock.is_at(path));
  std::filesystem::remove(dir / "renamed");
  EXPECT_FALSE(lock.is_at(dir / "renamed"));
}

TEST(FileStamp, SeesSizeAndTime) {
  const TempDir dir;
  const auto path = put_file(dir / "f", "abc");
  const FileStamp before = stamp_of(path);
  EXPECT_EQ(before.size_bytes, 3);
  EXPECT_EQ(stamp_of(path), before);
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::nanoseconds(1));
  EXPECT_NE(stamp_of(path), before);
  put_file(path, "abcd");
  EXPECT_EQ(stamp_of(path).size_bytes, 4);
  std::filesystem::create_symlink(path, dir / "link");
  EXPECT_EQ(stamp_of(dir / "link"), stamp_of(path));
  expect_error(ErrorCode::kNotFound, {"missing"}, [&] { stamp_of(dir / "missing"); });
}

}  // namespace
}  // namespace dsv4
