// quantize_oracle.h: quantisation of rows by the rules of ops/quantize.h, for tests.
//
// It searches decoded values in double and shares no bit arithmetic with numerics/.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "testing/cases/quantize_cases.h"
#include "testing/codec_oracle.h"
#include "testing/comparator.h"

namespace dsv4::testing {

inline const std::vector<float> kE2m1Values = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

// By code, without NaN.
inline std::vector<float> make_e4m3_values() {
  std::vector<float> values;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3;
    const int mantissa = code & 7;
    values.push_back(exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
  }
  return values;
}

inline const std::vector<float>& e4m3_values() {
  static const std::vector<float> values = make_e4m3_values();
  return values;
}

inline int signed_code(double x, const std::vector<float>& magnitudes, int sign_bit) {
  return nearest_code(x, magnitudes) | (std::signbit(x) ? sign_bit : 0);
}

// E2M1 by rounding to whole half steps first, then by the table of MODEL's compatibility rounding.
inline int half_step_code(double x) {
  const int half_steps = static_cast<int>(std::nearbyint(std::fmin(std::fabs(x), 6.0) * 2));
  const int codes[] = {0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6, 7, 7};
  return codes[half_steps] | (std::signbit(x) ? 8 : 0);
}

// The exponent k of the smallest 2^k with largest * 2^k >= max(amax, floor).
inline int smallest_exponent(double amax_value, double floor, double largest) {
  int k = -126;
  while (std::ldexp(largest, k) < std::fmax(amax_value, floor)) ++k;
  return k;
}

inline double largest_magnitude(const float* x, std::int64_t n) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(double{x[i]}));
  return largest;
}

inline void set_code(HostMatrix& m, std::int64_t row, std::int64_t col, int code) {
  const std::int64_t byte =
      row * data_bytes(m.spec.format, m.row_stride) + (is_packed(m.spec.format) ? col / 2 : col);
  std::uint8_t& target = m.data[static_cast<std::size_t>(byte)];
  if (!is_packed(m.spec.format)) {
    target = static_cast<std::uint8_t>(code);
  } else if (col % 2 == 0) {
    target = static_cast<std::uint8_t>(code);
  } else {
    target = static_cast<std::uint8_t>(target | code << 4);
  }
}

// What a block becomes: its scale's code and the codes of its values.
struct EncodedBlock {
  int scale_code = 0;
  std::vector<int> codes;
};

inline EncodedBlock power_of_two_block_ref(Format format, const float* x, std::int64_t n) {
  const bool fp8 = format == Format::kE4m3;
  const double block_amax = largest_magnitude(x, n);
  const int k = fp8 ? smallest_exponent(block_amax, double{1e-4f}, 448)
                    : smallest_exponent(block_amax, std::ldexp(6.0, -126), 6);
  EncodedBlock block{k + 127, {}};
  for (std::int64_t i = 0; i < n; ++i) {
    const double quotient = std::ldexp(double{x[i]}, -k);
    block.codes.push_back(fp8 ? signed_code(quotient, e4m3_values(), 0x80)
                              : signed_code(quotient, kE2m1Values, 8));
  }
  return block;
}

// `ratio` = what the block scale rounds, in FP32.
inline EncodedBlock nvfp4_block_ref(const float* x, float ratio, float g, E2m1Rounding rounding) {
  EncodedBlock block;
  block.scale_code = largest_magnitude(x, 16) == 0 ? 0 : nearest_code(ratio, e4m3_values());
  const float p = e4m3_values()[static_cast<std::size_t>(block.scale_code)] * g;
  for (int i = 0; i < 16; ++i) {
    const float quotient = p == 0 ? 0 : x[i] / p;
    block.codes.push_back(rounding == E2m1Rounding::kHalfStep
                              ? half_step_code(quotient)
                              : signed_code(quotient, kE2m1Values, 8));
  }
  return block;
}

inline double squared_error_ref(const float* x, const EncodedBlock& block, float g) {
  const float scale = e4m3_values()[static_cast<std::size_t>(block.scale_code)];
  std::vector<double> squares;
  for (std::size_t i = 0; i < 16; ++i) {
    const float magnitude = kE2m1Values[static_cast<std::size_t>(block.codes[i] & 7)] * scale * g;
    squares.push_back(std::pow(double{x[i]} - (block.codes[i] >= 8 ? -magnitude : magnitude), 2));
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) squares[i] += squares[i + half];
  }
  return squares[0];
}

inline EncodedBlock block_ref(const QuantizeCase& c, const float* x, std::int64_t n, float g) {
  if (c.out.format != Format::kNvfp4) return power_of_two_block_ref(c.out.format, x, n);
  const float ratio = static_cast<float>(largest_magnitude(x, n)) / (6.0f * g);
  const EncodedBlock to_six = nvfp4_block_ref(x, ratio, g, c.rounding);
  if (!c.four_over_six) return to_six;
  const EncodedBlock to_four = nvfp4_block_ref(x, 1.5f * ratio, g, c.rounding);
  return squared_error_ref(x, to_four, g) < squared_error_ref(x, to_six, g) ? to_four : to_six;
}

inline HostMatrix quantize_ref(const QuantizeCase& c, const HostMatrix& x) {
  HostMatrix out(c.out, c.out_rows(x), x.cols);
  const std::vector<float> values = x.values();
  for (std::int64_t row = 0; row < c.row_count.value_or(static_cast<std::int32_t>(out.rows));
       ++row) {
    const auto r = static_cast<std::size_t>(row);
    const float* row_x = values.data() + (c.row_idx.empty() ? row : c.row_idx[r]) * x.cols;
    if (c.out.format == Format::kNvfp4) {
      const double row_amax = largest_magnitude(row_x, x.cols);
      float g = row_amax > 0 ? static_cast<float>(row_amax) / 2688.0f : 1.0f;
      if (!c.static_global_scales.empty()) {
        const std::int32_t idx = c.global_scale_idx.empty() ? 0 : c.global_scale_idx[r];
        g = c.static_global_scales[static_cast<std::size_t>(idx)];
      }
      out.global_scales[r] = g;
    }
    for (std::int64_t begin = 0; begin < x.cols; begin += c.out.block_cols) {
      const std::int64_t n = std::min(c.out.block_cols, x.cols - begin);
      const float g = out.global_scales.empty() ? 1 : out.global_scales[r];
      const EncodedBlock block = block_ref(c, row_x + begin, n, g);
      out.block_scales[static_cast<std::size_t>(row * out.scale_stride +
                                                begin / c.out.block_cols)] =
          static_cast<std::uint8_t>(block.scale_code);
      for (std::int64_t i = 0; i < n; ++i) {
        set_code(out, row, begin + i, block.codes[static_cast<std::size_t>(i)]);
      }
    }
  }
  return out;
}

inline void expect_same_matrix(const HostMatrix& got, const HostMatrix& want) {
  EXPECT_SAME_BITS(got.data, want.data);
  EXPECT_SAME_BITS(got.block_scales, want.block_scales);
  EXPECT_SAME_BITS(got.global_scales, want.global_scales);
}

}  // namespace dsv4::testing
