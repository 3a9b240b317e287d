// model_config.h: the sizes and constants of a model in our own names, read from config.json.
//
// Which tensors follow from them: layout.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace dsv4 {

enum class Scoring : std::uint8_t { kSqrtSoftplus, kSigmoid, kSoftmax };

// YaRN of the layers with a compress ratio; layers with ratio 0 use plain RoPE.
struct Yarn {
  double factor = 1;
  std::int64_t original_length = 0;
  double beta_fast = 32, beta_slow = 1;

  bool operator==(const Yarn&) const = default;
};

struct ModelConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  int num_layers = 0;
  std::int64_t max_positions = 0;
  int bos_id = 0;
  std::vector<int> eos_ids;  // at least one

  int num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rope_dim = 0;  // the last ones of head_dim and of index_head_dim
  std::int64_t q_low_rank = 0;
  int num_output_groups = 0;
  std::int64_t o_low_rank = 0;
  std::int64_t window = 0;
  double rope_theta = 0, compress_rope_theta = 0;
  Yarn yarn;

  std::vector<int> compress_ratios;        // one a layer: 0, or at least 2
  std::vector<int> draft_compress_ratios;  // what the file lists beyond the layers; all 0
  int index_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_top_k = 0;

  // Of pruned models the layers differ: num_scored_experts is that of layers that route by score
  // (0: num_experts), and the tensors decide in any case (LayerWeights::num_experts). Of a bound
  // model num_experts is the largest of any layer.
  int num_experts = 0;
  int num_scored_experts = 0;
  int experts_per_token = 0;
  std::int64_t expert_inter = 0;
  int num_shared_experts = 0;  // computed as one expert of shared_inter()
  int num_hash_layers = 0;     // the first layers route by token id
  double routed_scale = 1;
  Scoring scoring = Scoring::kSqrtSoftplus;
  double swiglu_limit = 0;  // 0: no clamp

  int hc_copies = 0;
  int sinkhorn_iters = 0;
  double hc_eps = 0;
  double norm_eps = 0;

  int num_draft_blocks = 0;  // 0 or 1; with has_dspark whatever the file says
  bool has_dspark = false;   // dspark_* keys: the draft tensors are DSpark stages, not our block

  int experts_of_layer(bool by_hash) const {
    return by_hash || num_scored_experts == 0 ? num_experts : num_scored_experts;
  }
  std::int64_t shared_inter() const { return num_shared_experts * expert_inter; }
  // Mixes of one hyper-connection: pre, post and comb.
  std::int64_t num_hc_mixes() const { return (2 + std::int64_t{hc_copies}) * hc_copies; }
  // Inputs of one output group: heads / groups * head_dim.
  std::int64_t output_group_dim() const { return num_heads / num_output_groups * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Overlapping compression (CSA, with indexer) exists at one ratio only.
constexpr bool is_overlapping(int compress_ratio) { return compress_ratio == 4; }
// Channels of a compressor's projections for rows of row_dim.
constexpr std::int64_t compressor_width(int compress_ratio, std::int64_t row_dim) {
  return is_overlapping(compress_ratio) ? 2 * row_dim : row_dim;
}

// The published values of DeepSeek-V4-Flash and -Pro
// (https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash, -Pro: config.json).
ModelConfig flash_config();
ModelConfig pro_config();

// Throws Error kBadCheckpoint unless every field is in range and they agree with each other.
// `where` names the file. The bounds keep every product of two extents and the number of tensors
// small enough to compute and to allocate. Called by parse_model_config.
void check(const ModelConfig& config, std::string_view where);

// Parses the text of a config.json in the official spelling, in that of Hugging Face transformers
// 5.17 (layer_types, mlp_layer_types, compress_rates, nested rope_parameters), or in that of
// inference/config.json (dim, n_layers, ...; what it leaves to the program's defaults gets those of
// DeepSeek's inference/model.py). Keys that we do not need are ignored. `where` names the file in
// messages.
// Throws Error: kBadCheckpoint (not JSON; a key missing, of the wrong type, out of range or in
// contradiction to another), kUnsupported (another architecture or variant: V4.1, Vision, ...).
ModelConfig parse_model_config(std::string_view json, std::string_view where);
// The same of `dir`/config.json. Throws also Error: kNotFound, kBadRequest, kIo, and kUnsupported
// for GGUF.
ModelConfig load_model_config(const std::filesystem::path& dir);

// What a model's publisher suggests for sampling; a request overrides it.
struct GenerationDefaults {
  double temperature = 1;  // 0: greedy
  double top_p = 1;
  std::vector<int> eos_ids;  // empty: ModelConfig::eos_ids
};

// Of a generation_config.json. Throws Error: kBadCheckpoint.
GenerationDefaults parse_generation_defaults(std::string_view json, std::string_view where);
// Of `dir`/generation_config.json; the defaults above if there is none.
GenerationDefaults load_generation_defaults(const std::filesystem::path& dir);

}  // namespace dsv4
