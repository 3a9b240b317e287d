// atomic_file_test.cc: a target is old or new, never half; no temporary stays; errors name it.
#include "io/atomic_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

TEST(AtomicFile, AppearsOnCommitOnly) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.write("ab");
  file.write("");
  file.write("c");
  EXPECT_EQ(file.bytes_written(), 3);
  EXPECT_FALSE(std::filesystem::exists(dir / "f"));
  file.commit();
  EXPECT_THAT(dir.listing(), ElementsAre("f"));
  EXPECT_EQ(get_file(dir / "f"), "abc");
}

TEST(AtomicFile, AbandonedLeavesNothingAndKeepsTheOldTarget) {
  const TempDir dir;
  { AtomicFile(dir / "new").write("half"); }
  EXPECT_THAT(dir.listing(), IsEmpty());
  put_file(dir / "old", "whole");
  {
    AtomicFile file(dir / "old");
    file.write("half");
    AtomicFile moved = std::move(file);
    moved.write("more");
  }
  EXPECT_THAT(dir.listing(), ElementsAre("old"));
  EXPECT_EQ(get_file(dir / "old"), "whole");
}

TEST(AtomicFile, KilledProcessLeavesTheOldTargetAndCanBeRepeated) {
  const TempDir dir;
  put_file(dir / "f", "old");
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(dir / "f");
    file.write("half");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(get_file(dir / "f"), "old");
  write_text_file(dir / "f", "new");
  EXPECT_EQ(get_file(dir / "f"), "new");
}

TEST(AtomicFile, StepsAroundAForeignTemporary) {
  const TempDir dir;
  const std::string taken = ".f.tmp-" + std::to_string(::getpid()) + "-0";
  put_file(dir / taken, "foreign");
  write_text_file(dir / "f", "text");
  EXPECT_EQ(get_file(dir / "f"), "text");
  EXPECT_EQ(get_file(dir / taken), "foreign");
}

TEST(AtomicFile, ConcurrentWritersOfOneTargetDoNotMix) {
  const TempDir dir;
  std::vector<std::thread> writers;
  for (const char c : {'a', 'b', 'c', 'd'}) {
    writers.emplace_back([&dir, c] {
      for (int i = 0; i < 20; ++i) write_text_file(dir / "f", std::string(10'000, c));
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string text = get_file(dir / "f");
  EXPECT_EQ(text, std::string(10'000, text.empty() ? '?' : text[0]));
  EXPECT_THAT(dir.listing(), ElementsAre("f"));
}

TEST(AtomicFile, ReplacesASymbolicLinkNotWhatItNames) {
  const TempDir dir;
  put_file(dir / "real", "real");
  std::filesystem::create_symlink("real", dir / "link");
  write_text_file(dir / "link", "new");
  EXPECT_EQ(get_file(dir / "real"), "real");
  EXPECT_EQ(get_file(dir / "link"), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(dir / "link"));
}

TEST(AtomicFile, WritesIntoTheCurrentDirectoryByPlainName) {
  const TempDir dir;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  write_text_file("plain", "x");
  std::filesystem::current_path(before);
  EXPECT_THAT(dir.listing(), ElementsAre("plain"));
}

TEST(AtomicFile, HonoursTheUsersFileMode) {
  const TempDir dir;
  const mode_t before = ::umask(027);
  write_text_file(dir / "f", "x");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat((dir / "f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, WhatItReplacesHandsOnItsPermissions) {
  const TempDir dir;
  for (const mode_t mode : {0600u, 0444u, 0664u}) {
    const std::string target = put_file(dir / fmt::format("{:o}", mode), "secret");
    ASSERT_EQ(::chmod(target.c_str(), mode), 0);
    write_text_file(target, "new");
    struct stat status {};
    ASSERT_EQ(::stat(target.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
    EXPECT_EQ(get_file(target), "new");
  }
}

TEST(AtomicFile, PipesAndDevicesStayWhatTheyAre) {
  const TempDir dir;
  const std::filesystem::path pipe = dir / "pipe", link = dir / "link";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("pipe", link);  // /dev/stdout is such a link
  for (const std::filesystem::path& target : {pipe, link, std::filesystem::path("/dev/null")}) {
    expect_error(ErrorCode::kBadRequest, {target.string(), "not a file"},
                 [&] { AtomicFile{target}; });
  }
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_THAT(dir.listing(), UnorderedElementsAre("pipe", "link"));
}

TEST(AtomicFile, ReserveDoesNotChangeTheFile) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.reserve(0);
  file.reserve(1 << 20);
  file.write("abc");
  file.reserve(2);
  file.commit();
  EXPECT_EQ(get_file(dir / "f"), "abc");
}

TEST(AtomicFile, RefusesTargetsThatCannotBe) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {(dir / "absent").string(), "No such file"},
               [&] { AtomicFile(dir / "absent" / "f"); });
  expect_error(ErrorCode::kNotFound, {"Not a directory"},
               [&] { AtomicFile(put_file(dir / "plain", "x") / "f"); });
  expect_error(ErrorCode::kBadRequest, {dir.path().string(), "is a directory"},
               [&] { AtomicFile(dir.path()); });
  expect_error(ErrorCode::kBadRequest, {"file name"}, [] { AtomicFile(""); });
  expect_error(ErrorCode::kBadRequest, {"file name"}, [&] { AtomicFile(dir.path() / ""); });
  expect_error(ErrorCode::kIo, {"too long"}, [&] { AtomicFile(dir / std::string(255, 'n')); });
  EXPECT_THAT(dir.listing(), ElementsAre("plain"));
}

TEST(AtomicFile, UseAfterTheEndIsRefused) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  file.commit();
  expect_error(ErrorCode::kBadRequest, {"finished"}, [&] { file.write("x"); });
  expect_error(ErrorCode::kBadRequest, {"finished"}, [&] { file.commit(); });
  EXPECT_EQ(get_file(dir / "f"), "");
}

// A limit on file sizes stands in for a full disk: write() fails in the same way.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SmallDisk(const SmallDisk&) = delete;
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(AtomicFile, FailedWriteSaysWhyAndLeavesNothing) {
  const TempDir dir;
  put_file(dir / "f", "old");
  AtomicFile file(dir / "f");
  {
    const SmallDisk disk(1000);
    file.write(std::string(1000, 'x'));
    expect_error(ErrorCode::kIo, {(dir / "f").string(), "too large", "after 1000 bytes"},
                 [&] { file.write("x"); });
  }
  EXPECT_THAT(dir.listing(), ElementsAre("f"));  // removed at once, not only on destruction
  expect_error(ErrorCode::kBadRequest, {"abandoned"}, [&] { file.commit(); });
  EXPECT_EQ(get_file(dir / "f"), "old");
}

TEST(AtomicFile, ReserveOfMoreThanAnyDiskIsRefused) {
  const TempDir dir;
  AtomicFile file(dir / "f");
  try {
    file.reserve(std::int64_t{1} << 62);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr((dir / "f").string()));
    EXPECT_THAT(dir.listing(), IsEmpty());
    return;
  }
  GTEST_SKIP() << "this file system cannot reserve";
}

TEST(ReadTextFile, ReadsUpToTheLimit) {
  const TempDir dir;
  for (const std::int64_t size : {0, 1, 65535, 65536, 65537, 200'000}) {
    SCOPED_TRACE(size);
    std::string text(static_cast<std::size_t>(size), 't');
    if (size > 0) text.back() = '\0';
    const auto path = put_file(dir / "f", text);
    EXPECT_EQ(read_text_file(path, size), text);
    EXPECT_EQ(read_text_file(path, size + 1), text);
    if (size == 0) continue;
    expect_error(ErrorCode::kBadRequest, {path.string(), std::to_string(size), "bytes long"},
                 [&] { read_text_file(path, size - 1); });
  }
}

TEST(ReadTextFile, ReadsFilesWhoseSizeIsNotKnown) {
  EXPECT_NE(read_text_file("/proc/self/status", 1 << 20).find("Name:"), std::string::npos);
  expect_error(ErrorCode::kBadRequest, {"/proc/self/status", "at most 10"},
               [] { read_text_file("/proc/self/status", 10); });
}

TEST(ReadTextFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {"absent"}, [&] { read_text_file(dir / "absent", 10); });
  expect_error(ErrorCode::kBadRequest, {"directory"}, [&] { read_text_file(dir.path(), 10); });
}

TEST(AbandonedTemporaries, AreRemovedAndNothingElse) {
  const TempDir dir;
  put_file(dir / ".model.safetensors.tmp-123-0", "half");
  put_file(dir / ".a.tmp-1.tmp-4-12", "half");
  const std::vector<std::string> others{
      ".tmp-1-2",  ".x.tmp-1-",         ".x.tmp--1", ".x.tmp-a-1",
      ".x.tmp-12", "model.safetensors", "x.tmp-1-2",
  };
  for (const std::string& name : others) put_file(dir / name, "whole");
  EXPECT_EQ(remove_abandoned_temporaries(dir.path()), 2);
  std::vector<std::string> left = others;
  std::sort(left.begin(), left.end());
  EXPECT_EQ(dir.listing(), left);
  EXPECT_EQ(remove_abandoned_temporaries(dir.path()), 0);
  expect_error(ErrorCode::kNotFound, {"missing"},
               [&] { remove_abandoned_temporaries(dir / "missing"); });
}

}  // namespace
}  // namespace dsv4
