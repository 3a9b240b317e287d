// quantize.h: the block encoders over columns of a row of the output, for the ops that write
// quantised rows.
#pragma once

#include <cstdint>

#include "cpu/encode.h"
#include "tensor/matrix_view.h"

namespace dsv4::cpu {

// Writes x [n] into columns [col, col + n) of row `row` of a quantised matrix, codes and block
// scales; col begins a block. `global_scale`, `rounding` and `four_over_six`: NVFP4 only;
// global_scale is not stored.
void encode_columns(const EncodeKernels& kernels, const MutableMatrixView& out, std::int64_t row,
                    std::int64_t col, const float* x, std::int64_t n, float global_scale,
                    E2m1Rounding rounding, bool four_over_six = false);

}  // namespace dsv4::cpu
