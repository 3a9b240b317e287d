// e8m0.h: E8M0, the power-of-two block scale of MXFP4 and of E4M3 blocks, and the model's two rules
// for choosing one from a block's amax.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

inline constexpr std::uint8_t kE8m0Nan = 0xFF;
inline constexpr std::uint8_t kE8m0Max = 0xFE;  // 2^127
inline constexpr std::uint8_t kE8m0One = 127;

// 2^(code - 127); code 0 is an FP32 subnormal, 0xFF NaN.
constexpr DSV4_HOST_DEVICE float decode_e8m0(std::uint8_t code) {
  if (code == kE8m0Nan) return f32_from_bits(kF32QuietNanBits);
  if (code == 0) return f32_from_bits(0x00400000u);
  return f32_from_bits(static_cast<std::uint32_t>(code) << kF32MantissaBits);
}

// The code of the smallest power of two >= x, from the bits of x. Clamped to what E8M0 holds: 0 for
// x <= 2^-127 (zero and negative x too), kE8m0Max above 2^127 (infinity too). NaN gives kE8m0Nan.
constexpr DSV4_HOST_DEVICE std::uint8_t e8m0_ceil(float x) {
  const std::uint32_t bits = f32_bits(x);
  if (f32_magnitude_bits(x) > kF32InfinityBits) return kE8m0Nan;
  if ((bits & kF32SignMask) != 0 || bits <= 0x00400000u) return 0;
  // Adding all but the exponent carries into it unless the mantissa is zero. The subnormals above
  // 2^-127 carry to 1, which is 2^-126, as they must.
  const std::uint32_t code = (bits + 0x007FFFFFu) >> kF32MantissaBits;
  return code > kE8m0Max ? kE8m0Max : static_cast<std::uint8_t>(code);
}

namespace numerics_detail {

// The code of the smallest 2^k with largest_code * 2^k >= amax, for a normal, finite amax and a
// power of two large enough not to leave E8M0. No quotient is formed, so nothing is rounded: with
// largest_code = m * 2^e, k is amax's exponent - e, and one more if amax's mantissa exceeds m.
constexpr DSV4_HOST_DEVICE std::uint8_t block_exponent(float amax, float largest_code) {
  const std::uint32_t distance = f32_bits(amax) - f32_bits(largest_code);
  const std::uint32_t ceiling = distance + 0x007FFFFFu + (kF32Bias << kF32MantissaBits);
  return static_cast<std::uint8_t>(ceiling >> kF32MantissaBits);
}

}  // namespace numerics_detail

// Below these a block's amax counts as this much, so that a zero block has a usable scale.
inline constexpr float kE4m3AmaxFloor = 1e-4f;
inline constexpr float kMxfp4AmaxFloor = 6.0f * 0x1p-126f;

// The code of 2^ceil(log2(max(amax, 1e-4) / 448)): E4M3 blocks of cache rows and activations.
// Exact: the smallest power of two whose 448-fold is >= amax. amax is finite and >= 0.
constexpr DSV4_HOST_DEVICE std::uint8_t e4m3_block_exponent(float amax) {
  return numerics_detail::block_exponent(amax > kE4m3AmaxFloor ? amax : kE4m3AmaxFloor, 448.0f);
}

// The code of 2^ceil(log2(max(amax, 6 * 2^-126) / 6)): MXFP4 blocks. Exact as above.
constexpr DSV4_HOST_DEVICE std::uint8_t mxfp4_block_exponent(float amax) {
  return numerics_detail::block_exponent(amax > kMxfp4AmaxFloor ? amax : kMxfp4AmaxFloor, 6.0f);
}

}  // namespace dsv4
