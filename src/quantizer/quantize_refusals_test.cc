// quantize_refusals_test.cc: runs that must not begin, or must stop: bad places, bad sources, a
// target that is read-only. The source stays as it was, and nothing half written gets a final name.
// Full disks: quantize_disk_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <limits>

#include "io/directory_lock.h"
#include "numerics/bf16.h"
#include "quantizer/journal.h"
#include "quantizer/quantize_fixtures.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

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

TEST(QuantizeRefusals, OutputInTheSourceOrAroundIt) {
  const TempDir dir;
  const auto in = dir / "a/in";
  write_sharded(golden_dir("flash-official"), in, 1, 1000);
  std::filesystem::create_directory_symlink(in, dir / "link");
  const auto before = files_of(in);
  for (const bool resume : {false, true}) {
    for (const auto& out : {in / "out", in / "new/out", dir / "link/out", in / "../in/out"}) {
      QuantizeJob job = quantize_job(in, out);
      job.resume = resume;
      expect_refused(job, ErrorCode::kBadRequest, {"lies in the source"});
    }
    QuantizeJob job = quantize_job(dir / "link", dir / "a");
    job.resume = resume;
    expect_refused(job, ErrorCode::kBadRequest, {"the source lies in"});
  }
  EXPECT_EQ(files_of(in), before);
  // A name that begins like the source's is another one.
  quantize_checkpoint(quantize_job(in, dir / "a/in-nvfp4"));
}

TEST(QuantizeRefusals, OutputThatIsALinkToNothing) {
  const TempDir dir;
  std::filesystem::create_symlink(dir / "nowhere", dir / "out");
  expect_refused(quantize_job(golden_dir("flash-official"), dir / "out"), ErrorCode::kBadRequest,
                 {"a symbolic link to nothing"});
  // Its end may be made, or made by hand.
  std::filesystem::create_directory(dir / "nowhere");
  quantize_checkpoint(quantize_job(golden_dir("flash-official"), dir / "out"));
  EXPECT_TRUE(std::filesystem::exists(dir / "nowhere/config.json"));
}

TEST(QuantizeRefusals, OutputThatCannotBeCreated) {
  const TempDir dir;
  put_file(dir / "file", "x");
  expect_refused(quantize_job(golden_dir("flash-official"), dir / "file/out"), ErrorCode::kIo,
                 {"cannot create", "file/out"});
  // What was created on the way to a refusal goes, and nothing else.
  std::filesystem::create_directory(dir / "old");
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "old/a/b");
  job.max_memory_bytes = 1;
  expect_refused(job, ErrorCode::kBadRequest, {"max-memory"});
  EXPECT_TRUE(std::filesystem::exists(dir / "old"));
  EXPECT_FALSE(std::filesystem::exists(dir / "old/a"));
}

// The shards that were made before are not where the result should be.
TEST(QuantizeRefusals, OutputThatIsRemovedOrReplacedUnderTheRun) {
  const TempDir dir;
  write_sharded(golden_dir("flash-official"), dir / "in", 2, 50);
  const auto disturb = [&](const char* name, const char* part, auto&& action) {
    QuantizeJob job = quantize_job(dir / "in", dir / name);
    bool is_done = false;
    job.progress = [&](const QuantizeProgress& progress) {
      const bool is_second = progress.done > progress.total * 3 / 4;
      if (is_second && !is_done) action(job.out);
      is_done = is_second;
    };
    try {
      quantize_checkpoint(job);
      ADD_FAILURE() << name << " ended well";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
    EXPECT_FALSE(std::filesystem::exists(job.out / "config.json")) << name;
  };
  namespace fs = std::filesystem;
  disturb("removed", "removed", [](const fs::path& out) { fs::remove_all(out); });
  disturb("replaced", "removed or replaced", [](const fs::path& out) {
    fs::rename(out, out.string() + "-old");
    fs::create_directory(out);
  });
  disturb("shard", "model-00001-of-00002.safetensors was removed or changed",
          [](const fs::path& out) { fs::remove(out / "model-00001-of-00002.safetensors"); });
  disturb(
      "cut", "model-00001-of-00002.safetensors was removed or changed",
      [](const fs::path& out) { fs::resize_file(out / "model-00001-of-00002.safetensors", 9); });
  // Which a resumed run makes again.
  QuantizeJob job = quantize_job(dir / "in", dir / "cut");
  job.resume = true;
  quantize_checkpoint(job);
  expect_same_values(job.out, job.in);
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

// The minimum that a message names is enough, however far below it the memory was.
TEST(QuantizeRefusals, MemoryBelowTheMinimum) {
  const TempDir dir;
  QuantizeJob job = quantize_job(golden_dir("flash-official"), dir / "out");
  const auto least_mib = [&](std::int64_t bytes) {
    job.max_memory_bytes = bytes;
    try {
      quantize_checkpoint(job);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
      const std::string message = e.what(), before = "needs at least ";
      EXPECT_NE(message.find("max-memory"), std::string::npos) << message;
      return std::stoll(message.substr(message.find(before) + before.size()));
    }
    return 0LL;
  };
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const long long least = least_mib(0);
  EXPECT_GT(least, 64);
  EXPECT_EQ(least_mib(64 * kMiB), least);
  EXPECT_EQ(least_mib((least - 1) * kMiB), least);
  EXPECT_FALSE(std::filesystem::exists(dir / "out"));
  EXPECT_EQ(least_mib(least * kMiB), 0);
}

// Many engines take block scales for unsigned. Of chosen matrices the codes take the sign.
TEST(QuantizeRefusals, NegativeBlockScalesOfMatricesThatAreCopied) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.tensor("layers.1.ffn.experts.2.w3.weight_scale").set<std::uint8_t>(7, 0xB8);
  model.load();
  const TempDir dir;
  QuantizeJob job = quantize_job(model.dir().path(), dir / "copied");
  job.modules = {"layers.0.*"};
  expect_refused(job, ErrorCode::kBadCheckpoint,
                 {"layers.1.ffn.experts.2.w3.weight_scale", "block scale 7 is negative"});
  job = quantize_job(model.dir().path(), dir / "cast");
  quantize_checkpoint(job);
  expect_same_values(job.out, job.in);
  const TensorStore store = TensorStore::open(job.out);
  for (const StoredTensor& tensor : store.tensors()) {
    if (!tensor.info->name.ends_with(".weight_scale")) continue;
    for (const std::byte scale : tensor.bytes) {
      ASSERT_EQ(scale & std::byte{0x80}, std::byte{0}) << tensor.info->name;
    }
  }
}

TEST(QuantizeRefusals, SourceThatIsNoModel) {
  const TempDir dir;
  expect_refused(quantize_job(dir / "none", dir / "out"), ErrorCode::kNotFound, {"none"});
  std::filesystem::create_directory(dir / "empty");
  expect_refused(quantize_job(dir / "empty", dir / "out"), ErrorCode::kNotFound, {"config.json"});
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

// Matrices that are only copied, and the embedding; what is smaller, loading refuses.
TEST(QuantizeRefusals, NanAndInfinityInWeightsThatAreCopied) {
  struct Case {
    const char *model, *tensor;
    std::size_t index;
    int bytes;
    std::uint32_t bits;
    const char* place;
  };
  const Case cases[] = {
      {"flash-bf16", "layers.1.attn.wq_b.weight", 512 * 128 - 1, 2, 0xFF80, "row 511, column 127"},
      {"flash-bf16", "layers.1.attn.wq_b.weight", 129, 2, 0x7F81, "row 1, column 1"},
      {"flash-bf16", "embed.weight", 0, 2, 0x7F80, "row 0, column 0"},
      {"flash-official", "layers.1.attn.wq_b.weight", 300, 1, 0xFF, "column"},
      {"flash-official", "layers.1.attn.wq_b.scale", 1, 1, 0xFF, "row 1, column 0"},
      {"flash-official", "mtp.0.ffn.experts.1.w2.scale", 9, 1, 0xFF, "row 2, column 1"},
      {"flash-nvfp4", "layers.1.ffn.experts.2.w3.weight_scale", 9, 1, 0x7F, "row 1, column 1"},
  };
  for (const Case& c : cases) {
    EditableModel model(golden_dir(c.model));
    if (c.bytes == 2) {
      model.tensor(c.tensor).set<std::uint16_t>(c.index, static_cast<std::uint16_t>(c.bits));
    } else {
      model.tensor(c.tensor).set<std::uint8_t>(c.index, static_cast<std::uint8_t>(c.bits));
    }
    model.load();
    const TempDir dir;
    QuantizeJob job = quantize_job(model.dir().path(), dir / "out");
    job.modules = {"layers.0.ffn.experts.*"};
    expect_refused(job, ErrorCode::kBadCheckpoint, {c.tensor, c.place, "NaN or infinite"});
    for (const auto& [name, content] : files_of(job.out)) EXPECT_EQ(name, kJournalFileName);
  }
}

TEST(QuantizeRefusals, TheLargestNumbersAreCopied) {
  EditableModel model(golden_dir("flash-official"));
  model.tensor("layers.1.attn.wq_b.weight").set<std::uint8_t>(0, 0x7E);
  model.tensor("layers.1.attn.wq_b.scale").set<std::uint8_t>(0, 0xFE);
  model.tensor("embed.weight").set<std::uint16_t>(0, 0x7F7F);
  model.load();
  const TempDir dir;
  quantize_checkpoint(quantize_job(model.dir().path(), dir / "out"));
}

// Before hours of calibration.
TEST(QuantizeRefusals, ColumnsThatAreNoMultipleOfSixteen) {
  EditableModel model(golden_dir("flash-bf16"));
  model.config["moe_intermediate_size"] = 40;
  for (EditableModel::Tensor& tensor : model.tensors) {
    if (tensor.name.find("experts.") == std::string::npos) continue;
    tensor.shape = tensor.name.ends_with(".w2.weight") ? Shape{128, 40} : Shape{40, 128};
    tensor.bytes.resize(std::size_t{40} * 128 * 2);
  }
  model.load();
  const TempDir dir;
  QuantizeJob job = quantize_job(model.dir().path(), dir / "out");
  bool has_calibrated = false;
  job.calibration.emplace();
  job.calibration->measure = [&] {
    has_calibrated = true;
    return InputScales();
  };
  expect_refused(job, ErrorCode::kUnsupported, {"experts.0.w2", "40 columns", "multiple of 16"});
  EXPECT_FALSE(has_calibrated);
  EXPECT_FALSE(std::filesystem::exists(job.out));
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

// After its last shard was read and that shard has its name.
TEST(QuantizeRefusals, SourceThatChangesBeforeConfigJson) {
  const TempDir dir;
  write_sharded(golden_dir("flash-official"), dir / "in", 1, 1000);
  QuantizeJob job = quantize_job(dir / "in", dir / "out");
  const auto shard = dir / "in/model-00001-of-00001.safetensors";
  job.progress = [&](const QuantizeProgress&) {
    if (!std::filesystem::exists(dir / "out" / shard.filename())) return;
    std::filesystem::last_write_time(
        shard, std::filesystem::last_write_time(shard) + std::chrono::seconds(1));
  };
  expect_refused(job, ErrorCode::kBadCheckpoint,
                 {"model-00001-of-00001", "was changed while it was read"});
  EXPECT_EQ(files_of(job.out).count("config.json"), 0u);
  EXPECT_EQ(files_of(job.out).count(std::string(kJournalFileName)), 1u);
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

}  // namespace
}  // namespace dsv4
