// Refusals and cost of sampling.
#include "ops/sampling.h"

#include <cmath>

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {

void check(const SamplingParams& p) {
  check_matrix("SamplingParams.logits", p.logits, kF32Format);
  check_at_least("SamplingParams.logits.cols", p.logits.cols, 1);
  check_at_most("SamplingParams.logits.cols", p.logits.cols, "the largest token id + 1",
                std::int64_t{1} << 31);
  if (p.logits.rows == 0) return;
  check_pointer("SamplingParams.rows", p.rows, "[logits.rows]");
  check_pointer("SamplingParams.tokens", p.tokens, "[logits.rows]");
}

Cost cost(const SamplingParams& p) {
  const std::int64_t rows = p.logits.rows;
  const auto row_bytes = static_cast<std::int64_t>(sizeof(SamplingRow));
  // The maximum, the difference to it, its exponential and their sum.
  return {4.0 * static_cast<double>(rows) * static_cast<double>(p.logits.cols),
          matrix_bytes(p.logits) + rows * row_bytes, rows * (p.logprobs == nullptr ? 4 : 8)};
}

void check(const SamplingRow& row) {
  check_not_negative("temperature", row.temperature);
  require(row.top_p > 0 && row.top_p <= 1, ErrorCode::kBadRequest,
          "top_p is {}, must be above 0 and at most 1", row.top_p);
  require(row.min_p >= 0 && row.min_p <= 1, ErrorCode::kBadRequest,
          "min_p is {}, must be at least 0 and at most 1", row.min_p);
  check_at_least("top_k", row.top_k, 0);
  check_at_least("position", row.position, 0);
}

}  // namespace dsv4
