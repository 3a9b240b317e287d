// bits.h: FP32 bit patterns and the one rounding step that the narrow float formats share.
//
// Integer arithmetic only: the result depends neither on the rounding mode nor on flush-to-zero.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dsv4 {

inline constexpr std::uint32_t kF32SignMask = 0x80000000u;
inline constexpr std::uint32_t kF32InfinityBits = 0x7F800000u;
inline constexpr std::uint32_t kF32QuietNanBits = 0x7FC00000u;
inline constexpr int kF32MantissaBits = 23;
inline constexpr int kF32Bias = 127;

// The builtin and not std::bit_cast: nvcc calls it on the device without relaxed constexpr.
constexpr DSV4_HOST_DEVICE std::uint32_t f32_bits(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}
constexpr DSV4_HOST_DEVICE float f32_from_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

// |x| as bits: ordered like the magnitudes, infinity above every finite value, NaN above infinity.
constexpr DSV4_HOST_DEVICE std::uint32_t f32_magnitude_bits(float x) {
  return f32_bits(x) & ~kF32SignMask;
}

// value / 2^shift to the nearest integer, ties to even, for value < 2^31 and 1 <= shift <= 31.
constexpr DSV4_HOST_DEVICE std::uint32_t shift_right_to_even(std::uint32_t value, int shift) {
  const std::uint32_t half_less_one = (1u << (shift - 1)) - 1u;
  const std::uint32_t odd = (value >> shift) & 1u;
  return (value + half_less_one + odd) >> shift;
}

// |x| * 2^fraction_bits to the nearest integer, ties to even; |x| * 2^fraction_bits < 2^22.
constexpr DSV4_HOST_DEVICE std::uint32_t round_to_fixed_point(std::uint32_t magnitude_bits,
                                                              int fraction_bits) {
  const int exponent = static_cast<int>(magnitude_bits >> kF32MantissaBits);
  const int shift = kF32Bias + kF32MantissaBits - fraction_bits - exponent;
  // The significand is below 2^24. FP32 subnormals, which lack the implicit bit, end here as well.
  if (shift > 24) return 0;
  const std::uint32_t significand = (magnitude_bits & 0x007FFFFFu) | 0x00800000u;
  return shift_right_to_even(significand, shift);
}

// The code of a finite |x| in a float format with kMantissaBits and kBias and without an upper
// limit, to nearest even: the exponent field above the mantissa field, a rounding carry moving into
// the exponent by itself. The caller saturates.
template <int kMantissaBits, int kBias>
constexpr DSV4_HOST_DEVICE std::uint32_t round_to_minifloat(std::uint32_t magnitude_bits) {
  constexpr int kSmallestNormal = kF32Bias + 1 - kBias;  // as an FP32 exponent field
  if (static_cast<int>(magnitude_bits >> kF32MantissaBits) < kSmallestNormal) {
    return round_to_fixed_point(magnitude_bits, kBias - 1 + kMantissaBits);
  }
  constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(kF32Bias - kBias) << kMantissaBits;
  return shift_right_to_even(magnitude_bits, kF32MantissaBits - kMantissaBits) - kRebias;
}

}  // namespace dsv4
