// quantize_refusals_test.cc: runs that must not begin, or must stop: bad places, bad sources, full
// and read-only disks. The source stays as it was, and nothing half written gets a final name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <limits>

#include "io/directory_lock.h"
#include "numerics/bf16.h"
#include "quantizer/journal.h"
#include "quantizer/quantize_fixtures.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

void expect_refused(const QuantizeJob& job, ErrorCode code, const std::vector<std::string>& parts) {
  expect_error(code, parts, [&] { quantize_checkpoint(job); });
}

TEST(QuantizeRefusals, OutputThatIsTheSource) {
  const TempDir dir;
  const auto in = dir / "in";
  write_sharded(golden_dir("flash-official"), in, 1, 1000);
  std::filesystem::create_directory_symlink(in, dir / "link");
  const auto before = files_of(in);
  for (const auto& out : {in, dir / "link", in / ".", dir / "in/../in"}) {
    for (const bool resume : {false, true}) {
      QuantizeJob job = quantize_job(in, out);
      job.resume = resume;
      expect_refused(job, ErrorCode::kBadRequest, {"is the source itself"});
    }
  }
  EXPECT_EQ(files_of(in), before);
}

TEST(QuantizeRefusals, OutputThatIsNotEmptyOrNoDirectory) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "out");
  for (const char* name : {".hidden", "a", "b", "c"}) put_file(dir / "out" / name, "mine");
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  expect_refused(job, ErrorCode::kBadRequest, {"not empty", ".hidden", "\"a\"", "..."});
  job.resume = true;
  expect_refused(job, ErrorCode::kBadRequest, {"no quantisation that could go on", "\"a\""});
  EXPECT_EQ(get_file(dir / "out/a"), "mine");
  job = quantize_job(golden_dir("flash-official"), put_file(dir / "file", "x"));
  expect_refused(job, ErrorCode::kBadRequest, {"not a directory"});
  job.out = "";
  expect_refused(job, ErrorCode::kBadRequest, {"empty"});
}

TEST(QuantizeRefusals, FinishedRunHasNothingToResume) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  quantize_checkpoint(job);
  const auto before = files_of(dir / "out");
  expect_refused(job, ErrorCode::kBadRequest, {"not empty"});
  job.resume = true;
  expect_refused(job, ErrorCode::kBadRequest, {"finished", "nothing to resume"});
  EXPECT_TRUE(files_of(dir / "out") == before);
}

TEST(QuantizeRefusals, TwoRunsAtOnce) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  {
    std::filesystem::create_directory(dir / "out");
    const DirectoryLock other(dir / "out");
    expect_refused(job, ErrorCode::kBadRequest, {"another process"});
  }
  // From inside the first, when it has files already.
  bool was_refused = false;
  job.progress = [&](const QuantizeProgress& progress) {
    if (was_refused || progress.done == 0) return;
    QuantizeJob second = quantize_job(job.in, job.out);
    expect_refused(second, ErrorCode::kBadRequest, {"--resume"});
    second.resume = true;
    expect_refused(second, ErrorCode::kBadRequest, {"another process"});
    was_refused = true;
  };
  quantize_checkpoint(job);
  EXPECT_TRUE(was_refused);
  expect_same_values(dir / "out", job.in);
}

TEST(QuantizeRefusals, ModulesThatFitNothing) {
  const TempDir dir;
  const auto refuse = [&](const std::vector<std::string>& modules, const char* part) {
    QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
    job.modules = modules;
    expect_refused(job, ErrorCode::kBadRequest, {part});
  };
  refuse({}, "no modules");
  refuse({"expert"}, "\"expert\" fits no matrix");
  refuse({"experts", "layers.99.*"}, "\"layers.99.*\" fits no matrix");
  refuse({"mtp.*"}, "draft block");
  refuse({""}, "\"\" fits no matrix");
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(QuantizeRefusals, MemoryBelowTheMinimum) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{64} << 20}) {
    job.max_memory_bytes = bytes;
    expect_refused(job, ErrorCode::kBadRequest, {"max-memory", "needs at least", "MiB"});
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

TEST(QuantizeRefusals, SourceThatIsNoModel) {
  const TempDir dir;
  expect_refused(quantize_job(dir / "none", dir / "out"), ErrorCode::kNotFound, {"none"});
  expect_refused(quantize_job(dir.path(), dir / "out"), ErrorCode::kNotFound, {"config.json"});
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
}

// The message has the tensor; no shard and no config.json is there.
TEST(QuantizeRefusals, NanAndInfinityInWeights) {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    EditableModel model(golden_dir("flash-bf16"));
    model.tensor("layers.1.ffn.experts.2.w3.weight").set<std::uint16_t>(1000, encode_bf16(value));
    model.load();
    const TempDir dir;
    expect_refused(quantize_job(model.dir().path(), dir / "out"), ErrorCode::kBadCheckpoint,
                   {"layers.1.ffn.experts.2.w3"});
    EXPECT_THAT(TempDir().listing(), ElementsAre());
    for (const auto& [name, content] : files_of(dir / "out")) EXPECT_EQ(name, kJournalFileName);
  }
  for (const char* name : {"layers.0.ffn.experts.1.w2.scale", "layers.2.ffn.experts.0.w1.scale"}) {
    EditableModel model(golden_dir("flash-official"));
    model.tensor(name).set<std::uint8_t>(3, 0xFF);  // the NaN of E8M0
    model.load();
    const TempDir dir;
    const std::string matrix(name, std::string_view(name).rfind('.'));
    expect_refused(quantize_job(model.dir().path(), dir / "out"), ErrorCode::kBadCheckpoint,
                   {matrix});
  }
}

TEST(QuantizeRefusals, SourceThatChangesUnderTheRun) {
  const TempDir dir;
  write_sharded(golden_dir("flash-official"), dir / "in", 2, 50);
  const auto touch = [&](const char* name) {
    const auto path = dir / "in" / name;
    std::filesystem::last_write_time(
        path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  };
  for (const char* name : {"model-00001-of-00002.safetensors", "config.json"}) {
    QuantizeJob job = quantize_job(dir / "in", dir / (std::string("out-") + name));
    bool is_touched = false;
    job.progress = [&](const QuantizeProgress& progress) {
      if (!is_touched && progress.done > progress.total / 4) touch(name);
      is_touched = progress.done > progress.total / 4;
    };
    expect_refused(job, ErrorCode::kBadCheckpoint, {name, "was changed while it was read"});
    EXPECT_EQ(files_of(job.out).count("model-00001-of-00002.safetensors"), 0u);
    EXPECT_EQ(files_of(job.out).count("config.json"), 0u);
    // Nor can that run go on.
    job.resume = true;
    job.progress = nullptr;
    expect_refused(job, ErrorCode::kBadRequest, {name, "is not what it was"});
  }
}

TEST(QuantizeRefusals, ReadOnlyTarget) {
  if (::geteuid() == 0) {
    // Root may write anywhere but where no files can be.
    expect_refused(quantize_job(golden_dir("flash-official"), "/proc/dsv4"), ErrorCode::kIo,
                   {"cannot create /proc/dsv4"});
    return;
  }
  const TempDir dir;
  std::filesystem::create_directory(dir / "out");
  std::filesystem::permissions(
      dir / "out", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  expect_refused(quantize_job(golden_dir("flash-official"), dir / "out"), ErrorCode::kIo,
                 {"Permission denied"});
}

// A file size limit is what a full disk looks like in the middle of a shard: the shards before it
// stay, and with room the run goes on to the same bytes.
TEST(QuantizeRefusals, DiskThatFillsUp) {
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
