// norm.h: root-mean-square normalisation of rows, with or without a weight.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// out[r] = x[r] * rsqrt(mean(x[r]^2) + eps) * weight, in FP32. Per-head norms pass each head as a
// row. out may be x. Order: the squares are summed k ascending (reference: in FP64).
struct RmsNormParams {
  static constexpr std::string_view kOpName = "rms_norm";
  MatrixView x;       // [rows, cols], kF32 or kBf16
  MatrixView weight;  // [1, cols], kF32 or kBf16; data null: no weight
  float eps = 0;
  MutableMatrixView out;                    // [rows, cols], kF32 or kBf16
  const std::int32_t* row_count = nullptr;  // [1] active rows; null: all
};
void check(const RmsNormParams& p);
Cost cost(const RmsNormParams& p);

}  // namespace dsv4
