// config_json.cc: reads config.json and generation_config.json into model_config.h's structs.
//
// Three spellings: the official one, that of Hugging Face transformers 5.17
// (configuration_deepseek_v4.py), and that of inference/config.json. A key's spellings stand side
// by side where it is read; what a spelling says in another form has a function of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_config.h"
#include "checkpoint/model_dir.h"
#include "io/atomic_file.h"

namespace dsv4 {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string_view where, std::string_view what) {
  fail(ErrorCode::kUnsupported, "{}: {}", where, what);
}

bool has_key_with_prefix(const json& root, std::string_view prefix) {
  for (auto it = root.begin(); it != root.end(); ++it) {
    if (std::string_view(it.key()).starts_with(prefix)) return true;
  }
  return false;
}

// inference/config.json has no model_type and names everything by itself.
bool is_inference_spelling(const JsonFields& fields) {
  return !fields.has("model_type") && fields.has("dim") && fields.has("n_layers");
}

// Throws unless the file describes DeepSeek-V4. V4.1 comes first, then Vision-Exp, which has V4's
// model_type and architectures.
void check_family(const json& root, std::string_view where) {
  const JsonFields fields(root, where);
  const bool is_inference = is_inference_spelling(fields);
  const std::string model_type = is_inference ? "deepseek_v4" : fields.text({"model_type"});
  if (model_type == "deepseek_v41" || fields.has("text_config") ||
      has_key_with_prefix(root, "engram_") || has_key_with_prefix(root, "kv_source_layer")) {
    refuse(where,
           "DeepSeek-V4.1 (model_type deepseek_v41) is a different architecture, which is "
           "not supported");
  }
  if (has_key_with_prefix(root, "vision_")) {
    refuse(where, "DeepSeek-V4 Vision (vision_* keys) is not supported");
  }
  if (model_type != "deepseek_v4") {
    refuse(where,
           fmt::format("model_type {} is not supported, only deepseek_v4", in_quotes(model_type)));
  }
}

// Switches of the architecture that exist in V4 with one value only.
void check_fixed_choices(const JsonFields& fields, std::string_view where) {
  struct TextChoice {
    std::string_view key, only;
  };
  for (const auto& [key, only] : {TextChoice{"hidden_act", "silu"}, {"topk_method", "noaux_tc"}}) {
    const auto value = fields.optional_text({key});
    if (value && *value != only) {
      refuse(where, fmt::format("{} is {}; only {} is supported", key, in_quotes(*value), only));
    }
  }
  for (std::string_view key : {"attention_bias", "mlp_bias", "tie_word_embeddings"}) {
    if (fields.optional_boolean({key}).value_or(false)) {
      refuse(where, fmt::format("{} is true; only false is supported", key));
    }
  }
  const double kv_heads = fields.optional_number({"num_key_value_heads"}).value_or(1);
  if (kv_heads != 1) {
    refuse(where, fmt::format("num_key_value_heads is {}; only 1 is supported", kv_heads));
  }
}

// Formats are read from the tensors themselves; this refuses schemes that they do not tell apart.
void check_quantization(const JsonFields& fields, std::string_view where) {
  const auto mlx = fields.optional_object({"quantization"});
  if (mlx && mlx->has("group_size") && mlx->has("bits")) {
    refuse(where,
           "this is an MLX model (quantization.group_size and bits), which is not supported; use "
           "the model's original safetensors files");
  }
  const auto quantization = fields.optional_object({"quantization_config"});
  if (!quantization) return;
  const auto method = quantization->optional_text({"quant_method"});
  if (method && *method != "fp8" && *method != "compressed-tensors" &&
      !method->starts_with("modelopt")) {
    refuse(where, fmt::format("quantization_config.quant_method {} is not supported, only fp8 "
                              "(official, NVIDIA), modelopt and compressed-tensors",
                              in_quotes(*method)));
  }
  if (!quantization->has("weight_block_size")) return;
  const std::vector<int> tile = quantization->integers({"weight_block_size"});
  if (tile != std::vector<int>{128, 128}) {
    refuse(where, "quantization_config.weight_block_size: only [128, 128] is supported");
  }
}

Scoring read_scoring(const JsonFields& fields, std::string_view where) {
  const std::string name = fields.text({"scoring_func", "score_func"});
  Scoring scoring;
  if (name == "sqrtsoftplus") {
    scoring = Scoring::kSqrtSoftplus;
  } else if (name == "sigmoid") {
    scoring = Scoring::kSigmoid;
  } else if (name == "softmax") {
    scoring = Scoring::kSoftmax;
  } else {
    refuse(where, fmt::format("scoring_func {} is not supported, only sqrtsoftplus, sigmoid and "
                              "softmax",
                              in_quotes(name)));
  }
  if (scoring != Scoring::kSoftmax && !fields.optional_boolean({"norm_topk_prob"}).value_or(true)) {
    refuse(where, fmt::format("norm_topk_prob false with scoring_func {} is not supported", name));
  }
  return scoring;
}

// `type` is the older name; transformers 5.17 writes both.
std::string rope_type(const JsonFields& rope) {
  const auto type = rope.optional_text({"type"});
  const auto newer = rope.optional_text({"rope_type"});
  if (type && newer && *type != *newer) rope.reject("rope_type", "the same as type");
  return type ? *type : newer ? *newer : rope.text({"type"});
}

Yarn read_yarn(const JsonFields& rope, std::string_view where) {
  const std::string type = rope_type(rope);
  if (type != "yarn")
    refuse(where,
           fmt::format("rope scaling of type {} is not supported, only yarn", in_quotes(type)));
  if (rope.optional_number({"attention_factor"}).value_or(1) != 1) {
    refuse(where, "rope scaling with an attention_factor other than 1 is not supported");
  }
  Yarn yarn;
  yarn.factor = rope.number({"factor"});
  yarn.original_length = rope.long_integer({"original_max_position_embeddings"});
  yarn.beta_fast = rope.number({"beta_fast"});
  yarn.beta_slow = rope.number({"beta_slow"});
  return yarn;
}

// A number that a file may give twice, which must then be the same.
double agreed(const JsonFields& fields, std::string_view key, const JsonFields& nested,
              std::string_view nested_key) {
  const double value = nested.number({nested_key});
  if (fields.has(key) && fields.number({key}) != value) {
    fields.reject(key, fmt::format("{}, as rope_parameters says", value));
  }
  return value;
}

void read_rope(const JsonFields& fields, std::string_view where, ModelConfig& c) {
  const auto parameters = fields.optional_object({"rope_parameters"});
  if (parameters && parameters->has("main")) {  // transformers: one object for each kind of layer
    const JsonFields main = parameters->object({"main"});
    const JsonFields compress = parameters->object({"compress"});
    const std::string type = rope_type(main);
    if (type != "default") {
      refuse(where, fmt::format("rope_parameters.main of type {} is not supported, only default",
                                in_quotes(type)));
    }
    c.rope_theta = agreed(fields, "rope_theta", main, "rope_theta");
    c.compress_rope_theta = agreed(fields, "compress_rope_theta", compress, "rope_theta");
    c.yarn = read_yarn(compress, where);
    return;
  }
  c.rope_theta = fields.number({"rope_theta"});
  c.compress_rope_theta = fields.number({"compress_rope_theta"});
  if (is_inference_spelling(fields)) {
    c.yarn.factor = fields.number({"rope_factor"});
    c.yarn.original_length = fields.long_integer({"original_seq_len"});
    c.yarn.beta_fast = fields.number({"beta_fast"});
    c.yarn.beta_slow = fields.number({"beta_slow"});
  } else {
    c.yarn = read_yarn(fields.object({"rope_scaling", "rope_parameters"}), where);
  }
}

// transformers names the kind of each layer, and the ratio of each kind.
std::vector<int> ratios_of_layer_types(const JsonFields& fields, std::string_view where) {
  constexpr std::string_view kCsa = "compressed_sparse_attention";
  constexpr std::string_view kHca = "heavily_compressed_attention";
  const auto rates = fields.optional_object({"compress_rates"});
  const auto rate = [&](std::string_view kind, std::string_view older_key, int by_default) {
    if (rates && rates->has(kind)) return rates->integer({kind});
    return fields.optional_integer({older_key}).value_or(by_default);
  };
  const int csa = rate(kCsa, "compress_rate_csa", 4);
  const int hca = rate(kHca, "compress_rate_hca", 128);
  std::vector<int> ratios;
  for (const std::string& type : fields.texts({"layer_types"})) {
    if (type != "sliding_attention" && type != kCsa && type != kHca) {
      refuse(where, fmt::format("layer_types: {} is not supported", in_quotes(type)));
    }
    ratios.push_back(type == kCsa ? csa : type == kHca ? hca : 0);
  }
  return ratios;
}

void read_compress_ratios(const JsonFields& fields, std::string_view where, ModelConfig& c) {
  const auto layers = static_cast<std::size_t>(c.num_layers < 0 ? 0 : c.num_layers);
  if (fields.has("compress_ratios") || !fields.has("layer_types")) {
    std::vector<int> all = fields.integers({"compress_ratios"});
    if (all.size() > layers) {  // the rest is of the draft blocks
      c.draft_compress_ratios.assign(all.begin() + static_cast<std::ptrdiff_t>(layers), all.end());
      all.resize(layers);
    }
    c.compress_ratios = std::move(all);
  }
  if (!fields.has("layer_types")) return;
  std::vector<int> ratios = ratios_of_layer_types(fields, where);
  if (ratios.size() != layers) {
    fields.reject("layer_types", fmt::format("one entry for each of the {} layers", layers));
  }
  if (fields.has("compress_ratios") && ratios != c.compress_ratios) {
    fields.reject("layer_types", "in agreement with compress_ratios");
  }
  c.compress_ratios = std::move(ratios);
}

// transformers names the router of each layer: hash_moe in the first ones, then moe.
int read_hash_layers(const JsonFields& fields, std::string_view where) {
  const auto number = fields.optional_integer({"num_hash_layers", "n_hash_layers"});
  if (!fields.has("mlp_layer_types")) return fields.integer({"num_hash_layers", "n_hash_layers"});
  const std::vector<std::string> types = fields.texts({"mlp_layer_types"});
  int hashed = 0;
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i] == "hash_moe" && static_cast<std::size_t>(hashed) == i) {
      ++hashed;
    } else if (types[i] != "moe") {
      refuse(where,
             fmt::format("mlp_layer_types[{}] {} is not supported: hash_moe comes first, the "
                         "rest is moe",
                         i, in_quotes(types[i])));
    }
  }
  if (number && *number != hashed) {
    fields.reject("mlp_layer_types", fmt::format("hash_moe {} times (num_hash_layers)", *number));
  }
  return hashed;
}

std::int64_t read_rope_dim(const JsonFields& fields, std::int64_t head_dim) {
  if (fields.has("qk_rope_head_dim") || !fields.has("partial_rotary_factor")) {
    return fields.long_integer({"qk_rope_head_dim", "rope_head_dim"});
  }
  const double factor = fields.number({"partial_rotary_factor"});
  if (!(factor > 0 && factor <= 1)) fields.reject("partial_rotary_factor", "above 0, at most 1");
  return static_cast<std::int64_t>(static_cast<double>(head_dim) *
                                   factor);  // rounds as Python does
}

void read_sizes(const JsonFields& fields, std::string_view where, ModelConfig& c) {
  c.vocab_size = fields.long_integer({"vocab_size"});
  c.hidden_size = fields.long_integer({"hidden_size", "dim"});
  c.num_layers = fields.integer({"num_hidden_layers", "n_layers"});
  c.num_heads = fields.integer({"num_attention_heads", "n_heads"});
  c.head_dim = fields.long_integer({"head_dim"});
  c.rope_dim = read_rope_dim(fields, c.head_dim);
  c.q_low_rank = fields.long_integer({"q_lora_rank"});
  c.num_output_groups = fields.integer({"o_groups"});
  c.o_low_rank = fields.long_integer({"o_lora_rank"});
  c.window = fields.long_integer({"sliding_window", "window_size"});
  read_rope(fields, where, c);
  read_compress_ratios(fields, where, c);
  c.index_heads = fields.integer({"index_n_heads"});
  c.index_head_dim = fields.long_integer({"index_head_dim"});
  c.index_top_k = fields.long_integer({"index_topk"});
}

void read_experts(const JsonFields& fields, std::string_view where, ModelConfig& c) {
  c.num_experts = fields.integer({"n_routed_experts"});
  c.num_scored_experts = fields.optional_integer({"n_routed_experts_score"}).value_or(0);
  c.experts_per_token = fields.integer({"num_experts_per_tok", "n_activated_experts"});
  c.expert_inter = fields.long_integer({"moe_intermediate_size", "moe_inter_dim"});
  c.num_shared_experts = fields.integer({"n_shared_experts"});
  c.num_hash_layers = read_hash_layers(fields, where);
  c.routed_scale = fields.number({"routed_scaling_factor", "route_scale"});
  c.scoring = read_scoring(fields, where);
  c.swiglu_limit = fields.number({"swiglu_limit"});
}

// inference/config.json leaves these to the defaults of inference/model.py, and the tokens' ids to
// the tokenizer. Its max_seq_len is a choice of the run, not the model's limit.
void read_with_inference_defaults(const JsonFields& fields, ModelConfig& c) {
  // At most what check() takes: a senseless length is refused by itself.
  c.max_positions = static_cast<std::int64_t>(
      std::clamp(static_cast<double>(c.yarn.original_length) * c.yarn.factor, 0.0, 0x1p30));
  c.bos_id = fields.optional_integer({"bos_token_id"}).value_or(0);
  c.eos_ids = fields.has("eos_token_id") ? fields.one_or_more_integers({"eos_token_id"})
                                         : std::vector<int>{1};
  c.hc_copies = fields.optional_integer({"hc_mult"}).value_or(4);
  c.sinkhorn_iters = fields.optional_integer({"hc_sinkhorn_iters"}).value_or(20);
  c.hc_eps = fields.optional_number({"hc_eps"}).value_or(1e-6);
  c.norm_eps = fields.optional_number({"norm_eps"}).value_or(1e-6);
  c.num_draft_blocks = fields.optional_integer({"n_mtp_layers"}).value_or(1);
}

ModelConfig read_config(const json& root, std::string_view where) {
  const JsonFields fields(root, where);
  check_fixed_choices(fields, where);
  check_quantization(fields, where);
  ModelConfig c;
  read_sizes(fields, where, c);
  read_experts(fields, where, c);
  c.has_dspark = has_key_with_prefix(root, "dspark_");
  if (is_inference_spelling(fields)) {
    read_with_inference_defaults(fields, c);
    return c;
  }
  c.max_positions = fields.long_integer({"max_position_embeddings"});
  c.bos_id = fields.integer({"bos_token_id"});
  c.eos_ids = fields.one_or_more_integers({"eos_token_id"});
  c.hc_copies = fields.integer({"hc_mult"});
  c.sinkhorn_iters = fields.integer({"hc_sinkhorn_iters"});
  c.hc_eps = fields.number({"hc_eps"});
  c.norm_eps = fields.number({"rms_norm_eps"});
  c.num_draft_blocks = fields.integer({"num_nextn_predict_layers"});
  return c;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view where) {
  const json root = parse_json_object(text, where);
  check_family(root, where);
  ModelConfig config = read_config(root, where);
  check(config, where);
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& dir) {
  check_model_dir(dir);
  const std::filesystem::path path = dir / "config.json";
  return parse_model_config(read_text_file(path, kMaxConfigBytes), path.string());
}

GenerationDefaults parse_generation_defaults(std::string_view text, std::string_view where) {
  const json root = parse_json_object(text, where);
  const JsonFields fields(root, where);
  GenerationDefaults defaults;
  defaults.temperature = fields.optional_number({"temperature"}).value_or(1);
  if (!(defaults.temperature >= 0 && defaults.temperature <= 100) ||
      vanishes_in_fp32(defaults.temperature)) {
    fields.reject("temperature", "a number from 0 to 100 that is 0 in FP32 only if it is 0");
  }
  defaults.top_p = fields.optional_number({"top_p"}).value_or(1);
  if (!(defaults.top_p > 0 && defaults.top_p <= 1) || vanishes_in_fp32(defaults.top_p)) {
    fields.reject("top_p", "a number above 0, in FP32, too, at most 1");
  }
  if (!fields.optional_boolean({"do_sample"}).value_or(true)) defaults.temperature = 0;
  if (fields.has("eos_token_id")) defaults.eos_ids = fields.one_or_more_integers({"eos_token_id"});
  return defaults;
}

GenerationDefaults load_generation_defaults(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "generation_config.json";
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) {
    return {};
  }
  return parse_generation_defaults(read_text_file(path, kMaxConfigBytes), path.string());
}

}  // namespace dsv4
