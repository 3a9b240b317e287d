// order.h: values and their indices as integers that sort as every selection here does.
#pragma once

#include <cstdint>

#include "numerics/bits.h"

namespace dsv4::cpu {

// Ascending, these are: higher value first, -0 equal to 0, NaN below every number.
inline std::uint32_t descending_bits(float value) {
  if (value != value) return 0xFFFFFFFFu;
  const std::uint32_t bits = f32_bits(value + 0.0f);
  return (bits & kF32SignMask) != 0 ? bits : ~(bits | kF32SignMask);
}

// Also, among equals, the lower index first. The index is in the low half.
inline std::uint64_t descending_key(float value, std::uint32_t idx) {
  return std::uint64_t{descending_bits(value)} << 32 | idx;
}
inline std::int32_t key_index(std::uint64_t key) { return static_cast<std::int32_t>(key); }

}  // namespace dsv4::cpu
