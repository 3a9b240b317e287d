// matrix_view.h: a matrix in any format that the ops read or write: plain or block-quantised.
//
// Views own nothing. `data` may be device memory: only the backend that owns it may follow it.
// Reading elements on the host: matrix_codec.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/dtype.h"

namespace dsv4 {

// What the elements of a matrix are.
//   kE4m3:  E4M3 codes with one scale (E8M0 or FP32) per block_rows x block_cols tile
//   kMxfp4: E2M1 codes, two a byte (first element in the low nibble), an E8M0 scale per 1 x 32
//   kNvfp4: E2M1 codes, two a byte, an E4M3 scale per 1 x 16, an FP32 global scale
enum class Format : std::uint8_t { kF32, kBf16, kE4m3, kMxfp4, kNvfp4 };

constexpr std::string_view to_string(Format format) {
  switch (format) {
    case Format::kF32:
      return "F32";
    case Format::kBf16:
      return "BF16";
    case Format::kE4m3:
      return "FP8";
    case Format::kMxfp4:
      return "MXFP4";
    case Format::kNvfp4:
      return "NVFP4";
  }
  return "?";
}

constexpr bool is_quantized(Format format) {
  return format != Format::kF32 && format != Format::kBf16;
}
constexpr bool is_packed(Format format) {
  return format == Format::kMxfp4 || format == Format::kNvfp4;
}

// Bytes of `cols` consecutive elements, without scales; cols is even when packed.
constexpr std::int64_t data_bytes(Format format, std::int64_t cols) {
  switch (format) {
    case Format::kF32:
      return 4 * cols;
    case Format::kBf16:
      return 2 * cols;
    case Format::kE4m3:
      return cols;
    case Format::kMxfp4:
    case Format::kNvfp4:
      return cols / 2;
  }
  return 0;
}

// Shared by the const and the mutable view.
template <class Void, class Float>
struct BasicMatrixView {
  Void* data = nullptr;  // [rows, cols], row-major, `row_stride` elements from row to row
  Format format = Format::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;

  // Quantised formats only. One scale per block_rows x block_cols elements; the scales are
  // [ceil(rows / block_rows), ceil(cols / block_cols)], `scale_stride` from row to row.
  Void* block_scales = nullptr;
  DType scale_dtype = DType::kE8M0;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 0;
  std::int64_t scale_stride = 0;

  // kNvfp4 only: the global scale of row r is global_scales[r * global_scale_stride]
  // (stride 0: one for the matrix, 1: one a row).
  Float* global_scales = nullptr;
  std::int64_t global_scale_stride = 0;

  bool empty() const { return rows == 0 || cols == 0; }
};

using MatrixView = BasicMatrixView<const void, const float>;
struct MutableMatrixView : BasicMatrixView<void, float> {
  operator MatrixView() const {
    return {data,        format,     rows,       cols,         row_stride,    block_scales,
            scale_dtype, block_rows, block_cols, scale_stride, global_scales, global_scale_stride};
  }
};

// Contiguous plain matrices.
inline MatrixView f32_matrix(const float* data, std::int64_t rows, std::int64_t cols) {
  return {data, Format::kF32, rows, cols, cols};
}
inline MutableMatrixView f32_matrix(float* data, std::int64_t rows, std::int64_t cols) {
  return {{data, Format::kF32, rows, cols, cols}};
}
inline MatrixView bf16_matrix(const std::uint16_t* data, std::int64_t rows, std::int64_t cols) {
  return {data, Format::kBf16, rows, cols, cols};
}
inline MutableMatrixView bf16_matrix(std::uint16_t* data, std::int64_t rows, std::int64_t cols) {
  return {{data, Format::kBf16, rows, cols, cols}};
}

}  // namespace dsv4
