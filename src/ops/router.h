// router.h: picks the experts of each token and their weights, by score or by token id.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

enum class ScoringFunction : std::uint8_t { kSqrtSoftplus, kSigmoid, kSoftmax };
std::string_view to_string(ScoringFunction scoring);

// affinity_e = scoring(weight[e] . x) in FP32 (k ascending; reference in FP64, rounded once).
// Selection: hash_table given: experts hash_table[token_ids[t]]. Otherwise the experts_per_token
// highest affinity_e + bias_e, in descending order, ties to the lower expert index; the bias
// selects, it does not weigh. A NaN counts below every number. expert_weights = affinity_e / (sum
// over the selected, in their order) * routed_scale, not renormalised for kSoftmax.
struct RouterParams {
  static constexpr std::string_view kOpName = "router";
  MatrixView x;                              // [tokens, hidden], kF32 or kBf16
  MatrixView weight;                         // [experts, hidden], kF32 or kBf16
  const float* bias = nullptr;               // [experts]; null: none
  const std::int32_t* hash_table = nullptr;  // [vocab, experts_per_token]; null: by score
  const std::int32_t* token_ids =
      nullptr;             // [tokens]; -1: inactive row; null only without hash_table
  std::int64_t vocab = 0;  // rows of hash_table
  ScoringFunction scoring = ScoringFunction::kSqrtSoftplus;
  float routed_scale = 1;
  int experts_per_token = 0;
  std::int32_t* expert_idx = nullptr;  // out [tokens, experts_per_token]; -1 in inactive rows
  float* expert_weights = nullptr;     // out [tokens, experts_per_token]
};
void check(const RouterParams& p);
Cost cost(const RouterParams& p);

// For whoever binds a hash table, in host memory: every entry of [vocab, experts_per_token] is an
// expert, and no token has one twice. Throws Error(kBadCheckpoint) naming the token id.
void check_hash_table(const std::int32_t* hash_table, std::int64_t vocab, int experts_per_token,
                      std::int64_t num_experts);

}  // namespace dsv4
