// row_oracle.h: cache rows byte by byte from their rules written out again: scales by search, codes
// by distance. Independent of numerics/ and of the row codec.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "testing/codec_oracle.h"

namespace dsv4 {

// Values of the codes 0 .. 126 of E4M3 and 0 .. 7 of E2M1.
inline std::vector<float> e4m3_magnitudes() {
  std::vector<float> values;
  for (int code = 0; code < 127; ++code) {
    const auto mantissa = static_cast<float>(code % 8);
    const int exponent = code / 8;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -9)
                                   : std::ldexp(1 + mantissa / 8, exponent - 7));
  }
  return values;
}
inline std::vector<float> e2m1_magnitudes() { return {0, 0.5f, 1, 1.5f, 2, 3, 4, 6}; }

// The smallest k with largest * 2^k >= max(amax, floor), by trying all of them.
inline int smallest_exponent(const float* x, std::int64_t n, double largest, double floor) {
  double amax = floor;
  for (std::int64_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(double{x[i]}));
  for (int k = -126;; ++k) {
    if (std::ldexp(largest, k) >= amax) return k;
  }
}

// The code of x / 2^exponent, its sign in `sign_bit`.
inline int signed_code(float x, int exponent, const std::vector<float>& magnitudes, int sign_bit) {
  return nearest_code(std::ldexp(double{x}, -exponent), magnitudes) |
         (std::signbit(x) ? sign_bit : 0);
}

// x finite and below the largest BF16.
inline std::uint16_t nearest_bf16(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const auto low = static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t rest = bits & 0xFFFFu;
  const bool up = rest > 0x8000u || (rest == 0x8000u && low % 2 == 1);
  return static_cast<std::uint16_t>(low + (up ? 1 : 0));
}

// Data bytes of a row, and its scale bytes.
struct RowBytes {
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> scales;
  bool operator==(const RowBytes&) const = default;
};

// E4M3 in blocks of 64 with E8M0 scales padded with zeros to a multiple of 8, then `rope` BF16.
inline RowBytes expected_attention_row(const std::vector<float>& x, std::int64_t rope) {
  const std::int64_t nope = static_cast<std::int64_t>(x.size()) - rope;
  RowBytes row;
  for (std::int64_t begin = 0; begin < nope; begin += 64) {
    const std::int64_t n = std::min<std::int64_t>(64, nope - begin);
    const int k = smallest_exponent(x.data() + begin, n, 448, 1e-4f);
    row.scales.push_back(static_cast<std::uint8_t>(k + 127));
    for (std::int64_t i = begin; i < begin + n; ++i) {
      row.data.push_back(static_cast<std::uint8_t>(signed_code(x[i], k, e4m3_magnitudes(), 0x80)));
    }
  }
  for (std::int64_t i = nope; i < nope + rope; ++i) {
    const std::uint16_t bits = nearest_bf16(x[i]);
    row.data.push_back(static_cast<std::uint8_t>(bits & 0xFF));
    row.data.push_back(static_cast<std::uint8_t>(bits >> 8));
  }
  while (row.scales.size() % 8 != 0) row.scales.push_back(0);
  return row;
}

// E2M1 in blocks of 32, the first of two codes in the low nibble, with E8M0 scales.
inline RowBytes expected_fp4_row(const std::vector<float>& x) {
  RowBytes row;
  row.data.resize(x.size() / 2);
  for (std::size_t begin = 0; begin < x.size(); begin += 32) {
    const int k = smallest_exponent(x.data() + begin, 32, 6, 6 * 0x1p-126);
    row.scales.push_back(static_cast<std::uint8_t>(k + 127));
    for (std::size_t i = begin; i < begin + 32; ++i) {
      const int code = signed_code(x[i], k, e2m1_magnitudes(), 8);
      row.data[i / 2] = static_cast<std::uint8_t>(row.data[i / 2] | code << (i % 2 == 0 ? 0 : 4));
    }
  }
  return row;
}

}  // namespace dsv4
