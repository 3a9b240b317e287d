// Quantisation of rows, or of their SwiGLU, block by block, with the encoders of numerics/; the
// largest magnitude and the values of a matrix, row by row.
#include "reference/quantize.h"

#include <cmath>
#include <type_traits>

#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"
#include "numerics/silu.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

// The global scale of row `row`, stored where the output has one a row.
template <class Params>
float row_global_scale(const Params& p, std::int64_t row, const std::vector<float>& x) {
  float global_scale = 0;
  if (p.static_global_scales == nullptr) {
    global_scale = nvfp4_global_scale(amax(x.data(), p.out.cols));
  } else {
    global_scale =
        p.static_global_scales[p.global_scale_idx == nullptr ? 0 : p.global_scale_idx[row]];
  }
  if (p.out.global_scale_stride == 1) p.out.global_scales[row] = global_scale;
  return global_scale;
}

// Quantises x [cols] into row `row` of either op's output.
template <class Params>
void quantize_row(const Params& p, std::int64_t row, const std::vector<float>& x) {
  const float global_scale = p.out.format == Format::kNvfp4 ? row_global_scale(p, row, x) : 1.0f;
  bool four_over_six = false;
  if constexpr (std::is_same_v<Params, QuantizeParams>) four_over_six = p.four_over_six;
  encode_matrix_row(p.out, row, x.data(), global_scale, p.rounding, four_over_six);
}

}  // namespace

void encode_matrix_row(const MutableMatrixView& out, std::int64_t row, const float* x,
                       float global_scale, E2m1Rounding rounding, bool four_over_six) {
  auto* codes = static_cast<std::uint8_t*>(out.data) + data_bytes(out.format, out.row_stride) * row;
  auto* scales = static_cast<std::uint8_t*>(out.block_scales) + out.scale_stride * row;
  for (std::int64_t begin = 0; begin < out.cols; begin += out.block_cols) {
    const std::int64_t n = std::min(out.block_cols, out.cols - begin);
    std::uint8_t* block_codes = codes + data_bytes(out.format, begin);
    std::uint8_t& block_scale = scales[begin / out.block_cols];
    switch (out.format) {
      case Format::kE4m3:
        block_scale = encode_e4m3_block(x + begin, static_cast<int>(n), block_codes);
        break;
      case Format::kMxfp4:
        block_scale = encode_mxfp4_block(x + begin, block_codes);
        break;
      default:
        block_scale =
            four_over_six
                ? encode_nvfp4_block_four_over_six(x + begin, global_scale, block_codes, rounding)
                : encode_nvfp4_block(x + begin, global_scale, block_codes, rounding);
    }
  }
}

void ReferenceBackend::compute(const QuantizeParams& p, const OpContext&) {
  if (p.x.cols == 0) return;
  const std::int64_t rows = active_rows(p.row_count, p.out.rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    quantize_row(p, row, decoded_row(p.x, p.row_idx == nullptr ? row : p.row_idx[row]));
  }
}

void ReferenceBackend::compute(const SwigluQuantizeParams& p, const OpContext&) {
  if (p.out.cols == 0) return;
  const std::int64_t rows = active_rows(p.row_count, p.out.rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<float> x = decoded_row(p.gate, row);
    const std::vector<float> up = decoded_row(p.up, row);
    const float row_weight = p.row_weights == nullptr ? 1.0f : p.row_weights[row];
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = swiglu(x[i], up[i], p.swiglu_limit, row_weight);
    }
    quantize_row(p, row, x);
  }
}

void ReferenceBackend::compute(const AmaxParams& p, const OpContext&) {
  float largest = 0;
  for (std::int64_t row = 0; row < p.x.rows; ++row) {
    const float row_amax = amax(decoded_row(p.x, row).data(), p.x.cols);
    if (f32_bits(row_amax) > f32_bits(largest)) largest = row_amax;  // NaN above infinity
  }
  *p.out = std::isnan(largest) ? f32_from_bits(kF32QuietNanBits) : largest;
}

void ReferenceBackend::compute(const DequantizeParams& p, const OpContext&) {
  for (std::int64_t row = 0; row < p.x.rows; ++row) {
    std::vector<float> values = decoded_row(p.x, row);
    for (float& value : values) {
      if (std::isnan(value)) value = f32_from_bits(kF32QuietNanBits);
    }
    store_matrix_row(p.out, row, values.data());
  }
}

}  // namespace dsv4
