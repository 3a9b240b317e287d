// math.h: integer arithmetic on sizes, all of it 64-bit.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "base/host_device.h"

namespace dsv4 {

// Both for a >= 0, b > 0; no overflow for any a that is a size in memory.
constexpr DSV4_HOST_DEVICE std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}
constexpr DSV4_HOST_DEVICE std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}
constexpr DSV4_HOST_DEVICE bool is_power_of_two(std::int64_t a) {
  return a > 0 && (a & (a - 1)) == 0;
}

// a * b and a + b for untrusted non-negative sizes; empty when negative or past 2^63 - 1.
constexpr std::optional<std::int64_t> checked_mul(std::int64_t a, std::int64_t b) {
  if (a < 0 || b < 0) return std::nullopt;
  if (a != 0 && b > std::numeric_limits<std::int64_t>::max() / a) return std::nullopt;
  return a * b;
}
constexpr std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
  if (a < 0 || b < 0 || b > std::numeric_limits<std::int64_t>::max() - a) return std::nullopt;
  return a + b;
}

}  // namespace dsv4
