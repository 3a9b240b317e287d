// sampling.h: one token from each row of logits.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// How one row is sampled. temperature 0: the highest logit, ties to the lower id.
struct SamplingRow {
  float temperature = 1;
  float top_p = 1;         // smallest set of most likely tokens whose sum reaches top_p; (0, 1]
  float min_p = 0;         // drop tokens less likely than min_p times the most likely; [0, 1]
  std::int32_t top_k = 0;  // 0: all
  std::uint64_t seed = 0;
  std::int64_t position = 0;  // of the token to be chosen
};

// Candidates are ordered by descending logit, ties to the lower id; top_k cuts first, then the
// softmax at `temperature` (FP64, in that order), then top_p and min_p; the draw is
// uniform_draw(seed, position) times the sum of what is left. So a token depends on its row, seed
// and position only. A NaN logit is never chosen; a row without any number above -inf gives token
// -1 and logprob NaN.
struct SamplingParams {
  MatrixView logits;                  // [rows, vocab], kF32
  const SamplingRow* rows = nullptr;  // [rows]
  std::int32_t* tokens = nullptr;     // out [rows]
  float* logprobs = nullptr;  // out [rows], ln softmax(logits)[token] at temperature 1; null
};
void check(const SamplingParams& p);
Cost cost(const SamplingParams& p);

// A number in [0, 1) that depends on (seed, position) only: two rounds of SplitMix64's finaliser.
double uniform_draw(std::uint64_t seed, std::int64_t position);

}  // namespace dsv4
