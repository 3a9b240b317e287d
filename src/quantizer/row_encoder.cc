#include "quantizer/row_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numerics/nvfp4.h"
#include "quantizer/matrix_rows.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

// Past these a block's wanted scale, amax / (6 g), rounds to no E4M3 number of its size.
constexpr float kLargestWantedScale = 464.0f;         // half a step above 448
constexpr float kUnderflowingWantedScale = 0x1p-10f;  // half of the smallest; the tie goes to 0

constexpr std::uint8_t kLargestScale = 0x7E;  // 448
constexpr float kLookAtAll = -1;              // as a guard
// Below it divisors may be subnormal, and be 0 for scales that are not.
constexpr float kSmallestPlainGlobalScale = 0x1p-117f;
constexpr std::uint8_t kSmallestScale = 1;     // 2^-9
constexpr std::uint8_t kMagnitudeBits = 0x77;  // all 0 in codes +0 and -0
constexpr std::uint8_t kCodeSigns = 0x88;      // of two codes
constexpr std::uint8_t kScaleSign = 0x80;      // of E4M3

void note_worst(const BlockErrors& errors, std::int64_t quant_block, ErrorTally& row) {
  const double relative_error = std::sqrt(errors.error_squares / errors.source_squares);
  if (!(relative_error > row.worst.relative_error)) return;
  row.worst.relative_error = relative_error;
  row.worst.quant_block = quant_block;
}

// The share of errors in squares below which a block is surely not the worst: spares most the
// division, and its slack leaves the decision to the quotient.
double harmless_share(const ErrorTally& row) {
  return 0.999 * row.worst.relative_error * row.worst.relative_error;
}

}  // namespace

RowScratch::RowScratch(std::int64_t cols)
    : weights(static_cast<std::size_t>(cols / kNvfp4QuantBlock)),
      errors(static_cast<std::size_t>(cols / kNvfp4QuantBlock)) {}

bool has_nonzero_code(const std::uint8_t* codes, std::int64_t num_bytes) {
  std::uint8_t bits = 0;
  for (std::int64_t i = 0; i < num_bytes; ++i) bits |= codes[i];
  return (bits & kMagnitudeBits) != 0;
}

ErrorMeter::ErrorMeter(float global_scale)
    : global_scale_(global_scale), kernels_(error_kernels()) {
  guards_.fill(kLookAtAll);
  for (std::size_t code = 0; code < largest_values_.size(); ++code) {
    largest_values_[code] = 7.0f * nvfp4_divisor(static_cast<std::uint8_t>(code), global_scale);
  }
  if (global_scale < kSmallestPlainGlobalScale) return;
  // From 2 on a scale was wanted to be 2^-9 at least, and leaves some code that is not zero.
  std::copy_n(largest_values_.begin() + 2, kLargestScale - 1, guards_.begin() + 2);
  const float largest_amax = 0.99f * kLargestWantedScale * kE2m1Max * global_scale;
  guards_[kLargestScale] = std::min(guards_[kLargestScale], largest_amax);
}

// Counts what one block lost besides its sums; few blocks come here.
void ErrorMeter::count_limits(const float* x, const std::uint8_t* codes, std::uint8_t block_scale,
                              ErrorTally& row) const {
  const float largest = amax(x, kNvfp4QuantBlock);
  if (!(largest > 0)) return;
  const float wanted = largest / (kE2m1Max * global_scale_);
  row.scales_too_large += wanted > kLargestWantedScale ? 1 : 0;
  row.scales_too_small += wanted <= kUnderflowingWantedScale ? 1 : 0;
  const float limit = largest_values_[block_scale];
  const bool is_zero = limit == 0 || !has_nonzero_code(codes, kNvfp4BlockBytes);
  row.zeroed_blocks += is_zero ? 1 : 0;
  if (limit == 0) return;
  row.saturated_values +=
      std::count_if(x, x + kNvfp4QuantBlock, [&](float value) { return std::fabs(value) > limit; });
}

void ErrorMeter::add_row(const MatrixView& x, std::int64_t row_idx, const std::uint8_t* codes,
                         const std::uint8_t* block_scales, std::int64_t first_block,
                         BlockErrors* errors, ErrorTally& row) const {
  const std::int64_t num_blocks = x.cols / kNvfp4QuantBlock;
  const std::int64_t offset = row_idx * x.row_stride;
  const RowErrors sums =
      x.format == Format::kBf16
          ? kernels_.bf16_errors(static_cast<const std::uint16_t*>(x.data) + offset, codes,
                                 block_scales, global_scale_, guards_.data(), num_blocks, errors)
          : kernels_.f32_errors(static_cast<const float*>(x.data) + offset, codes, block_scales,
                                global_scale_, guards_.data(), num_blocks, errors);
  row.source_squares += sums.source_squares;
  row.error_squares += sums.error_squares;
  row.dot += sums.dot;
  row.exact_values += sums.exact_values;
  row.values += num_blocks * kNvfp4QuantBlock;
  row.quant_blocks += num_blocks;
  double harmless = harmless_share(row);
  for (std::int64_t b = 0; b < num_blocks; ++b) {
    if (errors[b].error_squares > harmless * errors[b].source_squares) {
      note_worst(errors[b], first_block + b, row);
      harmless = harmless_share(row);
    }
    if (!errors[b].is_beyond) continue;
    float values[kNvfp4QuantBlock];
    decode_matrix_row(columns_of(x, b * kNvfp4QuantBlock, kNvfp4QuantBlock), row_idx, values);
    count_limits(values, codes + b * kNvfp4BlockBytes, block_scales[b], row);
  }
}

Fp4Caster::Fp4Caster(const MatrixView& matrix, float new_global_scale, const ErrorMeter& meter,
                     E2m1Rounding rounding)
    : matrix_(matrix), global_scale_(new_global_scale), meter_(meter), rounding_(rounding) {
  const double global_scale = new_global_scale;
  const bool is_mxfp4 = matrix.format == Format::kMxfp4;
  const double source_scale = is_mxfp4 ? 1.0 : static_cast<double>(*matrix.global_scales);
  for (std::size_t code = 0; code < is_exact_.size(); ++code) {
    // Engines take block scales for unsigned, so a negative one gives its sign to its codes.
    const auto byte = static_cast<std::uint8_t>(is_mxfp4 ? code : code & ~kScaleSign);
    const double multiplier =
        (is_mxfp4 ? decode_e8m0(byte) : decode_e4m3(byte)) * source_scale;  // exact in FP64
    double ratio = multiplier / global_scale;
    // Blocks without a nonzero code may lie above the others; the power keeps a matrix foldable.
    if (is_mxfp4) ratio = std::min(ratio, 0x1p8);
    nearest_scales_[code] = encode_e4m3(static_cast<float>(ratio));
    is_exact_[code] = decode_e4m3(nearest_scales_[code]) * global_scale == multiplier;
    flips_codes_[code] = byte != code;
    keeps_codes_[code] = is_exact_[code] && !flips_codes_[code];
    code_weights_[code] = multiplier * multiplier / 4;
  }
}

// Block scales and weights of a row whose scales cover kBlocksPerScale blocks each. Returns whether
// all of its blocks can be cast with the codes that they have.
template <int kBlocksPerScale>
bool Fp4Caster::apply_rules(const std::uint8_t* scales, std::int64_t num_blocks,
                            std::uint8_t* block_scales, double* weights) const {
  bool all_keep = true;
  std::int64_t b = 0;
  for (; b + kBlocksPerScale <= num_blocks; b += kBlocksPerScale) {
    const std::uint8_t scale = scales[b / kBlocksPerScale];
    const std::uint8_t nearest = nearest_scales_[scale];  // before bytes are stored: they may alias
    const double weight = code_weights_[scale];
    all_keep &= keeps_codes_[scale];
    for (int i = 0; i < kBlocksPerScale; ++i) {
      block_scales[b + i] = nearest;
      weights[b + i] = weight;
    }
  }
  if (b < num_blocks) {  // half an MXFP4 block
    const std::uint8_t scale = scales[b / kBlocksPerScale];
    all_keep &= keeps_codes_[scale];
    block_scales[b] = nearest_scales_[scale];
    weights[b] = code_weights_[scale];
  }
  return all_keep;
}

void Fp4Caster::cast_row(std::int64_t row_idx, std::uint8_t* codes, std::uint8_t* block_scales,
                         RowScratch& scratch, ErrorTally& row) const {
  const std::int64_t num_blocks = matrix_.cols / kNvfp4QuantBlock;
  const std::int64_t blocks_per_scale = matrix_.block_cols / kNvfp4QuantBlock;
  const auto* source =
      static_cast<const std::uint8_t*>(matrix_.data) + row_idx * matrix_.row_stride / 2;
  const auto* scales =
      static_cast<const std::uint8_t*>(matrix_.block_scales) + row_idx * matrix_.scale_stride;
  std::memcpy(codes, source, static_cast<std::size_t>(matrix_.cols / 2));
  double* const weights = scratch.weights.data();
  const bool all_keep = blocks_per_scale == 2
                            ? apply_rules<2>(scales, num_blocks, block_scales, weights)
                            : apply_rules<1>(scales, num_blocks, block_scales, weights);
  std::int64_t num_cast = num_blocks;
  const bool is_rounded = meter_.global_scale() != global_scale_;  // by the file
  if (!all_keep || is_rounded) {
    for (std::int64_t b = 0; b < num_blocks; ++b) {
      std::uint8_t* const block_codes = codes + b * kNvfp4BlockBytes;
      const std::uint8_t scale = scales[b / blocks_per_scale];
      if (flips_codes_[scale]) {
        for (int i = 0; i < kNvfp4BlockBytes; ++i) block_codes[i] ^= kCodeSigns;
      }
      if (is_exact_[scale] || !has_nonzero_code(block_codes, kNvfp4BlockBytes)) {
        if (!is_rounded) continue;
        measure_block(row_idx, b, block_codes, block_scales[b], row);
        ++row.cast_blocks;
      } else {
        encode_block(row_idx, b, block_codes, block_scales[b], row);
      }
      weights[b] = 0;
      --num_cast;
    }
  }
  const double squares = meter_.kernels().code_squares(source, weights, num_blocks);
  row.source_squares += squares;
  row.dot += squares;
  row.values += num_cast * kNvfp4QuantBlock;
  row.exact_values += num_cast * kNvfp4QuantBlock;
  row.quant_blocks += num_cast;
  row.cast_blocks += num_cast;
}

void Fp4Caster::encode_block(std::int64_t row_idx, std::int64_t quant_block, std::uint8_t* codes,
                             std::uint8_t& block_scale, ErrorTally& row) const {
  float x[kNvfp4QuantBlock];
  const std::int64_t first_col = quant_block * kNvfp4QuantBlock;
  decode_matrix_row(columns_of(matrix_, first_col, kNvfp4QuantBlock), row_idx, x);
  // Under the smallest scale something is left of a block that would be zeros under 0.
  block_scale =
      std::max(nvfp4_block_scale(amax(x, kNvfp4QuantBlock), global_scale_), kSmallestScale);
  encode_nvfp4_codes(x, block_scale, global_scale_, codes, rounding_);
  measure_block(row_idx, quant_block, codes, block_scale, row);
  ++row.reencoded_blocks;
}

void Fp4Caster::measure_block(std::int64_t row_idx, std::int64_t quant_block,
                              const std::uint8_t* codes, std::uint8_t block_scale,
                              ErrorTally& row) const {
  float x[kNvfp4QuantBlock];
  decode_matrix_row(columns_of(matrix_, quant_block * kNvfp4QuantBlock, kNvfp4QuantBlock), row_idx,
                    x);
  BlockErrors errors;
  meter_.add_row(f32_matrix(x, 1, kNvfp4QuantBlock), 0, codes, &block_scale, quant_block, &errors,
                 row);
}

}  // namespace dsv4
