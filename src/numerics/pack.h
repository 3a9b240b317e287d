// pack.h: two E2M1 codes in a byte, the first element in the low nibble.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace dsv4 {

// Only the low four bits of each code are taken.
constexpr DSV4_HOST_DEVICE std::uint8_t pack_e2m1(std::uint8_t low, std::uint8_t high) {
  return static_cast<std::uint8_t>((low & 0xFu) | ((high & 0xFu) << 4));
}
constexpr DSV4_HOST_DEVICE std::uint8_t unpack_e2m1_low(std::uint8_t packed) {
  return packed & 0xFu;
}
constexpr DSV4_HOST_DEVICE std::uint8_t unpack_e2m1_high(std::uint8_t packed) {
  return static_cast<std::uint8_t>(packed >> 4);
}

// The code of element `idx` of a packed row.
constexpr DSV4_HOST_DEVICE std::uint8_t unpack_e2m1(const std::uint8_t* packed, std::int64_t idx) {
  const std::uint8_t pair = packed[idx / 2];
  return idx % 2 == 0 ? unpack_e2m1_low(pair) : unpack_e2m1_high(pair);
}

}  // namespace dsv4
