// config_spellings_test.cc: a model's config in the spellings of transformers and of
// inference/config.json reads as the official one; contradictions are refused.
#include <gtest/gtest.h>

#include <functional>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/model_config.h"
#include "checkpoint/published_configs.h"

namespace dsv4 {
namespace {

using nlohmann::json;

ModelConfig parse(const json& root) { return parse_model_config(root.dump(), "dir/config.json"); }

// The draft block's ratio is not in it, and is 0 in all models.
ModelConfig flash_without_draft_ratios() {
  ModelConfig config = flash_config();
  config.draft_compress_ratios.clear();
  return config;
}

TEST(ConfigSpellings, ReadsTheSpellingOfTransformers) {
  EXPECT_EQ(parse(transformers_json()), flash_without_draft_ratios());
  json root = transformers_json();
  root.erase("qk_rope_head_dim");  // follows from partial_rotary_factor
  root.erase("rope_theta");        // and this is nested
  root.erase("compress_rope_theta");
  root.erase("compress_rates");  // the defaults
  EXPECT_EQ(parse(root), flash_without_draft_ratios());
  root["compress_rate_csa"] = 8;  // transformers before compress_rates
  root["compress_rate_hca"] = 64;
  const ModelConfig older = parse(root);
  EXPECT_EQ(older.compress_ratios[2], 8);
  EXPECT_EQ(older.compress_ratios[3], 64);
  EXPECT_EQ(older.compress_ratios[0], 0);
  // Flat rope_parameters, as they were before they were nested.
  json flat = flash_json();
  flat["rope_parameters"] = flat["rope_scaling"];
  flat.erase("rope_scaling");
  flat["rope_parameters"]["rope_type"] = "yarn";
  EXPECT_EQ(parse(flat), flash_config());
}

TEST(ConfigSpellings, ReadsTheSpellingOfInferenceConfig) {
  EXPECT_EQ(parse(inference_json()), flash_config());
  json root = inference_json();
  root["hc_mult"] = 2;
  root["norm_eps"] = 1e-20;
  root["n_mtp_layers"] = 3;
  root["dspark_block_size"] = 5;
  root["n_routed_experts_score"] = 128;
  const ModelConfig config = parse(root);
  EXPECT_EQ(config.hc_copies, 2);
  EXPECT_EQ(config.norm_eps, 1e-20);
  EXPECT_EQ(config.num_draft_blocks, 3);
  EXPECT_TRUE(config.has_dspark);
  EXPECT_EQ(config.num_scored_experts, 128);
  root["original_seq_len"] = std::int64_t{1} << 62;
  expect_error(ErrorCode::kBadCheckpoint, {"original_max_position_embeddings"},
               [&] { parse(root); });
}

TEST(ConfigSpellings, EveryKeyOfInferenceConfigIsNamedInItsSpelling) {
  for (const char* key :
       {"dim", "n_layers", "n_heads", "moe_inter_dim", "n_activated_experts", "window_size",
        "rope_factor", "original_seq_len", "route_scale", "n_hash_layers", "rope_head_dim"}) {
    json root = inference_json();
    root[key] = "x";
    expect_error(ErrorCode::kBadCheckpoint, {key}, [&] { parse(root); });
  }
}

struct BadTransformersValue {
  std::function<void(json&)> edit;
  ErrorCode code;
  const char* says;
};

TEST(ConfigSpellings, TransformersSpellingsThatContradictThemselves) {
  constexpr ErrorCode kBad = ErrorCode::kBadCheckpoint, kUnsupported = ErrorCode::kUnsupported;
  const std::vector<BadTransformersValue> cases{
      {[](json& r) { r["layer_types"].erase(42); }, kBad, "layer_types"},
      {[](json& r) { r["layer_types"][7] = "full_attention"; }, kUnsupported, "full_attention"},
      {[](json& r) { r["layer_types"][7] = 4; }, kBad, "layer_types"},
      {[](json& r) { r["layer_types"] = "moe"; }, kBad, "array of strings"},
      {[](json& r) { r.erase("layer_types"); }, kBad, "compress_ratios is missing"},
      {[](json& r) { r["compress_ratios"] = std::vector<int>(43, 4); }, kBad, "agreement"},
      {[](json& r) {
         r["compress_rates"] = {4, 128};
       },
       kBad, "compress_rates"},
      {[](json& r) { r["compress_rates"]["compressed_sparse_attention"] = 1; }, kBad,
       "compress_ratios[2]"},
      {[](json& r) { r["mlp_layer_types"][1] = "moe"; }, kUnsupported, "mlp_layer_types[2]"},
      {[](json& r) { r["mlp_layer_types"][9] = "dense"; }, kUnsupported, "dense"},
      {[](json& r) { r["num_hash_layers"] = 2; }, kBad, "num_hash_layers"},
      {[](json& r) { r["rope_theta"] = 5000; }, kBad, "10000"},
      {[](json& r) { r["rope_parameters"]["compress"]["rope_theta"] = 5; }, kBad, "160000"},
      {[](json& r) { r["rope_parameters"].erase("compress"); }, kBad, "rope_parameters.compress"},
      {[](json& r) { r["rope_parameters"]["main"]["rope_type"] = "yarn"; }, kUnsupported, "main"},
      {[](json& r) { r["rope_parameters"]["compress"]["type"] = "linear"; }, kBad, "rope_type"},
      {[](json& r) { r["rope_parameters"]["compress"]["attention_factor"] = 1.277; }, kUnsupported,
       "attention_factor"},
      {[](json& r) {
         r.erase("qk_rope_head_dim");
         r["partial_rotary_factor"] = 1.5;
       },
       kBad, "partial_rotary_factor"},
      {[](json& r) { r["mlp_bias"] = true; }, kUnsupported, "mlp_bias"}};
  for (const BadTransformersValue& bad : cases) {
    json root = transformers_json();
    bad.edit(root);
    expect_error(bad.code, {"dir/config.json", bad.says}, [&] { parse(root); });
  }
}

TEST(ConfigSpellings, RefusesTwoSpellingsOfOneKey) {
  json root = flash_json();
  root["dim"] = 4096;
  expect_error(ErrorCode::kBadCheckpoint, {"hidden_size", "dim"}, [&] { parse(root); });
}

}  // namespace
}  // namespace dsv4
