// expert_oracle.h: one output of an expert GEMM in FP64, and how far a correct one may lie from it.
// On decoded rows; which row belongs to which expert is the caller's business.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "numerics/nvfp4.h"
#include "testing/tolerances.h"

namespace dsv4::testing {

// A value, and the largest error of FP32 arithmetic before it is stored.
struct Judged {
  double value = 0;
  double error = 0;

  // What storing it as `format` may add: one rounding. A second one, as of a value that is rounded
  // before its row weight is applied, does not fit.
  Judged stored_as(Format format) const {
    return {value, error + unit_roundoff(format) * (std::fabs(value) + error)};
  }
  // Whether `got`, stored as `format`, is right: NaN and infinities as they are.
  bool allows(double got, Format format) const {
    if (std::isnan(value)) return std::isnan(got);
    if (std::isinf(value)) return got == value;
    return std::fabs(got - value) <= stored_as(format).error;
  }
};

// Sum of x_k w_k. Weights may be rounded when they are decoded, or their global scale be applied to
// the sum: one more rounding either way.
inline Judged judged_dot(const float* x, const float* w, std::int64_t terms) {
  double sum = 0, magnitude = 0;
  for (std::int64_t k = 0; k < terms; ++k) {
    const double product = double{x[k]} * w[k];
    sum += product;
    magnitude += std::fabs(product);
  }
  return {sum, (accumulation_bound(terms) + unit_roundoff(Format::kF32)) * magnitude};
}

// silu(min(gate, L)) * clamp(up, -L, L) * row_weight, L 0: no clamp, which never adds to an error.
inline Judged judged_swiglu(Judged gate, Judged up, double limit, double row_weight) {
  double g = gate.value, u = up.value;
  if (limit > 0) {
    if (g > limit) g = limit;
    if (u > limit) u = limit;
    if (u < -limit) u = -limit;
  }
  const double silu = g / (1 + std::exp(-g));
  // silu'(x) = s (1 + x (1 - s)), s the ascending sigmoid: at most 1.1, and s (1 + |x|).
  const double slope =
      std::min(1.1, (1 + std::fabs(g) + gate.error) / (1 + std::exp(-g - gate.error)));
  // CUDA's fast exponential is off by 2 + 1.2 |g| ulp, of which silu has the part 1 - s; about
  // eight roundings follow. Where the exponential passes 2^126 its reciprocal may be zero.
  const double approximation =
      ((2 + 1.2 * std::fabs(g)) * 0x1p-23 / (1 + std::exp(g)) + 8 * 0x1p-24) * std::fabs(silu) +
      (1 + std::fabs(g)) * 0x1p-125;
  const double silu_error = slope * gate.error + approximation;
  return {silu * u * row_weight, std::fabs(row_weight) * (silu_error * (std::fabs(u) + up.error) +
                                                          std::fabs(silu) * up.error)};
}

// Success: empty. A block of 16 stored as NVFP4 with global scale g: the block scale, and under
// that scale each code, must lie between those of the smallest and of the largest value that `want`
// allows; encoding is monotone.
inline std::string compare_nvfp4_block(const Judged* want, float g, const std::uint8_t* codes,
                                       std::uint8_t block_scale) {
  double smallest_amax = 0, largest_amax = 0;
  for (int i = 0; i < kNvfp4QuantBlock; ++i) {
    const Judged v = want[i].stored_as(Format::kF32);
    smallest_amax = std::max(smallest_amax, std::fabs(v.value) - v.error);
    largest_amax = std::max(largest_amax, std::fabs(v.value) + v.error);
  }
  const std::uint8_t low_scale = nvfp4_block_scale(static_cast<float>(smallest_amax), g);
  const std::uint8_t high_scale = nvfp4_block_scale(static_cast<float>(largest_amax), g);
  if (block_scale < low_scale || block_scale > high_scale) {
    return fmt::format("block scale {}, must be {} to {}", block_scale, low_scale, high_scale);
  }
  const float divisor = nvfp4_divisor(block_scale, g);
  for (int i = 0; i < kNvfp4QuantBlock; ++i) {
    const Judged v = want[i].stored_as(Format::kF32);
    const auto code_of = [&](double value) {
      return decode_e2m1(encode_nvfp4(static_cast<float>(value), divisor));
    };
    const float got = decode_e2m1(i % 2 == 0 ? codes[i / 2] & 0xF : codes[i / 2] >> 4);
    const float low = code_of(v.value - v.error), high = code_of(v.value + v.error);
    if (got < low || got > high) {
      return fmt::format("element {}: E2M1 {}, must be {} to {} for {}", i, got, low, high,
                         v.value);
    }
  }
  return {};
}

}  // namespace dsv4::testing
