// rows.h: what the reference's ops share: active rows, parts of rows, and rows as FP32 vectors.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/matrix_codec.h"

namespace dsv4 {

// Rows that an op computes: *row_count limited to 0 .. rows, or all of them without a count.
inline std::int64_t active_rows(const std::int32_t* row_count, std::int64_t rows) {
  return row_count == nullptr ? rows : std::clamp<std::int64_t>(*row_count, 0, rows);
}

// Columns [begin, begin + cols) of a plain matrix.
inline MutableMatrixView plain_columns(const MutableMatrixView& m, std::int64_t begin,
                                       std::int64_t cols) {
  DSV4_CHECK(!is_quantized(m.format));
  MutableMatrixView part = m;
  part.data = static_cast<std::byte*>(m.data) + data_bytes(m.format, begin);
  part.cols = cols;
  return part;
}

inline std::vector<float> decoded_row(const MatrixView& m, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(m.cols));
  decode_matrix_row(m, row, values.data());
  return values;
}

// Sum of a[k] * b[k], k ascending, in FP64.
inline double dot(const float* a, const float* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < n; ++k) sum += static_cast<double>(a[k]) * b[k];
  return sum;
}

}  // namespace dsv4
