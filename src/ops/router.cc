// Refusals and cost of the router, and the check of hash tables.
#include "ops/router.h"

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {

std::string_view to_string(ScoringFunction scoring) {
  switch (scoring) {
    case ScoringFunction::kSqrtSoftplus:
      return "sqrtsoftplus";
    case ScoringFunction::kSigmoid:
      return "sigmoid";
    case ScoringFunction::kSoftmax:
      return "softmax";
  }
  return "?";
}

void check(const RouterParams& p) {
  check_matrix("RouterParams.x", p.x, kPlainFormats);
  check_matrix("RouterParams.weight", p.weight, kPlainFormats);
  check_equal("RouterParams.weight.cols", p.weight.cols, "x.cols", p.x.cols);
  check_at_least("RouterParams.experts_per_token", p.experts_per_token, 1);
  check_at_most("RouterParams.experts_per_token", p.experts_per_token, "weight.rows",
                p.weight.rows);
  check_not_negative("RouterParams.routed_scale", p.routed_scale);
  if (p.hash_table != nullptr) check_at_least("RouterParams.vocab", p.vocab, 1);
  if (p.x.rows == 0) return;
  if (p.hash_table != nullptr) check_pointer("RouterParams.token_ids", p.token_ids, "[x.rows]");
  check_pointer("RouterParams.expert_idx", p.expert_idx, "[x.rows, experts_per_token]");
  check_pointer("RouterParams.expert_weights", p.expert_weights, "[x.rows, experts_per_token]");
}

Cost cost(const RouterParams& p) {
  const std::int64_t choices = p.x.rows * p.experts_per_token;
  std::int64_t bytes = matrix_bytes(p.x) + matrix_bytes(p.weight);
  if (p.token_ids != nullptr) bytes += 4 * p.x.rows;
  if (p.hash_table != nullptr) {
    bytes += 4 * choices;
  } else if (p.bias != nullptr) {
    bytes += 4 * p.weight.rows;
  }
  return {2.0 * static_cast<double>(p.x.rows) * static_cast<double>(p.weight.rows) *
              static_cast<double>(p.weight.cols),
          bytes, 8 * choices};
}

void check_hash_table(const std::int32_t* hash_table, std::int64_t vocab, int experts_per_token,
                      std::int64_t num_experts) {
  for (std::int64_t token_id = 0; token_id < vocab; ++token_id) {
    const std::int32_t* experts = hash_table + token_id * experts_per_token;
    for (int i = 0; i < experts_per_token; ++i) {
      require(experts[i] >= 0 && experts[i] < num_experts, ErrorCode::kBadCheckpoint,
              "hash routing table: token {} has expert {}, must be in 0 .. {}", token_id,
              experts[i], num_experts - 1);
      for (int earlier = 0; earlier < i; ++earlier) {
        require(experts[earlier] != experts[i], ErrorCode::kBadCheckpoint,
                "hash routing table: token {} has expert {} twice, must be different experts",
                token_id, experts[i]);
      }
    }
  }
}

}  // namespace dsv4
