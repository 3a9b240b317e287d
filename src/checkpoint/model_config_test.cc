// model_config_test.cc: published configs are read exactly; a bad one is refused by file, key,
// value and requirement.
#include "checkpoint/model_config.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/published_configs.h"

namespace dsv4 {
namespace {

using nlohmann::json;

ModelConfig parse(const json& root) { return parse_model_config(root.dump(), "dir/config.json"); }

TEST(ModelConfig, PresetsAreThePublishedValues) {
  EXPECT_EQ(parse(flash_json()), flash_config());
  EXPECT_EQ(parse(pro_json()), pro_config());
  check(flash_config(), "flash");
  check(pro_config(), "pro");
}

TEST(ModelConfig, ReadsTheBundledModels) {
  const ModelConfig nano = load_model_config(nano_dir());
  EXPECT_EQ(nano.num_layers, 6);
  EXPECT_EQ(nano.expert_inter, 128);
  EXPECT_EQ(nano.compress_ratios, (std::vector<int>{0, 4, 128, 4, 128, 4}));
  EXPECT_EQ(nano.draft_compress_ratios, (std::vector<int>{0}));
  EXPECT_EQ(nano.yarn, (Yarn{4, 1024, 32, 1}));
  EXPECT_EQ(load_model_config(golden_dir("flash-nvfp4")).swiglu_limit, 2.0);
  EXPECT_EQ(load_model_config(golden_dir("flash-official")).head_dim, 512);
}

TEST(ModelConfig, ExpertDtypeAndUnknownKeysAreIgnored) {
  json root = flash_json();
  for (const char* value : {"fp4", "fp8", "nonsense"}) {
    root["expert_dtype"] = value;
    EXPECT_EQ(parse(root), flash_config());
  }
  root["some_new_key"] = json::array({1, 2});
  EXPECT_EQ(parse(root), flash_config());
}

TEST(ModelConfig, EveryRequiredKeyIsMissedByName) {
  const json whole = flash_json();
  for (const char* key : {"model_type",
                          "vocab_size",
                          "bos_token_id",
                          "eos_token_id",
                          "head_dim",
                          "qk_rope_head_dim",
                          "o_lora_rank",
                          "hc_mult",
                          "hc_sinkhorn_iters",
                          "hc_eps",
                          "rms_norm_eps",
                          "index_head_dim",
                          "index_n_heads",
                          "sliding_window",
                          "swiglu_limit",
                          "n_shared_experts",
                          "num_experts_per_tok",
                          "num_hash_layers",
                          "scoring_func",
                          "num_nextn_predict_layers",
                          "max_position_embeddings",
                          "rope_theta",
                          "compress_rope_theta",
                          "rope_scaling",
                          "hidden_size",
                          "num_hidden_layers",
                          "num_attention_heads",
                          "q_lora_rank",
                          "o_groups",
                          "n_routed_experts",
                          "moe_intermediate_size",
                          "index_topk",
                          "routed_scaling_factor",
                          "compress_ratios"}) {
    json root = whole;
    root.erase(key);
    expect_error(ErrorCode::kBadCheckpoint, {"dir/config.json", key, "missing"},
                 [&] { parse(root); });
    root[key] = nullptr;
    expect_error(ErrorCode::kBadCheckpoint, {key, "missing"}, [&] { parse(root); });
    root[key] = json::object({{"a", true}});
    expect_error(ErrorCode::kBadCheckpoint, {key}, [&] { parse(root); });
  }
  for (const char* key :
       {"type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow"}) {
    json root = whole;
    root["rope_scaling"].erase(key);
    expect_error(ErrorCode::kBadCheckpoint, {"rope_scaling.", key, "missing"},
                 [&] { parse(root); });
  }
}

// A value that is refused, and what the message must say beside the key.
struct BadValue {
  const char* key;
  json value;
  const char* says;
};

TEST(ModelConfig, RefusesBadValuesByKeyAndRequirement) {
  const std::vector<BadValue> cases{
      {"hidden_size", 0, "from 1 to"},
      {"hidden_size", -1, "-1"},
      {"hidden_size", 4096.0, "integer"},
      {"hidden_size", "4096", "integer"},
      {"hidden_size", (1 << 20) + 1, "1048576"},
      {"hidden_size", 18446744073709551615u, "integer"},
      {"num_hidden_layers", 1025, "from 1 to 1024"},
      {"num_hidden_layers", 2147483648, "32-bit"},
      {"num_hidden_layers", -3, "-3"},
      {"vocab_size", 0, "from 1"},
      {"bos_token_id", 129280, "129279"},
      {"eos_token_id", -1, "from 0"},
      {"eos_token_id", json::array(), "not empty"},
      {"eos_token_id", {1, 129280}, "129280"},
      {"o_groups", 7, "64"},
      {"o_groups", 0, "from 1"},
      {"qk_rope_head_dim", 63, "even"},
      {"qk_rope_head_dim", 512, "above qk_rope_head_dim"},
      {"qk_rope_head_dim", 130, "index_head_dim"},
      {"index_head_dim", 96, "power of two"},
      {"index_head_dim", 16, "from 32"},
      {"num_experts_per_tok", 257, "at most n_routed_experts"},
      {"num_experts_per_tok", 0, "from 1"},
      {"n_routed_experts", 6097, "262144"},  // 43 * 6097 is the first above
      {"n_shared_experts", 2, "from 1 to 1"},
      {"num_hash_layers", 44, "from 0 to 43"},
      {"num_nextn_predict_layers", 2, "from 0 to 1"},
      {"hc_mult", 0, "from 1"},
      {"hc_sinkhorn_iters", 0, "from 1"},
      {"hc_eps", 0, "above 0"},
      {"rms_norm_eps", 0.0, "above 0"},
      {"rms_norm_eps", "1e-6", "number"},
      {"rms_norm_eps", 1e-300, "FP32"},
      {"rms_norm_eps", 7e-46, "FP32"},  // half of the least FP32 number rounds to 0
      {"hc_eps", 1e-46, "FP32"},
      {"routed_scaling_factor", 1e-300, "FP32"},
      {"routed_scaling_factor", 1e39, "at most"},
      {"swiglu_limit", 1e-50, "FP32"},
      {"swiglu_limit", 1e300, "to"},
      {"routed_scaling_factor", 0, "above 0"},
      {"swiglu_limit", -1, "from 0"},
      {"rope_theta", 1, "above 1"},
      {"compress_rope_theta", -5, "above 1"},
      {"sliding_window", 0, "from 1"},
      {"max_position_embeddings", 0, "from 1"},
      {"compress_ratios", {0, 0, 4}, "43"},
      {"compress_ratios", {0, "4"}, "integers"},
      {"compress_ratios", 4, "array"},
      {"compress_ratios", {{4}}, "[[4]]; it must be an array of 32-bit integers"},
      {"num_hidden_layers", {4}, "[4]; it must be a 32-bit integer"},
      {"quantization_config", {{"weight_block_size", "128"}}, "array"},
      {"tie_word_embeddings", 0, "true or false"},
  };
  for (const BadValue& bad : cases) {
    json root = flash_json();
    root[bad.key] = bad.value;
    SCOPED_TRACE(bad.key + (" = " + bad.value.dump()));
    expect_error(ErrorCode::kBadCheckpoint, {"dir/config.json", bad.key, bad.says},
                 [&] { parse(root); });
  }
}

TEST(ModelConfig, RefusesTextThatIsNotOneObjectShortly) {
  for (const std::string& text : {std::string(), std::string("{"), std::string("{}\0x", 4),
                                  std::string("{\"a\": \"\xFF\"}"), std::string("{\"a\": 1e999}"),
                                  std::string(50, '['), "{\"a\": " + std::string(100'000, 'x')}) {
    SCOPED_TRACE(text.substr(0, 20));
    expect_error(ErrorCode::kBadCheckpoint, {"dir/config.json"},
                 [&] { parse_model_config(text, "dir/config.json"); });
  }
}

TEST(ModelConfig, AcceptsTheLastGoodValueBeforeEachBound) {
  const std::vector<std::pair<const char*, json>> cases{{"hidden_size", 1},
                                                        {"hidden_size", 1 << 20},
                                                        {"bos_token_id", 129279},
                                                        {"eos_token_id", {1, 2}},
                                                        {"qk_rope_head_dim", 128},
                                                        {"index_head_dim", 64},
                                                        {"num_experts_per_tok", 256},
                                                        {"n_routed_experts", 6096},
                                                        {"num_hash_layers", 43},
                                                        {"num_hash_layers", 0},
                                                        {"num_nextn_predict_layers", 0},
                                                        {"rms_norm_eps", 1e-20},
                                                        {"rms_norm_eps", 1.4e-45},
                                                        {"swiglu_limit", 1e-45},
                                                        {"swiglu_limit", 0},
                                                        {"sliding_window", 1},
                                                        {"o_groups", 64}};
  for (const auto& [key, value] : cases) {
    json root = flash_json();
    root[key] = value;
    EXPECT_NO_THROW(parse(root)) << key << " = " << value.dump();
  }
}

TEST(ModelConfig, CompressRatiosAtTheirBounds) {
  json root = flash_json();
  for (int good : {0, 2, 4, 5, 128, 65536}) {
    root["compress_ratios"][42] = good;
    EXPECT_EQ(parse(root).compress_ratios.back(), good);
  }
  for (int bad : {-4, 1, 65537}) {
    root["compress_ratios"][42] = bad;
    expect_error(ErrorCode::kBadCheckpoint, {"compress_ratios[42]", std::to_string(bad)},
                 [&] { parse(root); });
  }
  root = flash_json();
  root["compress_ratios"][43] = 4;  // of the draft block
  expect_error(ErrorCode::kBadCheckpoint, {"compress_ratios[43]", "draft"}, [&] { parse(root); });
}

TEST(ModelConfig, CompressRatiosAsLongAsTheLayersOrLonger) {
  json root = flash_json();
  auto ratios = root["compress_ratios"].get<std::vector<int>>();
  ratios.resize(43);
  root["compress_ratios"] = ratios;
  EXPECT_TRUE(parse(root).draft_compress_ratios.empty());
  ratios.resize(42);
  root["compress_ratios"] = ratios;
  expect_error(ErrorCode::kBadCheckpoint, {"compress_ratios", "42", "43"}, [&] { parse(root); });
  ratios.resize(46);  // the DSpark releases
  for (std::size_t i = 42; i < 46; ++i) ratios[i] = i == 42 ? 4 : 0;
  root["compress_ratios"] = ratios;
  EXPECT_EQ(parse(root).draft_compress_ratios, (std::vector<int>{0, 0, 0}));
}

TEST(ModelConfig, DsparkIsRecognisedByItsKeys) {
  json root = flash_json();
  EXPECT_FALSE(parse(root).has_dspark);
  root["dspark_block_size"] = 5;
  EXPECT_TRUE(parse(root).has_dspark);
  root["num_nextn_predict_layers"] = 3;
  EXPECT_EQ(parse(root).num_draft_blocks, 3);
}

struct Variant {
  std::function<void(json&)> edit;
  const char* says;
};

TEST(ModelConfig, OtherVariantsAreRefusedByName) {
  const std::vector<Variant> variants{
      {[](json& r) { r["model_type"] = "deepseek_v41"; }, "V4.1"},
      {[](json& r) { r["text_config"] = json::object(); }, "V4.1"},
      {[](json& r) { r["vision_n_layers"] = 24; }, "Vision"},
      {[](json& r) { r["model_type"] = "deepseek_v3"; }, "deepseek_v3"},
      {[](json& r) { r["quantization_config"]["quant_method"] = "quark"; }, "quark"},
      {[](json& r) {
         r["quantization"] = {{"group_size", 64}, {"bits", 4}};
       },
       "MLX"},
      {[](json& r) {
         r["quantization_config"]["weight_block_size"] = {32, 32};
       },
       "[128, 128]"},
      {[](json& r) { r["rope_scaling"]["type"] = "linear"; }, "linear"},
      {[](json& r) { r["hidden_act"] = "gelu"; }, "gelu"},
      {[](json& r) { r["scoring_func"] = "tanh"; }, "tanh"},
      {[](json& r) { r["norm_topk_prob"] = false; }, "norm_topk_prob"},
      {[](json& r) { r["tie_word_embeddings"] = true; }, "tie_word_embeddings"},
      {[](json& r) { r["num_key_value_heads"] = 8; }, "num_key_value_heads"},
      {[](json& r) {
         r = {{"dim", 5120}, {"n_layers", 40}, {"engram_layer_ids", {1, 14}}, {"vision_dim", 1}};
       },
       "V4.1"},
      {[](json& r) {
         r = {{"dim", 4096}, {"n_layers", 43}, {"vision_n_layers", 24}};
       },
       "Vision"},
  };
  for (const Variant& variant : variants) {
    json root = flash_json();
    variant.edit(root);
    expect_error(ErrorCode::kUnsupported, {"dir/config.json", variant.says}, [&] { parse(root); });
  }
}

TEST(ModelConfig, SchemesThatTheTensorsTellApartAreAccepted) {
  for (const char* method : {"fp8", "modelopt", "modelopt_fp4", "compressed-tensors"}) {
    json root = flash_json();
    root["quantization_config"] = {{"quant_method", method}};
    EXPECT_EQ(parse(root), flash_config()) << method;
  }
}

TEST(ModelConfig, ScoringFunctions) {
  json root = flash_json();
  root["scoring_func"] = "sigmoid";
  EXPECT_EQ(parse(root).scoring, Scoring::kSigmoid);
  root["scoring_func"] = "softmax";
  EXPECT_EQ(parse(root).scoring, Scoring::kSoftmax);
  root["norm_topk_prob"] = false;  // softmax is never renormalised
  EXPECT_NO_THROW(parse(root));
}

std::string nested(int depth) {
  std::string text = flash_json().dump();
  text.pop_back();
  return text + ",\"x\":" + std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']') + "}";
}

TEST(ModelConfig, HostileJsonIsRefused) {
  const auto parse_text = [](const std::string& text) { parse_model_config(text, "c.json"); };
  for (const std::string text : {"", "{", "[]", "3", "{\"a\":1e999}", "\xff{}", "{} {}", "nul"}) {
    expect_error(ErrorCode::kBadCheckpoint, {"c.json"}, [&] { parse_text(text); });
  }
  EXPECT_NO_THROW(parse_text(nested(31)));
  expect_error(ErrorCode::kBadCheckpoint, {"nested"}, [&] { parse_text(nested(32)); });
  expect_error(ErrorCode::kBadCheckpoint, {"nested"}, [&] { parse_text(nested(1'000'000)); });
  std::string twice = flash_json().dump();
  twice.pop_back();
  expect_error(ErrorCode::kBadCheckpoint, {"hidden_size", "twice"},
               [&] { parse_text(twice + ",\"hidden_size\":1}"); });
  // Text of the file in a message is cut and escaped.
  json root = flash_json();
  root["model_type"] = std::string(100000, 'a') + "\n\x1b[2J";
  expect_error(ErrorCode::kUnsupported, {"aaa..."}, [&] { parse(root); });
}

TEST(ModelConfig, DamagedTextIsReadOrRefusedNeverWorse) {
  const std::string whole = flash_json().dump();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_model_config(whole.substr(0, size), "c.json"), Error) << size;
  }
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char c : {'0', '9', '-', '"', ',', '}', '[', '\0', '\xff'}) {
      std::string text = whole;
      text[i] = c;
      try {
        check(parse_model_config(text, "c.json"), "again");
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  // NUL and FF are no JSON anywhere.
  EXPECT_GE(refused, 2 * static_cast<int>(whole.size()));
}

TEST(ModelConfig, MissingFileIsNotFound) {
  const TempDir dir;
  expect_error(ErrorCode::kNotFound, {"config.json"}, [&] { load_model_config(dir.path()); });
  // What the system does not let us see may be a directory.
  std::filesystem::create_symlink("loop", dir / "loop");
  expect_error(ErrorCode::kIo, {(dir / "loop").string(), "symbolic links"},
               [&] { load_model_config(dir / "loop"); });
}

TEST(GenerationDefaults, ReadsOrFallsBack) {
  const TempDir dir;
  const GenerationDefaults none = load_generation_defaults(dir.path());
  EXPECT_EQ(none.temperature, 1.0);
  EXPECT_EQ(none.top_p, 1.0);
  EXPECT_TRUE(none.eos_ids.empty());
  const GenerationDefaults nano = load_generation_defaults(nano_dir());
  EXPECT_EQ(nano.temperature, 0.7);
  EXPECT_EQ(nano.top_p, 0.95);
  EXPECT_EQ(nano.eos_ids, (std::vector<int>{1}));
  EXPECT_EQ(parse_generation_defaults(R"({"eos_token_id":[1,2]})", "g").eos_ids,
            (std::vector<int>{1, 2}));
  EXPECT_EQ(parse_generation_defaults(R"({"temperature":0.5,"do_sample":false})", "g").temperature,
            0.0);
}

TEST(GenerationDefaults, RefusesBadValues) {
  for (const char* text :
       {R"({"temperature":-0.1})", R"({"temperature":"1"})", R"({"top_p":0})", R"({"top_p":1.01})",
        R"({"eos_token_id":1.5})", "[1]", R"({"temperature":1e-300})", R"({"top_p":1e-300})"}) {
    expect_error(ErrorCode::kBadCheckpoint, {"g.json"},
                 [&] { parse_generation_defaults(text, "g.json"); });
  }
}

}  // namespace
}  // namespace dsv4
