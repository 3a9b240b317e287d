// error_sums.h: the sums behind an error tally, for every instruction set with the same bits. What
// they mean and where they go: error_tally.h, block_tally.h.
#pragma once

#include <cstdint>

namespace dsv4 {

// Of one quant block of 16. Lane l is the square of value 2 l, to which value 2 l + 1 adds its own
// by a fused multiply-add; then lane l += lane l + 4, then 0 += 1 and 2 += 3, then 0 += 2; all in
// FP64.
struct BlockErrors {
  double source_squares = 0;  // x^2
  double error_squares = 0;   // (decoded - x)^2
  bool is_beyond = false;     // some |x| > guards[block scale]
};

// Of many blocks.
struct RowErrors {
  double source_squares = 0, error_squares = 0;  // block after block
  double dot = 0;  // x * decoded, in eight lanes as above that go through all blocks first
  std::int64_t exact_values = 0;  // of the same bits
};

struct ErrorKernels {
  // Of finite x [16 * num_blocks] against NVFP4 codes [8 * num_blocks] with their block scales
  // [num_blocks], decoded as numerics/nvfp4.h does. guards [256]; one below 0 is always passed.
  template <class Source>
  using BlocksKernel = RowErrors (*)(const Source* x, const std::uint8_t* codes,
                                     const std::uint8_t* block_scales, float global_scale,
                                     const float* guards, std::int64_t num_blocks,
                                     BlockErrors* out);
  BlocksKernel<float> f32_errors;
  BlocksKernel<std::uint16_t> bf16_errors;
  // The sum over blocks of weights[b] * (the sum of (2 e2m1(code))^2 over the 16 codes of block b).
  // Block b goes to lane b mod 8, ascending; then lane l += lane l + 4, + 2, + 1. The sum of a
  // block is exact.
  double (*code_squares)(const std::uint8_t* codes, const double* weights, std::int64_t num_blocks);
};

// The best kernels among `targets`, a mask of Highway's targets; by default for this machine, which
// is asked each time: that takes microseconds.
const ErrorKernels& error_kernels();
const ErrorKernels& error_kernels(std::int64_t targets);

}  // namespace dsv4
