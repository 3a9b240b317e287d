// output_directory_test.cc: the door of a directory that a run writes to, where only its own parts
// can be seen: the space it asks for, what happens between looking and locking, and the small
// files. Whole runs that are refused: quantize_refusals_test.cc.
#include "quantizer/output_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

TEST(OutputDirectory, SpaceThatIsThereAndSpaceThatIsNot) {
  const TempDir dir;
  const OutputDirectory out(dir / "in", dir / "out", false);
  const auto free_bytes = static_cast<std::int64_t>(std::filesystem::space(dir.path()).available);
  EXPECT_NO_THROW(out.require_space(0));
  EXPECT_NO_THROW(out.require_space(free_bytes / 2));
  for (const std::int64_t bytes : {2 * free_bytes, std::numeric_limits<std::int64_t>::max()}) {
    expect_error(ErrorCode::kIo,
                 {(dir / "out").string(), "bytes are free", std::to_string(bytes) + " are needed"},
                 [&] { out.require_space(bytes); });
  }
}

// A path that the system cannot follow lies nowhere: it was said to hold the source.
TEST(OutputDirectory, PathsThatCannotBeFollowed) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "in");
  std::filesystem::create_symlink("loop", dir / "loop");
  for (const auto& bad : {dir / std::string(300, 'd'), dir / "loop" / "out"}) {
    expect_error(ErrorCode::kIo, {"cannot create " + bad.string()},
                 [&] { const OutputDirectory out(dir / "in", bad, false); });
    EXPECT_NO_THROW(OutputDirectory::check(bad, dir / "out", false));
    EXPECT_NO_THROW(check_plot(bad, dir / "out", dir / "plot.svg"));
  }
}

// Two runs race for an empty directory. Who has the lock may write; who gets it afterwards must see
// what was written, though the directory was empty when it first looked.
TEST(OutputDirectory, WhoGetsTheLockLooksAgain) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "in");
  for (int round = 0; round < 3000; ++round) {
    const auto path = dir / std::to_string(round);
    std::filesystem::create_directory(path);
    std::atomic<int> ready{0};
    const auto start = [&] {
      ++ready;
      while (ready < 2) std::this_thread::yield();
    };
    std::thread other([&] {
      start();
      try {
        const DirectoryLock lock(path);
        put_file(path / "file", "");
      } catch (const Error&) {
      }
    });
    start();
    try {
      const OutputDirectory out(dir / "in", path, false);
      EXPECT_FALSE(std::filesystem::exists(path / "file")) << "round " << round;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadRequest) << error.what();
    }
    other.join();
    if (HasFailure()) return;
    std::filesystem::remove_all(path);
  }
}

TEST(CopySmallFiles, TakesFilesUpToTheLimitAndNamesTheOthers) {
  const TempDir dir;
  const auto in = dir / "in", out = dir / "out";
  std::filesystem::create_directories(in / "directory");
  std::filesystem::create_directory(out);
  put_file(in / "tokenizer.json", "{}");
  put_file(in / "empty", "");
  // Holes: what counts is the size.
  std::filesystem::resize_file(put_file(in / "limit", ""), kMaxSmallFileBytes);
  std::filesystem::resize_file(put_file(in / "beyond", ""), kMaxSmallFileBytes + 1);
  for (const char* name : {".hidden", "model.safetensors", "pytorch_model.bin", "m.gguf", "m.pt",
                           "m.pth", "model.safetensors.index.json", "config.json",
                           "hf_quant_config.json", "quantization_report.json", "README.md"}) {
    put_file(in / name, "of the source");
  }
  EXPECT_EQ(small_file_bytes(in, out), 2 + kMaxSmallFileBytes);
  put_file(out / "tokenizer.json", "of a run before");
  EXPECT_EQ(small_file_bytes(in, out), kMaxSmallFileBytes);
  EXPECT_THAT(copy_small_files(in, out), ElementsAre("\"beyond\"", "\"directory\""));
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(out)) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("empty", "limit", "tokenizer.json"));
  EXPECT_EQ(std::filesystem::file_size(out / "limit"), std::uintmax_t{kMaxSmallFileBytes});
  EXPECT_EQ(get_file(out / "tokenizer.json"), "{}");
  EXPECT_EQ(small_file_bytes(in, out), 0);
}

}  // namespace
}  // namespace dsv4
