// amax.h: what a quantiser must know of its input before it encodes: the largest magnitude, and
// whether every value is finite.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/bits.h"

namespace dsv4 {

// The largest |x[i]| of x [n], 0 if n is 0, NaN if any value is NaN.
constexpr DSV4_HOST_DEVICE float amax(const float* x, std::int64_t n) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits = f32_magnitude_bits(x[i]);
    largest = bits > largest ? bits : largest;
  }
  return f32_from_bits(largest);
}

constexpr DSV4_HOST_DEVICE bool is_finite(float x) {
  return f32_magnitude_bits(x) < kF32InfinityBits;
}

// Neither NaN nor infinity in x [n]. The encoders below this folder's block formats do not check:
// their caller knows the tensor's name and refuses with it.
constexpr DSV4_HOST_DEVICE bool all_finite(const float* x, std::int64_t n) {
  return is_finite(amax(x, n));
}

}  // namespace dsv4
