// Other publishers' forms of a checkpoint compute the same logits: renamed, repacked, pruned, and
// with linears in NVFP4 that official models keep in FP8 or BF16. What they bind to is judged by
// checkpoint/bind_variants_test.cc.
#include <gtest/gtest.h>

#include <cstring>

#include "backends/backends.h"
#include "checkpoint/checkpoint_variants.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "model/model.h"

namespace dsv4 {
namespace {

// Of every token of one session, in one step.
std::vector<float> logits_of(std::shared_ptr<const ModelWeights> weights,
                             Activations activations = Activations::kA16) {
  const auto backend = open_backend("reference");
  Model model(std::move(weights), *backend,
              {.activations = activations, .max_step_tokens = 40, .page_rows = 2});
  const auto cache = model.make_cache(64, 1);
  SequenceCache sequence(*cache);
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> rows;
  for (int i = 0; i < 37; ++i) {
    tokens.push_back((i * 53 + 7) % 256);
    rows.push_back(i);
  }
  const StepSequence sequences[] = {{&sequence, 0, 37}};
  model.forward(*cache, {tokens, sequences, rows});
  const MatrixView logits = model.logits();
  std::vector<float> values(static_cast<std::size_t>(logits.rows * logits.cols));
  std::memcpy(values.data(), logits.data, values.size() * sizeof(float));
  return values;
}

void expect_same_bits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0);
  for (const float value : want) ASSERT_TRUE(std::isfinite(value));
}

TEST(CheckpointForms, RenamedAndRepackedModelsComputeTheSame) {
  EditableModel model(golden_dir("flash-nvfp4"));
  make_scalars_powers_of_two(model);
  const auto want = logits_of(model.load(), Activations::kA4);
  EditableModel other(golden_dir("flash-nvfp4"));
  make_scalars_powers_of_two(other);
  to_compressed_tensors(other, {1});
  to_number_scales(other, "weight_scale", DType::kBF16);
  rename_all(other, transformers_name);
  expect_same_bits(logits_of(other.load(), Activations::kA4), want);
}

// A pruned layer is the whole layer whose other experts are never chosen: by score a bias keeps
// them out, and it does not enter their weights.
TEST(CheckpointForms, PrunedLayersComputeLikeWholeOnesThatAvoidTheRest) {
  for (const Activations activations : {Activations::kA16, Activations::kA4}) {
    EditableModel whole(golden_dir("flash-nvfp4"));
    EditableModel pruned(golden_dir("flash-nvfp4"));
    const auto unbiased = logits_of(whole.load(), activations);
    const std::pair<const char*, int> cuts[] = {{"layers.2", 4}, {"layers.3", 3}};
    for (const auto& [layer, keep] : cuts) {
      prune_layer(pruned, layer, keep);
      auto& bias = whole.tensor(std::string(layer) + ".ffn.gate.bias");
      for (int e = keep; e < 6; ++e) bias.set<float>(static_cast<std::size_t>(e), -1e30f);
    }
    const auto want = logits_of(whole.load(), activations);
    EXPECT_NE(want, unbiased) << "the experts mattered";
    expect_same_bits(logits_of(pruned.load(), activations), want);
  }
}

// config.json says fewer experts than the hash layers have: buffers follow the tensors.
TEST(CheckpointForms, LayersMayHaveMoreExpertsThanTheConfigSays) {
  EditableModel model(golden_dir("flash-bf16"));
  const auto want = logits_of(model.load());
  model.config["n_routed_experts"] = 2;
  expect_same_bits(logits_of(model.load()), want);
}

// The same values in NVFP4 and as FP32: every op takes its weights in either.
TEST(CheckpointForms, LinearsInNvfp4ComputeWhatTheirValuesDo) {
  EditableModel packed(golden_dir("flash-nvfp4"));
  const std::pair<const char*, Shape> linears[] = {
      {"head", packed.tensor("head.weight").shape},
      {"layers.1.attn.wq_a", packed.tensor("layers.1.attn.wq_a.weight").shape},
      {"layers.1.attn.wq_b", packed.tensor("layers.1.attn.wq_b.weight").shape},
      {"layers.1.attn.wkv", packed.tensor("layers.1.attn.wkv.weight").shape},
      {"layers.2.attn.wo_a", packed.tensor("layers.2.attn.wo_a.weight").shape},
      {"layers.2.attn.wo_b", packed.tensor("layers.2.attn.wo_b.weight").shape},
      {"layers.1.attn.compressor.wkv", packed.tensor("layers.1.attn.compressor.wkv.weight").shape},
      {"layers.1.attn.indexer.wq_b", packed.tensor("layers.1.attn.indexer.wq_b.weight").shape},
      {"layers.1.attn.indexer.weights_proj",
       packed.tensor("layers.1.attn.indexer.weights_proj.weight").shape},
      {"layers.3.ffn.shared_experts.w1",
       packed.tensor("layers.3.ffn.shared_experts.w1.weight").shape},
      {"layers.3.ffn.shared_experts.w2",
       packed.tensor("layers.3.ffn.shared_experts.w2.weight").shape}};
  EditableModel plain(golden_dir("flash-nvfp4"));
  for (const auto& [name, shape] : linears) {
    put_nvfp4(packed, name, shape, kModelOptNames, 0x1p-8f);
    std::vector<float> values(static_cast<std::size_t>(shape.num_elements()));
    MatrixView view{packed.tensor(std::string(name) + ".weight").bytes.data(), Format::kNvfp4,
                    shape[0], shape[1], shape[1]};
    view.block_scales = packed.tensor(std::string(name) + ".weight_scale").bytes.data();
    view.scale_dtype = DType::kE4M3;
    view.block_cols = 16;
    view.scale_stride = shape[1] / 16;
    const float global_scale = 0x1p-8f;
    view.global_scales = &global_scale;
    for (std::int64_t r = 0; r < shape[0]; ++r) {
      decode_matrix_row(view, r, values.data() + r * shape[1]);
    }
    std::erase_if(plain.tensors, [scale = std::string(name) + ".scale"](const auto& t) {
      return t.name == scale;
    });
    plain.retype(std::string(name) + ".weight", DType::kF32, shape);
    std::memcpy(plain.tensor(std::string(name) + ".weight").bytes.data(), values.data(),
                values.size() * sizeof(float));
  }
  expect_same_bits(logits_of(packed.load()), logits_of(plain.load()));
}

}  // namespace
}  // namespace dsv4
