// shard_run_test.cc: how a shard is cut into pieces changes neither its bytes nor its tallies, and
// what memory a run may have decides the pieces.
#include "quantizer/shard_run.h"

#include <gtest/gtest.h>

#include "backends/backends.h"
#include "base/error.h"
#include "checkpoint/checkpoint_test_files.h"

namespace dsv4 {
namespace {

class CutShard : public testing::Test {
 protected:
  void plan_model(const std::filesystem::path& model, const std::vector<std::string>& modules) {
    weights_ = load_checkpoint(model);
    names_ = std::make_unique<NamedTensors>(*weights_->store);
    plan_ = make_plan(*weights_, *names_, {.modules = modules});
  }
  // The first shard; tells the bytes that it advanced by.
  FinishedShard make(const std::string& folder, const MemoryBudget& budget) {
    const auto backend = open_backend("cpu", 1);
    ThreadPool pool(1);
    const EncodingOptions encoding;
    ShardRun run(*backend, pool, plan_, *weights_->store, encoding, budget);
    std::filesystem::create_directory(dir_ / folder);
    std::int64_t advanced = 0;
    const FinishedShard finished = run.make(
        plan_.shards.at(0), dir_ / folder, [&](std::int64_t bytes) { advanced += bytes; }, [] {});
    EXPECT_EQ(advanced, plan_.shards.at(0).source_bytes);
    return finished;
  }

  TempDir dir_;
  std::shared_ptr<const ModelWeights> weights_;
  std::unique_ptr<NamedTensors> names_;
  QuantizePlan plan_;
};

TEST_F(CutShard, PiecesDecideNothing) {
  for (const char* model : {"flash-bf16", "flash-official", "flash-nvfp4"}) {
    plan_model(golden_dir(model), {"all"});
    const std::string name(model);
    const FinishedShard whole = make(name + "-whole", {1 << 20, 1 << 22});
    for (const MemoryBudget& budget : {MemoryBudget{1000, 1}, MemoryBudget{4097, 3 * 128}}) {
      const FinishedShard cut = make(name + std::to_string(budget.copy_bytes), budget);
      EXPECT_EQ(cut.checksum, whole.checksum) << model;
      ASSERT_EQ(cut.matrices.size(), whole.matrices.size());
      for (std::size_t i = 0; i < cut.matrices.size(); ++i) {
        EXPECT_EQ(cut.matrices[i].name, whole.matrices[i].name);
        EXPECT_EQ(cut.matrices[i].tally, whole.matrices[i].tally) << cut.matrices[i].name;
      }
    }
  }
}

TEST_F(CutShard, BudgetGrowsWithTheMemoryUpToALimit) {
  plan_model(golden_dir("flash-official"), {"all"});
  const TensorStore& store = *weights_->store;
  const std::int64_t least = min_memory_bytes(plan_, store);
  EXPECT_GE(least, min_binding_bytes(store));
  EXPECT_NO_THROW(require_memory(least, least));
  expect_error(ErrorCode::kBadRequest, {"max-memory", "MiB"},
               [&] { require_memory(least, least - 1); });
  const MemoryBudget small = make_budget(plan_, store, least);
  const MemoryBudget larger = make_budget(plan_, store, least + (1 << 20));
  const MemoryBudget large = make_budget(plan_, store, std::int64_t{1} << 40);
  EXPECT_GE(small.chunk_values, 1);
  EXPECT_LT(small.chunk_values, larger.chunk_values);
  EXPECT_LT(larger.chunk_values, large.chunk_values);
  EXPECT_LT(large.chunk_values, std::int64_t{1} << 24);
  EXPECT_LT(large.copy_bytes, std::int64_t{1} << 24);
}

}  // namespace
}  // namespace dsv4
