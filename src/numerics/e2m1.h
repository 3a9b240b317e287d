// e2m1.h: E2M1, the four-bit element of NVFP4 and MXFP4, to and from FP32.
//
// Codes 0..7 are 0 .5 1 1.5 2 3 4 6, bit 3 is the sign; no infinity, no NaN. Block formats and
// packing: nvfp4.h, mxfp4.h, pack.h.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

inline constexpr float kE2m1Max = 6.0f;

enum class E2m1Rounding : std::uint8_t {
  kNearestEven,  // bit-equal to cvt.rn.satfinite.e2m1x2.f32 for every x that is not NaN
  kHalfStep,     // rounds twice, as some deployed kernels do: 5.25 -> 4, 2.6 -> 2
};

// The value of the low four bits; the others are ignored.
constexpr DSV4_HOST_DEVICE float decode_e2m1(std::uint8_t code) {
  const std::uint32_t sign = (code & 8u) << 28;
  const std::uint32_t magnitude = code & 7u;
  if (magnitude < 2) return f32_from_bits(sign | (magnitude != 0 ? 0x3F000000u : 0u));
  // Exponent field e of E2M1 is e + 126 in FP32; the mantissa bit becomes FP32's highest.
  return f32_from_bits(sign | ((magnitude << 22) + (126u << kF32MantissaBits)));
}

namespace numerics_detail {

// h = rint(2 |x|), half steps 0..12, then h to the code by a fixed table that itself rounds.
constexpr DSV4_HOST_DEVICE std::uint32_t e2m1_half_step_code(std::uint32_t magnitude_bits) {
  constexpr std::uint64_t kCodeOfHalfSteps = 0x7766665443210u;  // nibble h is the code of h / 2
  const std::uint32_t half_steps = round_to_fixed_point(magnitude_bits, 1);
  return static_cast<std::uint32_t>(kCodeOfHalfSteps >> (4u * half_steps)) & 7u;
}

}  // namespace numerics_detail

// The code of x, 0..15. Saturates at +-6 (infinities included); -0 keeps its sign. NaN gives a zero
// of the opposite sign, as the golden codes have it; a caller that must refuse NaN does so before.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_e2m1(
    float x, E2m1Rounding rounding = E2m1Rounding::kNearestEven) {
  const std::uint32_t sign = (f32_bits(x) >> 28) & 8u;
  const std::uint32_t magnitude_bits = f32_magnitude_bits(x);
  if (magnitude_bits > kF32InfinityBits) return static_cast<std::uint8_t>(sign ^ 8u);
  std::uint32_t code = 7;
  if (magnitude_bits < f32_bits(kE2m1Max)) {
    code = rounding == E2m1Rounding::kHalfStep
               ? numerics_detail::e2m1_half_step_code(magnitude_bits)
               : round_to_minifloat<1, 1>(magnitude_bits);
  }
  return static_cast<std::uint8_t>(sign | code);
}

}  // namespace dsv4
