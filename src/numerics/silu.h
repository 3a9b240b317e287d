// silu.h: SiLU and SwiGLU in FP32 with the same bits on every host and device.
//
// The exponentials of C libraries and of CUDA differ in their last bits, which changes codes once
// the result is quantised. Here every step is one FP32 operation rounded to nearest even, so only
// that has to agree; build without contraction and without fast-math.
#pragma once

#include <cmath>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

// Above the larger silu(x) is x. Below the smaller it is -0: there, and down from -126 ln 2 =
// -87.34 already, its magnitude is under 1.1e-36.
inline constexpr float kSiluLow = -88.0f;
inline constexpr float kSiluHigh = 87.0f;
// 1 / x is subnormal beyond it, and taken as 0.
inline constexpr float kSiluMaxDivisor = 0x1p126f;

// e^-x for kSiluLow <= x <= kSiluHigh: 2^n * 2^f with n an integer and |f| <= 1/2. Any other x, NaN
// included, gives an unspecified value.
inline DSV4_HOST_DEVICE float exp_negative(float x) {
  // -log2(e) in two parts; the second is what FP32 cuts off the first.
  constexpr float kLog2eHigh = -0x1.715476p+0f;
  constexpr float kLog2eLow = -0x1.4ae0cp-26f;
  // Adding it leaves the nearest integer in the low bits.
  constexpr float kToInteger = 0x1.8p+23f;
  const float shifted = std::fma(x, kLog2eHigh, kToInteger);
  const float n = shifted - kToInteger;
  const float f = std::fma(x, kLog2eLow, std::fma(x, kLog2eHigh, -n));
  // 2^f, relative error 2.2e-8: minimax with the value 1 at 0.
  float power = 0x1.470b46p-13f;
  power = std::fma(power, f, 0x1.5f7276p-10f);
  power = std::fma(power, f, 0x1.3b270ep-7f);
  power = std::fma(power, f, 0x1.c6ae72p-5f);
  power = std::fma(power, f, 0x1.ebfbe2p-3f);
  power = std::fma(power, f, 0x1.62e432p-1f);
  power = std::fma(power, f, 1.0f);
  return f32_from_bits(f32_bits(power) + (f32_bits(shifted) << kF32MantissaBits));
}

// x / (1 + e^-x) within 3 units of the result's last place where it is not -0. As in that formula
// -0 gives -0, infinity infinity, and -infinity and NaN a NaN.
inline DSV4_HOST_DEVICE float silu(float x) {
  const float divisor = 1.0f + exp_negative(x < kSiluLow    ? kSiluLow
                                            : x > kSiluHigh ? kSiluHigh
                                                            : x);
  return x * (divisor > kSiluMaxDivisor ? 0.0f : 1.0f / divisor);
}

// (silu(min(gate, limit)) * clamp(up, -limit, limit)) * row_weight; limit 0: no clamp. A NaN of
// gate or up stays NaN.
inline DSV4_HOST_DEVICE float swiglu(float gate, float up, float limit, float row_weight) {
  if (limit > 0) {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
  }
  return silu(gate) * up * row_weight;
}

}  // namespace dsv4
