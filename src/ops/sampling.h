// sampling.h: one token from each row of logits.
#pragma once

#include <cstdint>

#include "base/host_device.h"
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
// and position only. Logits of +inf are equally likely and leave nothing to the others.
// A row with a NaN logit, which only damage can make, or without any logit above -inf gives token
// -1 and logprob NaN.
struct SamplingParams {
  static constexpr std::string_view kOpName = "sampling";
  MatrixView logits;                  // [rows, vocab], kF32
  const SamplingRow* rows = nullptr;  // [rows]
  std::int32_t* tokens = nullptr;     // out [rows]
  float* logprobs = nullptr;  // out [rows], ln softmax(logits)[token] at temperature 1; null
};
void check(const SamplingParams& p);
Cost cost(const SamplingParams& p);

// Refuses what a user may not ask for, by field; the rows of SamplingParams have passed it.
void check(const SamplingRow& row);

// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits.
constexpr DSV4_HOST_DEVICE std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// A number in [0, 1) that depends on (seed, position) only: two rounds of SplitMix64's finaliser.
constexpr DSV4_HOST_DEVICE double uniform_draw(std::uint64_t seed, std::int64_t position) {
  constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15u;
  const std::uint64_t stream_start = mix_bits(seed + kGoldenRatio);
  const std::uint64_t steps = static_cast<std::uint64_t>(position) + 1;
  return static_cast<double>(mix_bits(stream_start + steps * kGoldenRatio) >> 11) * 0x1p-53;
}

}  // namespace dsv4
