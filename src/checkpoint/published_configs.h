// published_configs.h: the config.json of Flash and Pro as published, and Flash's in the other
// spellings, for tests.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

namespace dsv4 {

// Flash's config.json, as published.
inline nlohmann::json flash_json() {
  nlohmann::json root = nlohmann::json::parse(R"({
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
    "torch_dtype": "bfloat16", "vocab_size": 129280, "bos_token_id": 0, "eos_token_id": 1,
    "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false, "head_dim": 512,
    "qk_rope_head_dim": 64, "num_key_value_heads": 1, "o_lora_rank": 1024, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6, "index_head_dim": 128,
    "index_n_heads": 64, "sliding_window": 128, "swiglu_limit": 10.0, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "num_hash_layers": 3, "norm_topk_prob": true,
    "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
    "max_position_embeddings": 1048576, "rope_theta": 10000, "compress_rope_theta": 160000,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536,
                     "beta_fast": 32, "beta_slow": 1},
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                            "scale_fmt": "ue8m0", "weight_block_size": [128, 128]},
    "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "q_lora_rank": 1024,
    "o_groups": 8, "n_routed_experts": 256, "moe_intermediate_size": 2048, "index_topk": 512,
    "routed_scaling_factor": 1.5})");
  std::vector<int> ratios{0, 0};
  for (int i = 0; i < 20; ++i) ratios.insert(ratios.end(), {4, 128});
  ratios.insert(ratios.end(), {4, 0});
  root["compress_ratios"] = ratios;
  return root;
}

inline nlohmann::json pro_json() {
  nlohmann::json root = flash_json();
  root["hidden_size"] = 7168;
  root["num_hidden_layers"] = 61;
  root["num_attention_heads"] = 128;
  root["q_lora_rank"] = 1536;
  root["o_groups"] = 16;
  root["n_routed_experts"] = 384;
  root["moe_intermediate_size"] = 3072;
  root["index_topk"] = 1024;
  root["routed_scaling_factor"] = 2.5;
  std::vector<int> ratios{128, 128};
  for (int i = 0; i < 29; ++i) ratios.insert(ratios.end(), {4, 128});
  ratios.insert(ratios.end(), {4, 0});
  root["compress_ratios"] = ratios;
  return root;
}

// Flash's config as transformers 5.17 saves it (DeepseekV4Config.save_pretrained).
inline nlohmann::json transformers_json() {
  nlohmann::json root = flash_json();
  for (const char* key : {"compress_ratios", "num_hash_layers", "rope_scaling", "torch_dtype"})
    root.erase(key);
  nlohmann::json types = nlohmann::json::array({"sliding_attention", "sliding_attention"});
  nlohmann::json routers = nlohmann::json::array();
  for (int i = 0; i < 43; ++i) {
    routers.push_back(i < 3 ? "hash_moe" : "moe");
    if (i >= 2)
      types.push_back(i % 2 == 0 ? "compressed_sparse_attention" : "heavily_compressed_attention");
  }
  root["layer_types"] = types;
  root["mlp_layer_types"] = routers;
  root["compress_rates"] = {{"compressed_sparse_attention", 4},
                            {"heavily_compressed_attention", 128}};
  root["partial_rotary_factor"] = 0.125;
  root["rope_parameters"] = nlohmann::json::parse(R"({
    "main": {"partial_rotary_factor": 0.125, "rope_theta": 10000, "rope_type": "default"},
    "compress": {"attention_factor": 1.0, "beta_fast": 32, "beta_slow": 1, "factor": 16,
                 "original_max_position_embeddings": 65536, "partial_rotary_factor": 0.125,
                 "rope_theta": 160000, "rope_type": "yarn", "type": "yarn"}})");
  root["mlp_bias"] = false;
  root["pad_token_id"] = nullptr;
  root["transformers_version"] = "5.17.0";
  return root;
}

// Flash's inference/config.json: what it lacks are defaults of inference/model.py.
inline nlohmann::json inference_json() {
  nlohmann::json root = nlohmann::json::parse(R"({
    "vocab_size": 129280, "dim": 4096, "moe_inter_dim": 2048, "n_layers": 43, "n_hash_layers": 3,
    "n_heads": 64, "n_routed_experts": 256, "n_shared_experts": 1, "n_activated_experts": 6,
    "score_func": "sqrtsoftplus", "route_scale": 1.5, "swiglu_limit": 10.0, "q_lora_rank": 1024,
    "head_dim": 512, "rope_head_dim": 64, "o_groups": 8, "o_lora_rank": 1024, "window_size": 128,
    "original_seq_len": 65536, "rope_theta": 10000, "rope_factor": 16, "beta_fast": 32,
    "beta_slow": 1, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "compress_rope_theta": 160000, "dtype": "fp8", "scale_fmt": "ue8m0",
    "expert_dtype": "fp4"})");
  root["compress_ratios"] = flash_json()["compress_ratios"];
  return root;
}

}  // namespace dsv4
