// quantize.h: rows of FP32 or BF16 values to a block-quantised format.
#pragma once

#include <cstdint>

#include "numerics/e2m1.h"
#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// out = quantize(x), each row by itself.
//   kE4m3  (block_rows 1, block_cols 128, E8M0): scale 2^ceil(log2(max(amax, 1e-4) / 448)), code =
//          E4M3(x / scale); the last block of a row may be short
//   kMxfp4 (1 x 32, E8M0): scale 2^ceil(log2(max(amax, 6 * 2^-126) / 6)), code = E2M1(x / scale)
//   kNvfp4 (1 x 16, E4M3, global scale g): s = E4M3(min(block amax / (6 g), 448)), p = s * g,
//          code = E2M1(x / p), all in FP32; p = 0 gives codes 0
// A NaN or infinite input gives unspecified codes of its own row; other rows are unaffected.
struct QuantizeParams {
  static constexpr std::string_view kOpName = "quantize";
  MatrixView x;           // [rows (or as row_idx says), cols], kF32 or kBf16
  MutableMatrixView out;  // [rows, cols], kE4m3, kMxfp4 or kNvfp4
  E2m1Rounding rounding = E2m1Rounding::kNearestEven;
  // kNvfp4: g of row r is static_global_scales[global_scale_idx[r]] (index null: 0 for all rows),
  // copied to out.global_scales where that has one a row. Null: dynamic, g = row amax / 2688 (1 for
  // a zero row), written to out.global_scales[r], stride 1.
  const float* static_global_scales = nullptr;
  const std::int32_t* global_scale_idx = nullptr;  // [rows]
  const std::int32_t* row_idx = nullptr;    // [rows] out row r comes from x row row_idx[r]; null: r
  const std::int32_t* row_count = nullptr;  // [1] active rows of out; null: all
};
void check(const QuantizeParams& p);
Cost cost(const QuantizeParams& p);

}  // namespace dsv4
