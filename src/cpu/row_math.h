// row_math.h: rows of plain matrices as FP32, and the arithmetic on whole rows that several ops
// share. Dot products with weights: dot.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/check.h"
#include "cpu/dot.h"
#include "cpu/matmul.h"
#include "cpu/source.h"
#include "numerics/bf16.h"
#include "tensor/matrix_view.h"

namespace dsv4::cpu {

struct RowKernels {
  // Sum of x[k]^2 in FP64: element k goes to lane k mod 16 of 16, k ascending; then lane l += lane
  // l + 8, + 4, + 2, + 1.
  double (*square_sum)(const float* x, std::int64_t n);
  // out[k] = x[k] * factor * weight[k] in FP64, rounded once; weight null: x[k] * factor. out may
  // be x.
  void (*scale_row)(const float* x, double factor, const float* weight, std::int64_t n, float* out);
  // exp_nonpositive of lane_math-inl.h on x [n].
  void (*exp_nonpositive)(const float* x, std::int64_t n, float* out);
};
const RowKernels& row_kernels(std::int64_t targets);

// out = RMSNorm(x; weight) of [n], n > 0; weight null: without. out may be x.
inline void rms_norm_row(const RowKernels& kernels, const float* x, const float* weight,
                         std::int64_t n, float eps, float* out) {
  const double mean = kernels.square_sum(x, n) / static_cast<double>(n);
  kernels.scale_row(x, 1 / std::sqrt(mean + static_cast<double>(eps)), weight, n, out);
}

// Row `row` of a plain matrix: itself where it is FP32, else decoded into scratch [padded(cols)].
inline const float* float_row(const MatrixView& m, std::int64_t row, float* scratch) {
  if (m.format == Format::kF32) return static_cast<const float*>(m.data) + row * m.row_stride;
  DSV4_CHECK(m.format == Format::kBf16);
  const auto* const bits = static_cast<const std::uint16_t*>(m.data) + row * m.row_stride;
  for (std::int64_t k = 0; k < m.cols; ++k) scratch[k] = decode_bf16(bits[k]);
  return scratch;
}

// Where results of a row are computed: the row itself where it is FP32, else scratch [cols], which
// finish_row then rounds and stores.
inline float* result_row(const MutableMatrixView& m, std::int64_t row, float* scratch) {
  return m.format == Format::kF32 ? static_cast<float*>(m.data) + row * m.row_stride : scratch;
}
inline void finish_row(const MutableMatrixView& m, std::int64_t row, const float* values) {
  if (m.format != Format::kF32) store_values(m, row, 0, values, m.cols);
}

// Rows for a chunk of a parallel loop, so that it is worth handing to another thread: some ten
// microseconds.
constexpr std::int64_t row_grain(std::int64_t row_elements, std::int64_t chunk_elements = 16384) {
  return std::max<std::int64_t>(1, chunk_elements / std::max<std::int64_t>(1, row_elements));
}

// The same for conversions, which cost so little a value that it counts how near to each other two
// threads write: by turns a row each, they take cache lines from one another and need twice the
// time. So a large matrix is cut into 128 to 255 chunks.
constexpr std::int64_t conversion_grain(std::int64_t rows, std::int64_t cols,
                                        std::int64_t least = 4096) {
  return std::max(row_grain(cols, least), rows / 128);
}

}  // namespace dsv4::cpu
