// quantize_resume_test.cc: runs that are killed, and what was done to their files before they go
// on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "io/atomic_file.h"
#include "quantizer/journal.h"
#include "quantizer/output_directory.h"
#include "quantizer/quantize_fixtures.h"

namespace dsv4 {
namespace {

struct Stopped {};

// flash-official in four shards, quantised without a disturbance.
class Resume : public testing::Test {
 protected:
  Resume() {
    write_sharded(golden_dir("flash-official"), in_, 4, 60);
    quantize_checkpoint(quantize_job(in_, whole_));
  }

  QuantizeJob resuming() const {
    QuantizeJob job = quantize_job(in_, out_);
    job.resume = true;
    return job;
  }
  // Until `share` of the source is done.
  void stop_at(double share) const {
    QuantizeJob job = resuming();
    job.progress = [share](const QuantizeProgress& progress) {
      if (static_cast<double>(progress.done) >= share * static_cast<double>(progress.total)) {
        throw Stopped();
      }
    };
    EXPECT_THROW(quantize_checkpoint(job), Stopped);
  }
  std::vector<std::string> finished() const {
    std::vector<std::string> names;
    const std::optional<Journal> journal = Journal::read(out_);
    if (!journal) return names;
    for (const FinishedShard& shard : journal->finished()) names.push_back(shard.file_name);
    return names;
  }
  // Whatever has its final name is what it will be in the end.
  void expect_nothing_half_written() const {
    if (!std::filesystem::exists(out_)) return;
    for (const auto& [name, content] : files_of(out_)) {
      if (!name.starts_with('.')) {
        EXPECT_TRUE(content == get_file(whole_ / name)) << name;
      }
    }
  }
  void finish_and_compare() const {
    quantize_checkpoint(resuming());
    expect_same_files(out_, whole_);
  }

  TempDir dir_;
  std::filesystem::path in_ = dir_ / "in", whole_ = dir_ / "whole", out_ = dir_ / "out";
};

// In a child, so that nothing is cleaned up. Returns whether it was killed before its end.
bool run_and_kill(const QuantizeJob& job, int calls) {
  const pid_t child = ::fork();
  if (child == 0) {
    QuantizeJob killed = job;
    int left = calls;
    killed.progress = [&left](const QuantizeProgress&) {
      if (left-- == 0) ::kill(::getpid(), SIGKILL);
    };
    try {
      quantize_checkpoint(killed);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << status;
  return WIFSIGNALED(status);
}

// The seed's kills fall into shards, between them, and into the verification of what was done.
TEST_F(Resume, TenKillsAtRandomPointsGiveTheSameBytes) {
  int calls = 0;
  QuantizeJob job = quantize_job(in_, dir_ / "counted");
  job.progress = [&calls](const QuantizeProgress&) { ++calls; };
  quantize_checkpoint(job);
  std::mt19937 random(20261130);
  std::uniform_int_distribution<int> call(0, calls / 3);
  int kills = 0;
  for (int run = 0; kills < 10; ++run) {
    ASSERT_LT(run, 40);
    if (!run_and_kill(resuming(), call(random))) {
      expect_same_files(out_, whole_);
      std::filesystem::remove_all(out_);
      continue;
    }
    ++kills;
    expect_nothing_half_written();
    EXPECT_FALSE(std::filesystem::exists(out_ / kConfigFileName));
  }
  finish_and_compare();
}

TEST_F(Resume, KilledBeforeTheJournalLeavesTemporariesOnly) {
  std::filesystem::create_directory(out_);
  put_file(out_ / "..dsv4-quantize.json.tmp-99-0", "{");
  expect_error(ErrorCode::kBadRequest, {"not empty"},
               [&] { quantize_checkpoint(quantize_job(in_, out_)); });
  finish_and_compare();
}

TEST_F(Resume, NewOutputIsABeginning) { finish_and_compare(); }

TEST_F(Resume, FinishedShardsAreKeptAndCounted) {
  stop_at(0.6);
  const std::vector<std::string> kept = finished();
  ASSERT_GE(kept.size(), 2u);
  ASSERT_LT(kept.size(), 4u);
  const auto time = std::filesystem::last_write_time(out_ / kept[0]);
  const QuantizeResult result = quantize_checkpoint(resuming());
  EXPECT_GT(result.resumed_bytes, 0);
  EXPECT_EQ(std::filesystem::last_write_time(out_ / kept[0]), time);
  expect_same_files(out_, whole_);
}

TEST_F(Resume, WithoutResumeAnUnfinishedRunIsRefused) {
  stop_at(0.6);
  expect_error(ErrorCode::kBadRequest, {"not finished", "--resume"},
               [&] { quantize_checkpoint(quantize_job(in_, out_)); });
  finish_and_compare();
}

TEST_F(Resume, DamagedShardsAreMadeAgain) {
  stop_at(0.9);
  const std::vector<std::string> done = finished();
  ASSERT_GE(done.size(), 3u);
  std::string bytes = get_file(out_ / done[0]);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  put_file(out_ / done[0], bytes);            // one bit
  put_file(out_ / done[1], bytes.substr(1));  // its length
  std::filesystem::remove(out_ / done[2]);
  finish_and_compare();
}

// A disk that filled up under the journal holds a shard that would not fit twice.
TEST_F(Resume, ShardsThatTheJournalLacksMakeRoomFirst) {
  stop_at(0.6);
  const auto shard = out_ / "model-00004-of-00004.safetensors";
  put_file(shard, get_file(whole_ / shard.filename()));
  bool was_there = false;
  QuantizeJob job = resuming();
  job.progress = [&](const QuantizeProgress&) {
    bool is_writing = false;
    for (const auto& entry : std::filesystem::directory_iterator(out_)) {
      is_writing = is_writing || is_temporary_name(entry.path().filename().native());
    }
    if (!is_writing) return;
    was_there = std::filesystem::exists(shard);
    throw Stopped();
  };
  EXPECT_THROW(quantize_checkpoint(job), Stopped);
  EXPECT_FALSE(was_there);
  finish_and_compare();
}

// Killed after config.json, before the journal was removed; then a shard is damaged.
TEST_F(Resume, FinishedButForTheJournal) {
  stop_at(1);
  const std::string journal = get_file(out_ / kJournalFileName);
  quantize_checkpoint(resuming());
  put_file(out_ / kJournalFileName, journal);
  finish_and_compare();
  put_file(out_ / kJournalFileName, journal);
  const std::vector<std::string> done = finished();
  put_file(out_ / done.at(0), "damaged");
  bool had_config = true;
  QuantizeJob job = resuming();
  job.progress = [&](const QuantizeProgress& progress) {
    if (progress.done > 0) had_config = std::filesystem::exists(out_ / kConfigFileName);
    if (progress.done > 0) throw Stopped();
  };
  EXPECT_THROW(quantize_checkpoint(job), Stopped);
  EXPECT_FALSE(had_config);  // an incomplete directory is no model
  finish_and_compare();
}

// For every expert of flash-official.
InputScales same_scales(float scale) {
  InputScales scales;
  const auto weights = load_checkpoint(golden_dir("flash-official"));
  for (const LayerWeights& layer : weights->layers) {
    scales.layers.emplace_back(static_cast<std::size_t>(layer.num_experts),
                               ExpertInputScales{scale, 2 * scale});
  }
  return scales;
}

TEST_F(Resume, OtherOptionsAreRefusedByName) {
  stop_at(0.6);
  const auto refuse = [&](const char* name, auto&& change) {
    QuantizeJob job = resuming();
    change(job);
    expect_error(ErrorCode::kBadRequest, {name, "to resume"}, [&] { quantize_checkpoint(job); });
  };
  refuse("--layout", [](QuantizeJob& job) { job.layout = Nvfp4Layout::kCompressedTensors; });
  refuse("--modules", [](QuantizeJob& job) { job.modules = {"all"}; });
  refuse("--rounding", [](QuantizeJob& job) { job.encoding.rounding = E2m1Rounding::kHalfStep; });
  refuse("--four-over-six", [](QuantizeJob& job) { job.encoding.four_over_six = true; });
  refuse("--calibrate", [](QuantizeJob& job) {
    job.calibration = CalibrationTask{"a text", [] { return same_scales(0.5f); }};
  });
  // What does not decide bytes may change.
  QuantizeJob job = resuming();
  job.num_threads = 2;
  job.max_memory_bytes = std::int64_t{1} << 30;
  quantize_checkpoint(job);
  expect_same_files(out_, whole_);
}

TEST_F(Resume, OtherSourceIsRefusedByName) {
  stop_at(0.6);
  const auto shard = in_ / "model-00003-of-00004.safetensors";
  const std::string bytes = get_file(shard);
  put_file(shard, bytes);  // the same, but written again
  expect_error(ErrorCode::kBadRequest, {"model-00003-of-00004.safetensors", "is not what it was"},
               [&] { quantize_checkpoint(resuming()); });
}

TEST_F(Resume, DamagedJournalIsRefused) {
  stop_at(0.6);
  const std::string journal = get_file(out_ / kJournalFileName);
  const auto refuse = [&](const std::string& text, const char* part) {
    put_file(out_ / kJournalFileName, text);
    expect_error(ErrorCode::kBadRequest, {std::string(kJournalFileName), part, "begin again"},
                 [&] { quantize_checkpoint(resuming()); });
  };
  refuse("", "damaged");
  refuse(journal.substr(0, journal.size() / 2), "damaged");
  refuse("[]", "damaged");
  refuse("{}", "damaged");
  refuse(R"({"version": 1})", "another version");
  std::string other = journal;
  other.replace(other.find("exact_values"), 5, "exakt");
  refuse(other, "exact_values");
  put_file(out_ / kJournalFileName, journal);
  finish_and_compare();
}

}  // namespace
}  // namespace dsv4
