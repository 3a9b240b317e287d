// e4m3.h: E4M3 (bias 7, largest 448, no infinity, NaN 7F and FF) to and from FP32.
//
// Scales and blocks of codes: nvfp4.h (block scales), fp8_block.h (weights, activations, cache
// rows).
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

inline constexpr float kE4m3Max = 448.0f;

// Codes 7F and FF give a quiet NaN of their sign.
constexpr DSV4_HOST_DEVICE float decode_e4m3(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7F) return f32_from_bits(sign | kF32QuietNanBits);
  if (magnitude < 8) {  // subnormal: mantissa / 512
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return f32_from_bits(sign | f32_bits(value));
  }
  return f32_from_bits(sign | ((magnitude << 20) + (120u << kF32MantissaBits)));
}

// Nearest even, saturating: beyond +-448, infinities included, 7E or FE; every NaN 7F.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_e4m3(float x) {
  const std::uint32_t magnitude_bits = f32_magnitude_bits(x);
  if (magnitude_bits > kF32InfinityBits) return 0x7F;
  const std::uint32_t code =
      magnitude_bits >= f32_bits(kE4m3Max) ? 0x7E : round_to_minifloat<3, 7>(magnitude_bits);
  return static_cast<std::uint8_t>(((f32_bits(x) >> 24) & 0x80u) | code);
}

// Nearest even without saturation: beyond 464, half a step above the largest value, the NaN of
// x's sign. NaN keeps its sign.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_e4m3_nonsaturating(float x) {
  const std::uint32_t magnitude_bits = f32_magnitude_bits(x);
  const std::uint32_t code =
      magnitude_bits > f32_bits(464.0f) ? 0x7F : round_to_minifloat<3, 7>(magnitude_bits);
  return static_cast<std::uint8_t>(((f32_bits(x) >> 24) & 0x80u) | code);
}

}  // namespace dsv4
