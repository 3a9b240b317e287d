// bind_pruned_test.cc: models whose layers differ in their number of experts (REAP, REAM): the
// tensors decide, what is inconsistent is refused.
#include <gtest/gtest.h>

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint_variants.h"
#include "checkpoint/layout.h"

namespace dsv4 {
namespace {

// The golden model routes layers 0 and 1 by hash, 2 and 3 by score, with 6 experts and 2 a token.
TEST(BindPruned, EveryLayerHasItsOwnNumberOfExperts) {
  EditableModel model(golden_dir("flash-nvfp4"));
  const auto whole = model.load();
  prune_layer(model, "layers.2", 4);
  prune_layer(model, "layers.3", 2);  // experts_per_token: the fewest
  const auto weights = model.load();
  const int counts[] = {6, 6, 4, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    const LayerWeights& layer = weights->layers[i];
    EXPECT_EQ(layer.num_experts, counts[i]);
    EXPECT_EQ(weights->report.layers[i].num_experts, counts[i]);
    ASSERT_EQ(layer.experts.gate.size(), static_cast<std::size_t>(counts[i]));
    EXPECT_EQ(layer.experts.gate_up_input_scales.size(), static_cast<std::size_t>(counts[i]));
    EXPECT_EQ(layer.router.weight.rows, counts[i]);
    for (std::size_t e = 0; e < layer.experts.gate.size(); ++e) {
      EXPECT_EQ(decoded_row(layer.experts.down[e], 9),
                decoded_row(whole->layers[i].experts.down[e], 9));
    }
  }
  EXPECT_EQ(weights->layers[3].router.bias[1], whole->layers[3].router.bias[1]);
  EXPECT_EQ(weights->config.num_experts, 6);
  // What config.json does not say, and that the draft block is larger than what it drafts for.
  ASSERT_EQ(weights->report.notes.size(), 2u);
  EXPECT_NE(weights->report.notes[0].find("layers.2 has 4 instead of 6"), std::string::npos);
  EXPECT_NE(weights->report.notes[1].find("6 experts and the layers have at most 4"),
            std::string::npos);
}

TEST(BindPruned, TheKeyOfPrunedModelsIsRead) {
  EditableModel model(golden_dir("flash-bf16"));
  for (const char* layer : {"layers.2", "layers.3", "mtp.0"}) prune_layer(model, layer, 3);
  model.config["n_routed_experts_score"] = 3;
  const auto weights = model.load();
  EXPECT_EQ(weights->layers[0].num_experts, 6);
  EXPECT_EQ(weights->layers[3].num_experts, 3);
  EXPECT_EQ(weights->draft->layer.num_experts, 3);
  EXPECT_TRUE(weights->report.notes.empty());
  model.config["n_routed_experts_score"] = 4;  // a stale key
  EXPECT_EQ(model.load()->layers[3].num_experts, 3);
  EXPECT_EQ(model.load()->report.notes.size(), 1u);
  for (const int bad : {1, -1, 65537}) {
    model.config["n_routed_experts_score"] = bad;
    expect_refused(model, ErrorCode::kBadCheckpoint, {"n_routed_experts_score"});
  }
}

// Metadata may say the original number everywhere, or a number below that of the hash layers.
TEST(BindPruned, TheConfigMayBeWrongEitherWay) {
  EditableModel model(golden_dir("flash-bf16"));
  for (const int by_config : {2, 5, 7, 256}) {
    model.config["n_routed_experts"] = by_config;
    const auto weights = model.load();
    EXPECT_EQ(weights->layers[0].num_experts, 6);
    EXPECT_EQ(weights->config.num_experts, 6) << "the largest of any layer";
    EXPECT_EQ(weights->report.notes.size(), 1u);
  }
}

// Pruning must not leave a hash table pointing at experts that are gone.
TEST(BindPruned, HashTablesAreCheckedAgainstTheirOwnLayer) {
  EditableModel model(golden_dir("flash-bf16"));
  prune_layer(model, "layers.1", 5);
  auto& table = model.tensor("layers.1.ffn.gate.tid2eid");
  for (std::size_t i = 0; i < 512; ++i)
    table.set<std::int64_t>(i, static_cast<std::int64_t>(i % 5));
  EXPECT_EQ(model.load()->layers[1].num_experts, 5);
  model.tensor("layers.1.ffn.gate.tid2eid").set<std::int64_t>(100, 5);
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"layers.1.ffn.gate.tid2eid", "token 50", "expert 5", "0 to 4"});
  // The other hash layer still has six.
  model.tensor("layers.1.ffn.gate.tid2eid").set<std::int64_t>(100, 4);
  model.tensor("layers.0.ffn.gate.tid2eid").set<std::int64_t>(100, 5);
  EXPECT_NO_THROW(model.load());
}

TEST(BindPruned, RouterAndExpertsMustAgree) {
  EditableModel fewer(golden_dir("flash-bf16"));
  fewer.remove_prefix("layers.2.ffn.experts.5.");
  expect_refused(fewer, ErrorCode::kBadCheckpoint, {"3 missing", "layers.2.ffn.experts.5.w1"});
  EditableModel more(golden_dir("flash-bf16"));
  prune_layer(more, "layers.2", 4);
  for (const char* w : {"w1", "w2", "w3"}) {
    more.add("layers.2.ffn.experts.4." + std::string(w) + ".weight", DType::kBF16, {128, 128});
  }
  expect_refused(more, ErrorCode::kBadCheckpoint, {"3 unknown", "layers.2.ffn.experts.4.w1"});
  EditableModel bias(golden_dir("flash-bf16"));
  prune_layer(bias, "layers.2", 4);
  bias.retype("layers.2.ffn.gate.bias", DType::kF32, {6});
  expect_refused(bias, ErrorCode::kBadCheckpoint, {"layers.2.ffn.gate.bias", "[6]", "[4]"});
}

// Fewer experts than a token takes, or more than the file can have tensors for: the router's shape
// is refused before anything is allocated for them.
TEST(BindPruned, ImpossibleCountsAreRefused) {
  EditableModel model(golden_dir("flash-bf16"));
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{5000}}) {
    model.retype("layers.2.ffn.gate.weight", DType::kBF16, {rows, 128});
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {"layers.2.ffn.gate.weight", Shape{rows, 128}.to_string(), "[6, 128]"});
  }
  model.retype("layers.2.ffn.gate.weight", DType::kBF16, {6 * 128});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.2.ffn.gate.weight", "[768]"});
  // Header-only stores cost an attacker nothing: 2^40 rows.
  std::vector<TensorInfo> tensors = expected_tensors(flash_config(), kOfficialFormats);
  for (TensorInfo& t : tensors) {
    if (t.name == "layers.9.ffn.gate.weight") t.shape = {std::int64_t{1} << 40, 4096};
  }
  const auto store =
      std::make_shared<const TensorStore>(TensorStore::from_headers(std::move(tensors)));
  expect_error(ErrorCode::kBadCheckpoint, {"layers.9.ffn.gate.weight", "[256, 4096]"},
               [&] { bind_weights(flash_config(), store); });
}

// A pruned layout by config alone: what a writer would make.
TEST(BindPruned, LayoutFollowsTheKey) {
  ModelConfig config = flash_config();
  config.num_scored_experts = 128;
  const auto store = std::make_shared<const TensorStore>(
      TensorStore::from_headers(expected_tensors(config, kOfficialFormats)));
  const ModelWeights weights = bind_weights(config, store);
  EXPECT_EQ(weights.layers[2].num_experts, 256);
  EXPECT_EQ(weights.layers[3].num_experts, 128);
  EXPECT_EQ(weights.layers[42].experts.down.size(), 128u);
  EXPECT_TRUE(weights.report.unused.empty());
}

}  // namespace
}  // namespace dsv4
