// tensor_map.h: descriptions of matrices in device memory for the tensor copies of Hopper's copy
// engine (cp.async.bulk.tensor). The copies: cuda::ptx.
#pragma once

#include <cuda.h>

#include "tensor/matrix_view.h"

namespace dsv4::cuda {

// Of a BF16 matrix whose columns are whole chunks of 64, in boxes of `rows` rows (at most 256) by
// `chunks` chunks. Coordinates: 0, row, chunk. A box arrives a chunk behind the other, each K-major
// in the 128-byte swizzle (device/wgmma.h), with zeros for what lies outside of the matrix. Data
// and rows must be aligned to 16 bytes; rows and columns at least 1. Throws Error.
CUtensorMap swizzled_boxes(const MatrixView& m, int rows, int chunks);

}  // namespace dsv4::cuda
