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

  std::vector<float> values;        // [cols]
  std::vector<double> weights;      // [cols / 16]
  std::vector<BlockErrors> errors;  // [cols / 16]
};

// Adds to `row` what NVFP4 blocks cost: x and decoded [16 * num_blocks], their block scales
// [num_blocks] under `global_scale`, the first of them number `first_block` of its row. errors
// [num_blocks] is scratch.
void add_block_errors(const ErrorKernels& kernels, const float* x, const float* decoded,
                      const std::uint8_t* block_scales, float global_scale, std::int64_t num_blocks,
                      std::int64_t first_block, BlockErrors* errors, ErrorTally& row);

// Rows of an MXFP4 or NVFP4 matrix under a new global scale, by the rule of GroupEncoder. Matrices
// hold no scale that is NaN and no value that is infinite.
class Fp4Caster {
 public:
  Fp4Caster(const MatrixView& matrix, float global_scale, E2m1Rounding rounding);

  // Row `row_idx` into codes [cols / 2] and block_scales [cols / 16]; adds to `row`.
  void cast_row(std::int64_t row_idx, std::uint8_t* codes, std::uint8_t* block_scales,
                RowScratch& scratch, ErrorTally& row) const;

 private:
  // What becomes of a block with a given scale of the source.
  struct Rule {
    double code_weight = 0;        // of (2 code)^2: the square of half its multiplier
    std::uint8_t block_scale = 0;  // the nearest
    bool is_exact = false;         // block_scale * global_scale is the multiplier
  };

  void encode_block(std::int64_t row_idx, std::int64_t quant_block, std::uint8_t* codes,
                    std::uint8_t& block_scale, ErrorTally& row) const;

  MatrixView matrix_;
  float global_scale_;
  E2m1Rounding rounding_;
  const ErrorKernels& kernels_;
  std::array<Rule, 256> rules_;
};

// Whether any of the codes of `num_bytes` packed bytes is not +0 or -0.
bool has_nonzero_code(const std::uint8_t* codes, std::int64_t num_bytes);

}  // namespace dsv4
