// tolerances.h: how far two correct results may lie apart, as formulas. No constant here was tuned
// to what happened to pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/math.h"
#include "tensor/matrix_view.h"
#include "testing/comparator.h"

namespace dsv4::testing {

// The relative error of one rounding to nearest: 2^-24 for FP32, 2^-8 for BF16 (8 significant
// bits).
constexpr double unit_roundoff(Format format) { return format == Format::kBf16 ? 0x1p-8 : 0x1p-24; }

// One unit in the last place relative to the value, at most: what two values that lie arbitrarily
// close can differ by once both are rounded to `format`.
constexpr double one_ulp(Format format) { return 2 * unit_roundoff(format); }

// The longest chain of FP32 additions that a term may pass through, in the deeper of the two trees
// that backends use; FP64 is far within either.
//   chunks: at most 256 terms one after the other, then their sums one by one
//   lanes:  every sixteenth term one after the other, then four halvings (docs/kernels/cpu.md); the
//           deeper one above 4300 terms
constexpr std::int64_t kChunkTerms = 256;
constexpr std::int64_t kLaneSums = 16;
constexpr std::int64_t reduction_depth(std::int64_t terms) {
  const std::int64_t chunks = std::min(terms, kChunkTerms) + ceil_div(terms, kChunkTerms);
  const std::int64_t lanes = ceil_div(terms, kLaneSums) + 4;
  return std::max(chunks, lanes);
}

// Error of sum x_k w_k in FP32, relative to sum |x_k w_k|: each product rounds once, each term then
// takes part in at most reduction_depth additions (Higham, Accuracy and Stability, 3.1, first
// order). At K = 4096 it is 1.6e-5, so a lost term of average size, 1/4096, is caught; from about
// 16300 terms on it would not be.
constexpr double accumulation_bound(std::int64_t terms) {
  return static_cast<double>(reduction_depth(terms) + 1) * unit_roundoff(Format::kF32);
}

// The same for terms that a contract adds one after the other, however many they are.
constexpr double chain_bound(std::int64_t terms) {
  return static_cast<double>(terms + 1) * unit_roundoff(Format::kF32);
}

// A sum of `terms` products stored as `format`; magnitudes [elements] are the sums of |x_k w_k|.
inline Tolerance sum_tolerance(std::int64_t terms, std::vector<double> magnitudes, Format format) {
  Tolerance tolerance;
  tolerance.relative = one_ulp(format);
  tolerance.of_magnitude = accumulation_bound(terms);
  tolerance.magnitudes = std::move(magnitudes);
  return tolerance;
}

// A value that passed through `roundings` FP32 operations without cancellation, stored as `format`.
inline Tolerance rounding_tolerance(int roundings, Format format) {
  Tolerance tolerance;
  tolerance.relative = roundings * unit_roundoff(Format::kF32) + one_ulp(format);
  return tolerance;
}

}  // namespace dsv4::testing
