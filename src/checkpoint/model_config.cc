// model_config.cc: the published values, and the checks that every config must pass. Reading JSON:
// config_json.cc.
#include "checkpoint/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.h"
#include "base/math.h"
#include "checkpoint/json_fields.h"

namespace dsv4 {
namespace {

// What Flash and Pro share.
ModelConfig common_config() {
  ModelConfig c;
  c.vocab_size = 129280;
  c.max_positions = 1048576;
  c.bos_id = 0;
  c.eos_ids = {1};
  c.head_dim = 512;
  c.rope_dim = 64;
  c.o_low_rank = 1024;
  c.window = 128;
  c.rope_theta = 10000;
  c.compress_rope_theta = 160000;
  c.yarn = {.factor = 16, .original_length = 65536, .beta_fast = 32, .beta_slow = 1};
  c.draft_compress_ratios = {0};
  c.index_heads = 64;
  c.index_head_dim = 128;
  c.experts_per_token = 6;
  c.num_shared_experts = 1;
  c.num_hash_layers = 3;
  c.swiglu_limit = 10;
  c.hc_copies = 4;
  c.sinkhorn_iters = 20;
  c.hc_eps = 1e-6;
  c.norm_eps = 1e-6;
  c.num_draft_blocks = 1;
  return c;
}

// first, first, then (4, 128) alternating, 4 last.
std::vector<int> alternating_ratios(int num_layers, int first) {
  std::vector<int> ratios{first, first};
  while (static_cast<int>(ratios.size()) < num_layers) {
    ratios.push_back(ratios.size() % 2 == 0 ? 4 : 128);
  }
  return ratios;
}

class Checker {
 public:
  explicit Checker(std::string_view where) : where_(where) {}

  void in_range(std::string_view key, std::int64_t value, std::int64_t min,
                std::int64_t max) const {
    require(value >= min && value <= max, ErrorCode::kBadCheckpoint,
            "{}: {} is {}; it must be an integer from {} to {}", where_, key, value, min, max);
  }
  // min < value <= max, or min <= value <= max; NaN never passes. The bounds are far below the
  // largest FP32 number.
  void above(std::string_view key, double value, double min, double max) const {
    require(value > min && value <= max, ErrorCode::kBadCheckpoint,
            "{}: {} is {}; it must be a number above {}, at most {}", where_, key, value, min, max);
    does_not_vanish(key, value);
  }
  void at_least(std::string_view key, double value, double min, double max) const {
    require(value >= min && value <= max, ErrorCode::kBadCheckpoint,
            "{}: {} is {}; it must be a number from {} to {}", where_, key, value, min, max);
    does_not_vanish(key, value);
  }
  template <class Value>
  void that(bool condition, std::string_view key, const Value& value,
            const std::string& requirement) const {
    require(condition, ErrorCode::kBadCheckpoint, "{}: {} is {}; {}", where_, key, value,
            requirement);
  }

 private:
  void does_not_vanish(std::string_view key, double value) const {
    require(!vanishes_in_fp32(value), ErrorCode::kBadCheckpoint,
            "{}: {} is {}; FP32, in which models compute, makes 0 of it", where_, key, value);
  }

  std::string_view where_;
};

void check_attention(const ModelConfig& c, const Checker& checker) {
  checker.in_range("num_attention_heads", c.num_heads, 1, 4096);
  checker.in_range("head_dim", c.head_dim, 3, 8192);
  checker.in_range("qk_rope_head_dim", c.rope_dim, 2, 8192);
  checker.that(c.rope_dim % 2 == 0, "qk_rope_head_dim", c.rope_dim, "it must be even");
  checker.that(c.head_dim > c.rope_dim, "head_dim", c.head_dim,
               fmt::format("it must be above qk_rope_head_dim, which is {}", c.rope_dim));
  checker.in_range("q_lora_rank", c.q_low_rank, 1, 1 << 20);
  checker.in_range("o_lora_rank", c.o_low_rank, 1, 1 << 20);
  checker.in_range("o_groups", c.num_output_groups, 1, 4096);
  checker.that(c.num_heads % c.num_output_groups == 0, "num_attention_heads", c.num_heads,
               fmt::format("it must be a multiple of o_groups, which is {}", c.num_output_groups));
  checker.in_range("sliding_window", c.window, 1, 1 << 20);
  checker.above("rope_theta", c.rope_theta, 1, 1e15);
  checker.above("compress_rope_theta", c.compress_rope_theta, 1, 1e15);
  checker.at_least("rope_scaling.factor", c.yarn.factor, 1, 1e6);
  checker.in_range("rope_scaling.original_max_position_embeddings", c.yarn.original_length, 1,
                   1 << 30);
  checker.above("rope_scaling.beta_slow", c.yarn.beta_slow, 0, 1e6);
  checker.above("rope_scaling.beta_fast", c.yarn.beta_fast, c.yarn.beta_slow, 1e6);
}

void check_compression(const ModelConfig& c, const Checker& checker) {
  const auto length = static_cast<int>(c.compress_ratios.size());
  checker.that(length == c.num_layers, "compress_ratios", fmt::format("{} entries long", length),
               fmt::format("it must have one for each of the {} layers (num_hidden_layers), then "
                           "one for each draft block",
                           c.num_layers));
  for (int i = 0; i < length; ++i) {
    const int ratio = c.compress_ratios[static_cast<std::size_t>(i)];
    checker.that(ratio == 0 || (ratio >= 2 && ratio <= 65536),
                 fmt::format("compress_ratios[{}]", i), ratio,
                 "it must be 0, or an integer from 2 to 65536");
  }
  for (std::size_t i = 0; i < c.draft_compress_ratios.size(); ++i) {
    checker.that(c.draft_compress_ratios[i] == 0,
                 fmt::format("compress_ratios[{}]", c.compress_ratios.size() + i),
                 c.draft_compress_ratios[i], "it must be 0, because it is of a draft block");
  }
  checker.in_range("index_n_heads", c.index_heads, 1, 4096);
  checker.in_range("index_head_dim", c.index_head_dim, 32, 8192);
  checker.that(is_power_of_two(c.index_head_dim), "index_head_dim", c.index_head_dim,
               "it must be a power of two");
  checker.that(c.index_head_dim >= c.rope_dim, "index_head_dim", c.index_head_dim,
               fmt::format("it must be at least qk_rope_head_dim, which is {}", c.rope_dim));
  checker.in_range("index_topk", c.index_top_k, 1, 1 << 20);
}

void check_experts(const ModelConfig& c, const Checker& checker) {
  checker.in_range("n_routed_experts", c.num_experts, 1, 65536);
  // Bounds what a config alone can make us allocate: Pro has 61 * 384 = 23,424.
  const std::int64_t total = std::int64_t{c.num_experts} * c.num_layers;
  checker.that(total <= 1 << 18, "n_routed_experts", c.num_experts,
               fmt::format("times num_hidden_layers it must be at most {}", 1 << 18));
  checker.in_range("num_experts_per_tok", c.experts_per_token, 1, 1024);
  checker.that(c.experts_per_token <= c.num_experts, "num_experts_per_tok", c.experts_per_token,
               fmt::format("it must be at most n_routed_experts, which is {}", c.num_experts));
  if (c.num_scored_experts != 0) {
    checker.in_range("n_routed_experts_score", c.num_scored_experts, c.experts_per_token, 65536);
    checker.that(std::int64_t{c.num_scored_experts} * c.num_layers <= 1 << 18,
                 "n_routed_experts_score", c.num_scored_experts,
                 fmt::format("times num_hidden_layers it must be at most {}", 1 << 18));
  }
  checker.in_range("moe_intermediate_size", c.expert_inter, 1, 1 << 20);
  checker.in_range("n_shared_experts", c.num_shared_experts, 1, 1);
  checker.in_range("num_hash_layers", c.num_hash_layers, 0, c.num_layers);
  checker.above("routed_scaling_factor", c.routed_scale, 0, 1e6);
  checker.at_least("swiglu_limit", c.swiglu_limit, 0, 1e30);
}

}  // namespace

ModelConfig flash_config() {
  ModelConfig c = common_config();
  c.hidden_size = 4096;
  c.num_layers = 43;
  c.num_heads = 64;
  c.q_low_rank = 1024;
  c.num_output_groups = 8;
  c.compress_ratios = alternating_ratios(c.num_layers, 0);
  c.index_top_k = 512;
  c.num_experts = 256;
  c.expert_inter = 2048;
  c.routed_scale = 1.5;
  return c;
}

ModelConfig pro_config() {
  ModelConfig c = common_config();
  c.hidden_size = 7168;
  c.num_layers = 61;
  c.num_heads = 128;
  c.q_low_rank = 1536;
  c.num_output_groups = 16;
  c.compress_ratios = alternating_ratios(c.num_layers, 128);
  c.index_top_k = 1024;
  c.num_experts = 384;
  c.expert_inter = 3072;
  c.routed_scale = 2.5;
  return c;
}

void check(const ModelConfig& c, std::string_view where) {
  const Checker checker(where);
  checker.in_range("vocab_size", c.vocab_size, 1, 1 << 24);
  checker.in_range("hidden_size", c.hidden_size, 1, 1 << 20);
  checker.in_range("num_hidden_layers", c.num_layers, 1, 1024);
  checker.in_range("max_position_embeddings", c.max_positions, 1, 1 << 30);
  checker.in_range("bos_token_id", c.bos_id, 0, c.vocab_size - 1);
  checker.that(!c.eos_ids.empty(), "eos_token_id", "empty", "it must have an id");
  for (int id : c.eos_ids) checker.in_range("eos_token_id", id, 0, c.vocab_size - 1);
  check_attention(c, checker);
  check_compression(c, checker);
  check_experts(c, checker);
  checker.in_range("hc_mult", c.hc_copies, 1, 64);
  checker.in_range("hc_sinkhorn_iters", c.sinkhorn_iters, 1, 1000);
  checker.above("hc_eps", c.hc_eps, 0, 1);
  checker.above("rms_norm_eps", c.norm_eps, 0, 1);
  checker.in_range("num_nextn_predict_layers", c.num_draft_blocks, 0, c.has_dspark ? 64 : 1);
}

}  // namespace dsv4
