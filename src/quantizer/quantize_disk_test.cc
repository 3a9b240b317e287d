// quantize_disk_test.cc: disks without room, before a run and in the middle of it. What is there
// stays whole, and with room the run goes on.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "quantizer/journal.h"
#include "quantizer/quantize_fixtures.h"
#include "testing/random_checkpoint.h"

namespace dsv4 {
namespace {

// A sparse source of more bytes than the disk has free, whatever is encoded. Returns its bytes;
// 0 where there can be none.
std::int64_t write_larger_than_the_disk(const std::filesystem::path& in) {
  const std::uintmax_t free_bytes = std::filesystem::space(in.parent_path()).available;
  ModelConfig config = scaled_flash_config(1);
  config.num_layers = 1;
  config.compress_ratios = {0};
  config.hidden_size = config.expert_inter = 32768;  // an expert has 1.6 GB
  config.experts_per_token = 1;
  const std::uintmax_t num_experts = free_bytes / 1'500'000'000 + 2;
  if (num_experts > 6000) return 0;  // 9 TB
  config.num_experts = static_cast<int>(num_experts);
  try {
    return write_sparse_checkpoint(in, config, kOfficialFormats);
  } catch (const std::filesystem::filesystem_error&) {
    return 0;
  }
}

// Where the look at the disk's room is lost, a run must end before it fills that disk.
struct Stopped {};
void stop_at_once(const QuantizeProgress& progress) {
  if (progress.done > progress.resumed) throw Stopped();
}

TEST(QuantizeDisk, DiskWithoutRoomForTheOutput) {
  const TempDir dir;
  if (write_larger_than_the_disk(dir / "in") == 0) {
    GTEST_SKIP() << "no sparse file that is larger than this disk";
  }
  QuantizeJob job = quantize_job(dir / "in", dir / "out");
  job.progress = stop_at_once;
  bool has_calibrated = false;
  job.calibration.emplace();
  job.calibration->measure = [&] {
    has_calibrated = true;
    return InputScales();
  };
  expect_refused(job, ErrorCode::kIo, {"bytes are free on this disk", "are needed"});
  EXPECT_FALSE(has_calibrated);
  EXPECT_FALSE(std::filesystem::exists(job.out));
}

// The shards would fit; what lies beside them would not.
TEST(QuantizeDisk, DiskWithoutRoomForTheSmallFiles) {
  constexpr std::uintmax_t kFileBytes = 64'000'000;
  const TempDir dir;
  const std::uintmax_t num_files = std::filesystem::space(dir.path()).available / kFileBytes + 2;
  if (num_files > 20'000) GTEST_SKIP() << "too many sparse files on this disk";
  write_sharded(golden_dir("flash-official"), dir / "in", 1, 1000);
  for (std::uintmax_t i = 0; i < num_files; ++i) {
    const auto path = dir / "in" / fmt::format("{}.txt", i);
    put_file(path, "");
    std::filesystem::resize_file(path, kFileBytes);
  }
  QuantizeJob job = quantize_job(dir / "in", dir / "out");
  job.progress = stop_at_once;
  expect_refused(job, ErrorCode::kIo, {"bytes are free on this disk", "are needed"});
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

// The journal says that the shard is there. When it turns out not to be, its room is needed again.
TEST(QuantizeDisk, DiskWithoutRoomForAShardThatIsMadeAgain) {
  const TempDir dir;
  if (write_larger_than_the_disk(dir / "in") == 0) {
    GTEST_SKIP() << "no sparse file that is larger than this disk";
  }
  write_sharded(golden_dir("flash-official"), dir / "small", 2, 50);
  QuantizeJob job = quantize_job(dir / "small", dir / "out");
  job.modules = {"head"};
  job.progress = [](const QuantizeProgress& progress) {
    if (progress.done == progress.total) throw Stopped();
  };
  EXPECT_THROW(quantize_checkpoint(job), Stopped);
  // Its options, of which only the modules count, with the other source.
  const auto path = dir / "out" / kJournalFileName;
  nlohmann::json journal = nlohmann::json::parse(get_file(path));
  journal["source"] = nlohmann::json::array();
  for (const SourceFile& file : describe_source(dir / "in", TensorStore::open(dir / "in"))) {
    journal["source"].push_back({{"name", file.name},
                                 {"bytes", file.stamp.size_bytes},
                                 {"modified_ns", file.stamp.modified_ns},
                                 {"checksum", file.checksum}});
  }
  nlohmann::json finished = journal.at("finished").at(0);
  finished["name"] = "model.safetensors";
  journal["finished"] = {finished};
  put_file(path, journal.dump());
  job.in = dir / "in";
  job.resume = true;
  job.progress = stop_at_once;
  expect_refused(job, ErrorCode::kIo, {"bytes are free on this disk", "are needed"});
}

// A file size limit is what a full disk looks like in the middle of a shard: the shards before it
// stay, and with room the run goes on to the same bytes.
TEST(QuantizeDisk, DiskThatFillsUp) {
  const TempDir dir;
  write_sharded(golden_dir("flash-official"), dir / "in", 3, 100);
  quantize_checkpoint(quantize_job(dir / "in", dir / "whole"));
  std::vector<std::uintmax_t> sizes;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "whole")) {
    if (entry.path().extension() == ".safetensors") sizes.push_back(entry.file_size());
  }
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  QuantizeJob job = quantize_job(dir / "in", dir / "out");
  const struct rlimit small { *std::max_element(sizes.begin(), sizes.end()) - 1, old.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_refused(job, ErrorCode::kIo, {".safetensors", "File too large"});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  ::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(files_of(dir / "out").count("config.json"), 0u);
  for (const auto& [name, content] : files_of(dir / "out")) {
    if (name.starts_with('.')) continue;
    EXPECT_TRUE(content == get_file(dir / "whole" / name)) << name;
  }
  job.resume = true;
  quantize_checkpoint(job);
  expect_same_files(dir / "out", dir / "whole");
}

}  // namespace
}  // namespace dsv4
