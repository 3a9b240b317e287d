// quantize.h: the block encoders over a row of the output, for the reference's ops that write
// quantised rows.
#pragma once

#include <cstdint>

#include "numerics/e2m1.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Writes x [out.cols] into row `row` of a quantised matrix: codes and block scales. `global_scale`,
// `rounding` and `four_over_six`: NVFP4 only; global_scale is not stored.
void encode_matrix_row(const MutableMatrixView& out, std::int64_t row, const float* x,
                       float global_scale, E2m1Rounding rounding, bool four_over_six = false);

}  // namespace dsv4
