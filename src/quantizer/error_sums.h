// error_sums.h: the sums behind an error tally, for every instruction set with the same bits. What
// they mean and where they go: error_tally.h, block_tally.h.
#pragma once

#include <cstdint>

namespace dsv4 {

// Of one quant block of 16. Lane l is the square of value l, then value l + 8 added to it by a
// fused multiply-add; then lane l += lane l + 4, then + 2, + 1; all in FP64.
struct BlockErrors {
  double source_squares = 0;  // x^2
  double error_squares = 0;   // (decoded - x)^2
  float source_amax = 0;
  std::int32_t exact_values = 0;  // of the same bits
};

struct ErrorKernels {
  // Of finite x [16 * num_blocks] against NVFP4 codes [8 * num_blocks] with their block scales
  // [num_blocks], decoded as numerics/nvfp4.h does. Returns the sum of x * decoded: eight lanes as
  // above, which go through all blocks before they are added.
  double (*block_errors)(const float* x, const std::uint8_t* codes,
                         const std::uint8_t* block_scales, float global_scale,
                         std::int64_t num_blocks, BlockErrors* out);
  // The sum over blocks of weights[b] * (the sum of (2 e2m1(code))^2 over the 16 codes of block b).
  // Block b goes to lane b mod 8, ascending; lanes are added as above. The sum of a block is exact.
  double (*code_squares)(const std::uint8_t* codes, const double* weights, std::int64_t num_blocks);
};

// The best kernels among `targets`, a mask of Highway's targets; by default for this machine, which
// is asked each time: that takes microseconds.
const ErrorKernels& error_kernels();
const ErrorKernels& error_kernels(std::int64_t targets);

}  // namespace dsv4
