// row_encoder.h: one row of a matrix at a time: what an encoding of it cost, and how a row that is
// FP4 already becomes NVFP4 under another global scale. Global scales, threads and chunks:
// group_encoder.h.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "numerics/e2m1.h"
#include "quantizer/error_sums.h"
#include "quantizer/error_tally.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Scratch of one thread for rows of up to `cols` values.
struct RowScratch {
  explicit RowScratch(std::int64_t cols);

  std::vector<double> weights;      // [cols / 16]
  std::vector<BlockErrors> errors;  // [cols / 16]
};

// What values lost in NVFP4 under one global scale.
class ErrorMeter {
 public:
  explicit ErrorMeter(float global_scale);

  // Adds to `row` what row `row_idx` of x (kF32 or kBf16, columns a multiple of 16) cost: its codes
  // [cols / 2] and block scales [cols / 16], the first of them number `first_block` of the matrix's
  // row. errors [cols / 16] is scratch.
  void add_row(const MatrixView& x, std::int64_t row_idx, const std::uint8_t* codes,
               const std::uint8_t* block_scales, std::int64_t first_block, BlockErrors* errors,
               ErrorTally& row) const;
  const ErrorKernels& kernels() const { return kernels_; }
  float global_scale() const { return global_scale_; }

 private:
  void count_limits(const float* x, const std::uint8_t* codes, std::uint8_t block_scale,
                    ErrorTally& row) const;

  float global_scale_;
  const ErrorKernels& kernels_;
  std::array<float, 256> largest_values_;  // of a block by its scale, before values saturate
  std::array<float, 256> guards_;          // up to which nothing can be out of range
};

// Rows of an MXFP4 or NVFP4 matrix under a new global scale, by the rule of GroupEncoder. Matrices
// hold no scale that is NaN and no value that is infinite.
class Fp4Caster {
 public:
  // `meter` has the global scale that the result decodes with, which is the new one or, where a
  // file cannot hold that, its neighbour. It must outlive the caster.
  Fp4Caster(const MatrixView& matrix, float global_scale, const ErrorMeter& meter,
            E2m1Rounding rounding);

  // Row `row_idx` into codes [cols / 2] and block_scales [cols / 16]; adds to `row`.
  void cast_row(std::int64_t row_idx, std::uint8_t* codes, std::uint8_t* block_scales,
                RowScratch& scratch, ErrorTally& row) const;

 private:
  template <int kBlocksPerScale>
  bool apply_rules(const std::uint8_t* scales, std::int64_t num_blocks, std::uint8_t* block_scales,
                   double* weights) const;
  void measure_block(std::int64_t row_idx, std::int64_t quant_block, const std::uint8_t* codes,
                     std::uint8_t block_scale, ErrorTally& row) const;
  void encode_block(std::int64_t row_idx, std::int64_t quant_block, std::uint8_t* codes,
                    std::uint8_t& block_scale, ErrorTally& row) const;

  MatrixView matrix_;
  const float global_scale_;
  const ErrorMeter& meter_;
  E2m1Rounding rounding_;
  // What becomes of a block with a given scale of the source. Arrays of their own, since these
  // look-ups are most of a cast's time.
  std::array<std::uint8_t, 256> nearest_scales_;
  std::array<bool, 256> is_exact_;        // nearest scale * global scale is the block's multiplier
  std::array<bool, 256> flips_codes_;     // but for its sign, which the codes take
  std::array<bool, 256> keeps_codes_;     // exact, and without a sign
  std::array<double, 256> code_weights_;  // of (2 code)^2: the square of half the multiplier
};

// Whether any of the codes of `num_bytes` packed bytes is not +0 or -0.
bool has_nonzero_code(const std::uint8_t* codes, std::int64_t num_bytes);

}  // namespace dsv4
