// quantize.h: rows of FP32 or BF16 values, or of their SwiGLU, to a block-quantised format; back to
// values; and the largest magnitude, which the global scale of a tensor comes from.
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
  // kNvfp4 with static_global_scales: each block takes the better of two block scales,
  //   q = block amax / (6 g), s6 = E4M3(min(q, 448)), s4 = E4M3(min(1.5 q, 448)), all in FP32:
  // s4 if the sum of (x - decoded)^2 over its 16 values, in FP64 by a halving tree, is smaller than
  // with s6 (encode_nvfp4_block_four_over_six of numerics/nvfp4.h). g is usually amax / 1536.
  bool four_over_six = false;
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

// out = quantize(h), with h[r, i] = swiglu(gate[r, i], up[r, i], swiglu_limit, row_weights[r]) of
// numerics/silu.h, each step rounded to FP32: the bytes are the same on every backend. Formats,
// scales, rounding and rows as in QuantizeParams, with h for x; the global scale index of an
// expert-major row is its expert. A NaN or infinity in gate or up spoils its own row only.
//
// For engines that have gate and up from a GEMM of their own, as the two halves of its output's
// columns or as two matrices. The model's own path is expert_gate_up (moe.h), which activates the
// rows itself.
struct SwigluQuantizeParams {
  static constexpr std::string_view kOpName = "swiglu_quantize";
  MatrixView gate;                     // [rows, cols], kF32 or kBf16
  MatrixView up;                       // [rows, cols], format of gate
  float swiglu_limit = 0;              // 0: no clamp
  const float* row_weights = nullptr;  // [rows]; null: 1
  MutableMatrixView out;               // [rows, cols], kE4m3, kMxfp4 or kNvfp4
  E2m1Rounding rounding = E2m1Rounding::kNearestEven;
  const float* static_global_scales = nullptr;
  const std::int32_t* global_scale_idx = nullptr;  // [rows]
  const std::int32_t* row_count = nullptr;         // [1] active rows; null: all
};
void check(const SwigluQuantizeParams& p);
Cost cost(const SwigluQuantizeParams& p);

// out = the largest |x| of a matrix, as decoded to FP32 (DequantizeParams): 0 of an empty one, the
// quiet NaN 7FC00000 if any value is NaN. A maximum has no order.
struct AmaxParams {
  static constexpr std::string_view kOpName = "amax";
  MatrixView x;          // [rows, cols], any format
  float* out = nullptr;  // [1]
};
void check(const AmaxParams& p);
Cost cost(const AmaxParams& p);

// out = x, decoded to FP32 and, for a BF16 output, rounded to nearest even:
//   kE4m3  code * block scale
//   kMxfp4 code * block scale
//   kNvfp4 (code * block scale) * global scale, whose first product is exact
// each product in FP32. A NaN is stored as the quiet NaN, 7FC00000 or 7FC0.
struct DequantizeParams {
  static constexpr std::string_view kOpName = "dequantize";
  MatrixView x;           // [rows, cols], kE4m3 of any tile, kMxfp4 or kNvfp4
  MutableMatrixView out;  // [rows, cols], kF32 or kBf16
};
void check(const DequantizeParams& p);
Cost cost(const DequantizeParams& p);

}  // namespace dsv4
