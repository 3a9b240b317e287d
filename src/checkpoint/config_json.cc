// config_json.cc: reads config.json and generation_config.json into model_config.h's structs.
//
// A spelling is one function from JSON to ModelConfig (read_official); parse_model_config decides
// which one a file is in.
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_config.h"
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

// Throws unless the file describes DeepSeek-V4 in the official spelling. Vision-Exp and V4.1 come
// first: Vision-Exp has V4's model_type.
void check_family(const json& root, std::string_view where) {
  const JsonFields fields(root, where);
  if (!fields.has("model_type") && fields.has("dim") && fields.has("n_layers")) {
    refuse(where,
           "this is the spelling of inference/config.json, which is not read; use the config.json "
           "beside the weights");
  }
  const std::string model_type = fields.text({"model_type"});
  if (model_type == "deepseek_v41" || root.contains("text_config")) {
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
  if (root.contains("n_routed_experts_score")) {
    refuse(where,
           "pruned models whose layers differ in their number of experts "
           "(n_routed_experts_score) are not supported");
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
  for (std::string_view key : {"attention_bias", "tie_word_embeddings"}) {
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
  const auto quantization = fields.optional_object({"quantization_config"});
  if (!quantization) return;
  const auto method = quantization->optional_text({"quant_method"});
  if (method && *method != "fp8" && *method != "modelopt") {
    refuse(where, fmt::format("quantization_config.quant_method {} is not supported, only fp8 "
                              "(official, NVIDIA) and modelopt",
                              in_quotes(*method)));
  }
  if (!quantization->has("weight_block_size")) return;
  const std::vector<int> tile = quantization->integers({"weight_block_size"});
  if (tile != std::vector<int>{128, 128}) {
    refuse(where, "quantization_config.weight_block_size: only [128, 128] is supported");
  }
}

Scoring read_scoring(const JsonFields& fields, std::string_view where) {
  const std::string name = fields.text({"scoring_func"});
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

Yarn read_yarn(const JsonFields& fields, std::string_view where) {
  const JsonFields rope = fields.object({"rope_scaling", "rope_parameters"});
  const std::string type = rope.text({"type", "rope_type"});
  if (type != "yarn")
    refuse(where,
           fmt::format("rope scaling of type {} is not supported, only yarn", in_quotes(type)));
  Yarn yarn;
  yarn.factor = rope.number({"factor"});
  yarn.original_length = rope.long_integer({"original_max_position_embeddings"});
  yarn.beta_fast = rope.number({"beta_fast"});
  yarn.beta_slow = rope.number({"beta_slow"});
  return yarn;
}

// The list is longer than the model has layers: the rest is of the draft blocks.
void read_compress_ratios(const JsonFields& fields, ModelConfig& c) {
  std::vector<int> all = fields.integers({"compress_ratios", "compress_rates"});
  const auto layers = static_cast<std::size_t>(c.num_layers < 0 ? 0 : c.num_layers);
  if (all.size() > layers) {
    c.draft_compress_ratios.assign(all.begin() + static_cast<std::ptrdiff_t>(layers), all.end());
    all.resize(layers);
  }
  c.compress_ratios = std::move(all);
}

ModelConfig read_official(const json& root, std::string_view where) {
  const JsonFields fields(root, where);
  check_fixed_choices(fields, where);
  check_quantization(fields, where);
  ModelConfig c;
  c.vocab_size = fields.long_integer({"vocab_size"});
  c.hidden_size = fields.long_integer({"hidden_size"});
  c.num_layers = fields.integer({"num_hidden_layers"});
  c.max_positions = fields.long_integer({"max_position_embeddings"});
  c.bos_id = fields.integer({"bos_token_id"});
  c.eos_ids = fields.one_or_more_integers({"eos_token_id"});

  c.num_heads = fields.integer({"num_attention_heads"});
  c.head_dim = fields.long_integer({"head_dim"});
  c.rope_dim = fields.long_integer({"qk_rope_head_dim"});
  c.q_low_rank = fields.long_integer({"q_lora_rank"});
  c.num_output_groups = fields.integer({"o_groups"});
  c.o_low_rank = fields.long_integer({"o_lora_rank"});
  c.window = fields.long_integer({"sliding_window"});
  c.rope_theta = fields.number({"rope_theta"});
  c.compress_rope_theta = fields.number({"compress_rope_theta"});
  c.yarn = read_yarn(fields, where);

  read_compress_ratios(fields, c);
  c.index_heads = fields.integer({"index_n_heads"});
  c.index_head_dim = fields.long_integer({"index_head_dim"});
  c.index_top_k = fields.long_integer({"index_topk"});

  c.num_experts = fields.integer({"n_routed_experts"});
  c.experts_per_token = fields.integer({"num_experts_per_tok"});
  c.expert_inter = fields.long_integer({"moe_intermediate_size"});
  c.num_shared_experts = fields.integer({"n_shared_experts"});
  c.num_hash_layers = fields.integer({"num_hash_layers"});
  c.routed_scale = fields.number({"routed_scaling_factor"});
  c.scoring = read_scoring(fields, where);
  c.swiglu_limit = fields.number({"swiglu_limit"});

  c.hc_copies = fields.integer({"hc_mult"});
  c.sinkhorn_iters = fields.integer({"hc_sinkhorn_iters"});
  c.hc_eps = fields.number({"hc_eps"});
  c.norm_eps = fields.number({"rms_norm_eps"});

  c.num_draft_blocks = fields.integer({"num_nextn_predict_layers"});
  c.has_dspark = has_key_with_prefix(root, "dspark_");
  return c;
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string_view where) {
  const json root = parse_json_object(text, where);
  check_family(root, where);
  ModelConfig config = read_official(root, where);
  check(config, where);
  return config;
}

ModelConfig load_model_config(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "config.json";
  return parse_model_config(read_text_file(path, kMaxConfigBytes), path.string());
}

GenerationDefaults parse_generation_defaults(std::string_view text, std::string_view where) {
  const json root = parse_json_object(text, where);
  const JsonFields fields(root, where);
  GenerationDefaults defaults;
  defaults.temperature = fields.optional_number({"temperature"}).value_or(1);
  if (!(defaults.temperature >= 0 && defaults.temperature <= 100)) {
    fields.reject("temperature", "a number from 0 to 100");
  }
  defaults.top_p = fields.optional_number({"top_p"}).value_or(1);
  if (!(defaults.top_p > 0 && defaults.top_p <= 1)) {
    fields.reject("top_p", "a number above 0, at most 1");
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
