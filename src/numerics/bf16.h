// bf16.h: BF16, the upper half of an FP32, to and from FP32.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

// A stored BF16: a type of its own, so that its bits are never read as a number.
struct Bf16 {
  std::uint16_t bits;
};

constexpr DSV4_HOST_DEVICE float decode_bf16(std::uint16_t bits) {
  return f32_from_bits(static_cast<std::uint32_t>(bits) << 16);
}
constexpr DSV4_HOST_DEVICE float decode_bf16(Bf16 x) { return decode_bf16(x.bits); }

// Nearest even; beyond the largest BF16 by half a step or more gives infinity. NaN keeps its sign
// and upper payload and becomes quiet: rounding one could carry it into zero.
constexpr DSV4_HOST_DEVICE std::uint16_t encode_bf16(float x) {
  const std::uint32_t bits = f32_bits(x);
  if (f32_magnitude_bits(x) > kF32InfinityBits) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// x rounded to a BF16 value.
constexpr DSV4_HOST_DEVICE float round_bf16(float x) { return decode_bf16(encode_bf16(x)); }

}  // namespace dsv4
