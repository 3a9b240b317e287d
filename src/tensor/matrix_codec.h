// matrix_codec.h: reading and writing rows of host matrices of any format as FP32.
//
// Decoding is exact where the value is an FP32 (all formats but NVFP4, whose last product with the
// global scale rounds once). Encoding with block scales is an op of its own (ops/quantize.h).
#pragma once

#include <cstring>

#include "base/check.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Block scale number `idx` of row `row` of scales, decoded.
inline float decode_block_scale(const MatrixView& m, std::int64_t scale_row, std::int64_t idx) {
  const std::int64_t offset = scale_row * m.scale_stride + idx;
  switch (m.scale_dtype) {
    case DType::kE8M0:
      return decode_e8m0(static_cast<const std::uint8_t*>(m.block_scales)[offset]);
    case DType::kE4M3:
      return decode_e4m3(static_cast<const std::uint8_t*>(m.block_scales)[offset]);
    default:
      DSV4_CHECK(m.scale_dtype == DType::kF32);
      return static_cast<const float*>(m.block_scales)[offset];
  }
}

// Decodes row `row` into out [cols].
inline void decode_matrix_row(const MatrixView& m, std::int64_t row, float* out) {
  if (m.cols == 0) return;  // data may be null
  const std::int64_t offset = row * m.row_stride;
  if (m.format == Format::kF32) {
    std::memcpy(out, static_cast<const float*>(m.data) + offset,
                static_cast<std::size_t>(m.cols) * sizeof(float));
    return;
  }
  if (m.format == Format::kBf16) {
    const auto* bits = static_cast<const std::uint16_t*>(m.data) + offset;
    for (std::int64_t k = 0; k < m.cols; ++k) out[k] = decode_bf16(bits[k]);
    return;
  }
  const std::int64_t scale_row = row / m.block_rows;
  const float global_scale =
      m.format == Format::kNvfp4 ? m.global_scales[row * m.global_scale_stride] : 1.0f;
  const auto* codes =
      static_cast<const std::uint8_t*>(m.data) + (is_packed(m.format) ? offset / 2 : offset);
  for (std::int64_t begin = 0; begin < m.cols; begin += m.block_cols) {
    const std::int64_t end = begin + m.block_cols < m.cols ? begin + m.block_cols : m.cols;
    const float block_scale = decode_block_scale(m, scale_row, begin / m.block_cols);
    for (std::int64_t k = begin; k < end; ++k) {
      if (m.format == Format::kE4m3) {
        out[k] = decode_e4m3(codes[k]) * block_scale;
      } else {
        const std::uint8_t code = (k % 2 == 0) ? codes[k / 2] & 0xF : codes[k / 2] >> 4;
        out[k] = decode_e2m1(code) * block_scale * global_scale;
      }
    }
  }
}

// Writes x [cols] into row `row` of an F32 or BF16 matrix.
inline void store_matrix_row(const MutableMatrixView& m, std::int64_t row, const float* x) {
  if (m.cols == 0) return;
  const std::int64_t offset = row * m.row_stride;
  if (m.format == Format::kF32) {
    std::memcpy(static_cast<float*>(m.data) + offset, x,
                static_cast<std::size_t>(m.cols) * sizeof(float));
    return;
  }
  DSV4_CHECK(m.format == Format::kBf16);
  auto* bits = static_cast<std::uint16_t*>(m.data) + offset;
  for (std::int64_t k = 0; k < m.cols; ++k) bits[k] = encode_bf16(x[k]);
}

}  // namespace dsv4
