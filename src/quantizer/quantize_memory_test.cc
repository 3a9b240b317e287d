// quantize_memory_test.cc: what is resident while a checkpoint is quantised: a run stays within the
// memory that it may have, however large the source is, and lets go of what it has read.
//
// Sources are sparse: making them costs nothing, and their pages count like those of any file.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/bind.h"
#include "quantizer/memory_budget.h"
#include "quantizer/quantize.h"
#include "testing/golden_copy.h"
#include "testing/random_checkpoint.h"
#include "testing/resident_memory.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// One layer of a few large matrices, so that one alone shows when it stays: an expert's have 8 MiB
// in MXFP4, 16 in FP8, 32 in BF16.
ModelConfig large_matrices(int num_experts) {
  ModelConfig config = scaled_flash_config(1);
  config.num_layers = 1;
  config.compress_ratios = {0};
  config.hidden_size = config.expert_inter = config.vocab_size = 4096;
  config.num_experts = num_experts;
  config.experts_per_token = 1;
  return config;
}

// With the least memory that the program takes for it.
QuantizeJob smallest_job(const std::filesystem::path& folder,
                         const std::vector<std::string>& modules) {
  QuantizeJob job;
  job.in = folder / "in";
  job.out = folder / "out";
  job.modules = modules;
  job.num_threads = 2;
  const auto weights = load_checkpoint(job.in);
  const NamedTensors names(*weights->store);
  const QuantizePlan plan = make_plan(*weights, names, {.modules = modules});
  job.max_memory_bytes = min_memory_bytes(plan, *weights->store);
  return job;
}

// The most of the source that was resident at any time that a caller hears of, about once a MiB.
class SourcePages {
 public:
  explicit SourcePages(QuantizeJob& job) : directory_(job.in) {
    job.load_progress = [this](const LoadProgress&) { look(); };
    job.progress = [this](const QuantizeProgress& progress) {
      if (progress.done < seen_ + kMiB && progress.done != progress.total) return;
      seen_ = progress.done;
      look();
    };
  }
  std::int64_t most() const { return most_; }

 private:
  void look() { most_ = std::max(most_, resident_file_bytes(directory_).value()); }

  std::filesystem::path directory_;
  std::int64_t seen_ = 0, most_ = 0;
};

// A piece of 64 KiB, some rows, the scales of two matrices, and what the system maps along with
// them, which may be a few pages of 2 MiB.
constexpr std::int64_t kMaxSourceBytes = 10 * kMiB;

// The model's tensors in the given modules are encoded, the rest is copied.
void expect_source_is_let_go(int num_experts, const std::vector<std::string>& modules) {
  const TestFolder folder;
  const std::int64_t payload =
      write_sparse_checkpoint(folder.path() / "in", large_matrices(num_experts), kOfficialFormats);
  if (!resident_file_bytes(folder.path())) GTEST_SKIP() << "the kernel tells of no mappings";
  QuantizeJob job = smallest_job(folder.path(), modules);
  SourcePages pages(job);
  const QuantizeResult result = quantize_checkpoint(job);
  EXPECT_EQ(result.source_bytes, payload);
  EXPECT_GT(payload, 10 * kMaxSourceBytes);
  EXPECT_GT(pages.most(), 0);  // else nothing was looked at
  testing::Test::RecordProperty("most_source_bytes", std::to_string(pages.most()));
  EXPECT_LT(pages.most(), kMaxSourceBytes) << "of " << payload;
}

// The experts' scales, all of which lie behind all of their codes, are 12 MiB.
TEST(QuantizeMemory, SourceThatIsCastIsLetGo) { expect_source_is_let_go(8, {"experts"}); }

TEST(QuantizeMemory, SourceThatIsEncodedFromValuesIsLetGo) {
  expect_source_is_let_go(1, {"shared_experts", "head"});
}

// Many layers: binding reads some small tensor in each, with the pages around it.
TEST(QuantizeMemory, BindingLetsGoOfWhatItReads) {
  const TestFolder folder;
  ModelConfig config = scaled_flash_config(1);
  config.num_layers = 32;
  config.compress_ratios.assign(32, 4);
  config.num_experts = config.experts_per_token = 1;
  write_sparse_checkpoint(folder.path() / "in", config, kOfficialFormats);
  if (!resident_file_bytes(folder.path())) GTEST_SKIP() << "the kernel tells of no mappings";
  QuantizeJob job = smallest_job(folder.path(), {"experts"});
  struct Stopped {};
  std::int64_t binding = 0, bound = -1;
  job.load_progress = [&](const LoadProgress&) {
    binding = std::max(binding, resident_file_bytes(job.in).value());
  };
  job.progress = [&](const QuantizeProgress&) {
    bound = resident_file_bytes(job.in).value();
    throw Stopped();
  };
  EXPECT_THROW(quantize_checkpoint(job), Stopped);
  RecordProperty("binding_bytes", std::to_string(binding));
  RecordProperty("bound_bytes", std::to_string(bound));
  EXPECT_LT(binding, kMaxSourceBytes);
  EXPECT_GE(bound, 0);
  EXPECT_LT(bound, kMiB);
}

// Three times as large as the memory, and most of it read twice.
TEST(QuantizeMemory, RunStaysWithinWhatItMayHave) {
  if (kKeepsFreedMemory) GTEST_SKIP() << "a sanitizer's own memory would be measured";
  const TestFolder folder;
  const std::int64_t payload =
      write_sparse_checkpoint(folder.path() / "in", large_matrices(10), kBf16Formats);
  const QuantizeJob job = smallest_job(folder.path(), {"experts"});
  EXPECT_GT(payload, 3 * job.max_memory_bytes);
  if (!reset_peak_resident()) GTEST_SKIP() << "the peak of resident memory cannot be reset here";
  const QuantizeResult result = quantize_checkpoint(job);
  EXPECT_EQ(result.source_bytes, payload);
  const std::int64_t peak = peak_resident_bytes();
  RecordProperty("max_memory_bytes", std::to_string(job.max_memory_bytes));
  RecordProperty("peak_bytes", std::to_string(peak));
  EXPECT_GT(peak, 0);
  EXPECT_LE(peak, job.max_memory_bytes);
}

}  // namespace
}  // namespace dsv4
