// tensor_names_test.cc: every spelling of every tensor becomes the official one, nothing else does,
// and names of schemes that we do not read are refused with what to do.
#include "checkpoint/tensor_names.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint_variants.h"
#include "checkpoint/layout.h"

namespace dsv4 {
namespace {

// One tensor of each kind: three experts stand for all.
std::vector<std::string> official_names() {
  std::vector<std::string> names;
  ModelConfig config = flash_config();
  config.num_experts = 6;
  for (const LayoutFormats& formats : {kOfficialFormats, kModelOptNvfp4Formats}) {
    for (const TensorInfo& t : expected_tensors(config, formats)) names.push_back(t.name);
  }
  return names;
}

TEST(TensorNames, OfficialOnesStay) {
  for (const std::string& name : official_names()) {
    ASSERT_EQ(official_name(name), name);
    ASSERT_EQ(official_name("model." + name), name);
    ASSERT_EQ(foreign_scheme(name), "") << name;
  }
}

TEST(TensorNames, TransformersNamesBecomeOfficial) {
  std::set<std::string> seen;
  for (const std::string& name : official_names()) {
    const std::string other = transformers_name(name);
    ASSERT_EQ(official_name(other), name) << other;
    ASSERT_EQ(foreign_scheme(official_name(other)), "") << other;
    seen.insert(other);
  }
  // The test's own renaming did what it should.
  EXPECT_EQ(seen.count("model.layers.2.self_attn.compressor.indexer.kv_proj.weight"), 1u);
  EXPECT_EQ(seen.count("model.layers.2.self_attn.compressor.indexer.scorer.weights_proj.weight"),
            1u);
  EXPECT_EQ(seen.count("model.layers.2.self_attn.compressor.gate_proj.weight"), 1u);
  EXPECT_EQ(seen.count("model.hc_head.hc_fn"), 1u);
  EXPECT_EQ(seen.count("lm_head.weight"), 1u);
}

TEST(TensorNames, MixturesBecomeOfficial) {
  const std::pair<const char*, const char*> cases[] = {
      // NeMo keeps wq_a below self_attn; transformers before 5.10 had no scorer.
      {"model.layers.3.self_attn.wq_a.weight", "layers.3.attn.wq_a.weight"},
      {"model.layers.3.self_attn.indexer.compressor.wkv.weight",
       "layers.3.attn.indexer.compressor.wkv.weight"},
      {"model.layers.3.self_attn.compressor.indexer.weights_proj.weight",
       "layers.3.attn.indexer.weights_proj.weight"},
      {"model.layers.3.self_attn.compressor.indexer.wq_b.weight",
       "layers.3.attn.indexer.wq_b.weight"},
      {"model.layers.3.self_attn.compressor.indexer.ape", "layers.3.attn.indexer.compressor.ape"},
      {"model.layers.3.mlp.experts.7.w1.weight_packed", "layers.3.ffn.experts.7.w1.weight_packed"},
      // vLLM.
      {"model.layers.3.attn.wo_a.weight_scale_inv", "layers.3.attn.wo_a.scale"},
      {"layers.3.ffn.gate.e_score_correction_bias", "layers.3.ffn.gate.bias"},
      {"model.hc_head_scale", "hc_head_scale"},
      // convert.py.
      {"model.layers.3.self_attn.q_a_layernorm.weight", "layers.3.attn.q_norm.weight"},
      {"model.layers.3.self_attn.kv_a_layernorm.weight", "layers.3.attn.kv_norm.weight"},
      {"model.layers.3.self_attn.indexer.q_b_proj.weight", "layers.3.attn.indexer.wq_b.weight"},
      {"model.mtp.0.mlp.shared_experts.down_proj.weight_scale_inv",
       "mtp.0.ffn.shared_experts.w2.scale"}};
  for (const auto& [published, official] : cases) EXPECT_EQ(official_name(published), official);
}

// A scale is one of quantisation only by its place; a gate_proj is three things by its parent.
TEST(TensorNames, TheParentDecides) {
  EXPECT_EQ(official_name("layers.0.ffn_hc.scale"), "layers.0.hc_ffn_scale");
  EXPECT_EQ(official_name("layers.0.self_attn.compressor.gate_proj.weight"),
            "layers.0.attn.compressor.wgate.weight");
  EXPECT_EQ(official_name("layers.0.mlp.experts.0.gate_proj.weight"),
            "layers.0.ffn.experts.0.w1.weight");
  EXPECT_EQ(official_name("layers.0.self_attn.kv_norm.weight"), "layers.0.attn.kv_norm.weight");
  EXPECT_EQ(official_name("layers.0.self_attn.compressor.kv_norm.weight"),
            "layers.0.attn.compressor.norm.weight");
  EXPECT_EQ(official_name("model.norm.weight"), "norm.weight");
}

TEST(TensorNames, PartsOfSegmentsAndOddNamesStay) {
  for (const char* name :
       {"", ".", "..", "model.", "model..", "a.", ".embed.weight", "xmodel.norm.weight",
        "layers.0.attn.compressor.wkv2.weight", "my_embed_tokens.weight", "embed_tokens2.weight",
        "layers.0.sinks", "hc_head.fn", "hc_head.hc_fnx",
        "layers.0.ffn.experts.0.w1.weight_scale"}) {
    EXPECT_EQ(official_name(name), name);
  }
  EXPECT_EQ(official_name("model.model.norm.weight"), "model.norm.weight");  // one prefix
}

TEST(TensorNames, ForeignSchemesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"layers.0.attn.fused_wqa_wkv.weight", "wq_a and wkv"},
      {"model.layers.0.attn.compressor.fused_wkv_wgate.weight", "vLLM"},
      {"layers.0.ffn.experts.w13_weight", "vLLM"},
      {"layers.0.ffn.shared_experts.gate_up_proj.weight_scale_inv", "vLLM"},
      {"model.layers.0.mlp.experts.gate_up_proj", "transformers"},
      {"model.layers.0.mlp.experts.down_proj", "transformers"},
      {"model.layers.0.mlp.switch_mlp.gate_proj.weight", "MLX"},
      {"model.layers.0.self_attn.wq_a.biases", "MLX"},
      {"vision.blocks.0.norm1.weight", "Vision"},
      {"aligner.w1.weight", "Vision"},
      {"layers.3.ffn.gate.bias_vl", "Vision"},
      {"layers.1.engram.wkv.weight", "V4.1"},
      {"blk.0.attn_q_a.weight", "GGUF"},
      {"token_embd.weight", "GGUF"}};
  for (const auto& [name, says] : cases) {
    EXPECT_NE(foreign_scheme(official_name(name)).find(says), std::string_view::npos) << name;
  }
  EXPECT_EQ(foreign_scheme("layers.0.attn.fused_wqa_wkv2.weight"), "");
  EXPECT_EQ(foreign_scheme("layers.0.xengram.weight"), "");
}

TEST(TensorNames, DraftCopies) {
  for (const char* name : {"mtp.0.emb.tok_emb.weight", "mtp.2.emb.tok_emb.weight",
                           "mtp.0.embed.weight", "mtp.0.head.weight"}) {
    EXPECT_TRUE(is_draft_copy(name)) << name;
  }
  EXPECT_TRUE(is_draft_copy(official_name("model.mtp.0.embed_tokens.weight")));
  for (const char* name : {"head.weight", "embed.weight", "mtp.0.norm.weight", "mtp.", "mtp.0",
                           "mtp.2.markov_head.markov_w1.weight", "mtp.0.xhead.weight"}) {
    EXPECT_FALSE(is_draft_copy(name)) << name;
  }
}

TEST(TensorNames, TwoSpellingsOfOneTensorAreRefused) {
  EditableModel model(golden_dir("flash-bf16"));
  model.add("model.layers.0.self_attn.q_a_proj.weight", DType::kBF16, {128, 128});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"layers.0.attn.wq_a.weight", "model.layers.0.self_attn.q_a_proj.weight"});
}

// Flash's 69,187 tensors under other names: found as quickly, reported in the file's words.
TEST(TensorNames, WholeFlashInTransformersNamesBinds) {
  std::vector<TensorInfo> tensors = expected_tensors(flash_config(), kModelOptNvfp4Formats);
  for (TensorInfo& t : tensors) {
    const bool is_expert = t.name.find(".experts.") != std::string::npos;
    t.name = is_expert ? "model." + t.name : transformers_name(t.name);
  }
  const auto store =
      std::make_shared<const TensorStore>(TensorStore::from_headers(std::move(tensors)));
  const ModelWeights weights = bind_weights(flash_config(), store);
  EXPECT_TRUE(weights.report.unused.empty());
  EXPECT_EQ(weights.report.layers[5].name, "layers.5");
  EXPECT_EQ(weights.report.layers[5].expert_formats, "NVFP4");
}

}  // namespace
}  // namespace dsv4
