// Quantisation of rows, or of their SwiGLU: blocks and their scales in the places of the output;
// the bytes are those of the encoders (encode.h).
#include "ops/quantize.h"

#include <algorithm>
#include <type_traits>

#include "cpu/cpu_backend.h"
#include "cpu/encode_rows.h"
#include "cpu/matmul.h"
#include "cpu/quantize.h"
#include "cpu/row_math.h"
#include "numerics/nvfp4.h"
#include "numerics/silu.h"

namespace dsv4 {
namespace {

// The global scale of row `row` of values x, stored where the output has one a row.
template <class Params>
float row_global_scale(const cpu::EncodeKernels& kernels, const Params& p, std::int64_t row,
                       const float* x) {
  float global_scale = 0;
  if (p.static_global_scales == nullptr) {
    global_scale = nvfp4_global_scale(kernels.amax(x, p.out.cols));
  } else {
    global_scale =
        p.static_global_scales[p.global_scale_idx == nullptr ? 0 : p.global_scale_idx[row]];
  }
  if (p.out.global_scale_stride == 1) p.out.global_scales[row] = global_scale;
  return global_scale;
}

// The boundaries of a global scale take as long to find as some ten thousand values to encode.
constexpr std::int64_t kWorthBoundaries = 1 << 18;

bool wants_boundaries(const QuantizeParams& p, std::int64_t rows) {
  return p.x.format == Format::kBf16 && p.out.format == Format::kNvfp4 &&
         p.static_global_scales != nullptr && p.global_scale_idx == nullptr &&
         rows * p.x.cols >= kWorthBoundaries && kE2m1Max * *p.static_global_scales > 0 &&
         is_finite(kE2m1Max * *p.static_global_scales);
}

// Quantises x [cols] into row `row` of either op's output.
template <class Params>
void quantize_row(const cpu::EncodeKernels& kernels, const Params& p, std::int64_t row,
                  const float* x) {
  const float global_scale =
      p.out.format == Format::kNvfp4 ? row_global_scale(kernels, p, row, x) : 1.0f;
  bool four_over_six = false;
  if constexpr (std::is_same_v<Params, QuantizeParams>) four_over_six = p.four_over_six;
  cpu::encode_columns(kernels, p.out, row, 0, x, p.out.cols, global_scale, p.rounding,
                      four_over_six);
}

}  // namespace

void cpu::encode_columns(const EncodeKernels& kernels, const MutableMatrixView& out,
                         std::int64_t row, std::int64_t col, const float* x, std::int64_t n,
                         float global_scale, E2m1Rounding rounding, bool four_over_six) {
  auto* codes = static_cast<std::uint8_t*>(out.data) +
                data_bytes(out.format, out.row_stride) * row + data_bytes(out.format, col);
  auto* scales =
      static_cast<std::uint8_t*>(out.block_scales) + out.scale_stride * row + col / out.block_cols;
  if (out.format == Format::kNvfp4 && !four_over_six) {
    return kernels.encode_nvfp4_blocks(x, n, global_scale, codes, scales, rounding);
  }
  for (std::int64_t begin = 0; begin < n; begin += out.block_cols) {
    const std::int64_t block_n = std::min(out.block_cols, n - begin);
    std::uint8_t* block_codes = codes + data_bytes(out.format, begin);
    std::uint8_t& block_scale = scales[begin / out.block_cols];
    switch (out.format) {
      case Format::kE4m3:
        block_scale = kernels.encode_e4m3_block(x + begin, static_cast<int>(block_n), block_codes);
        break;
      case Format::kMxfp4:
        block_scale = kernels.encode_mxfp4_block(x + begin, block_codes);
        break;
      default:
        block_scale = kernels.encode_nvfp4_block_four_over_six(x + begin, global_scale, block_codes,
                                                               rounding);
    }
  }
}

std::int64_t CpuBackend::workspace_bytes(const QuantizeParams& p) const {
  cpu::Scratch scratch(nullptr);
  scratch.take<float>(pool_.num_threads() * cpu::padded(p.x.cols));
  return scratch.bytes();
}

// With one known global scale, and enough values to be worth its boundaries, BF16 needs no division
// a value (encode_rows.h). Everything else goes through FP32, a row at a time.
void CpuBackend::compute(const QuantizeParams& p, const OpContext& context) {
  if (p.x.cols == 0) return;
  const std::int64_t rows = cpu::active_rows(p.row_count, p.out.rows);
  const std::int64_t row_floats = cpu::padded(p.x.cols);
  float* const values =
      cpu::Scratch(context.workspace).take<float>(pool_.num_threads() * row_floats);
  const std::int64_t grain = cpu::conversion_grain(rows, p.x.cols);
  const auto input_row = [&](std::int64_t row) {
    return p.row_idx == nullptr ? row : p.row_idx[row];
  };
  const cpu::EncodeRowKernels& row_kernels = cpu::encode_row_kernels(targets_);
  if (wants_boundaries(p, rows) &&
      (!p.four_over_six || row_kernels.encode_nvfp4_four_over_six != nullptr)) {
    const cpu::Nvfp4Boundaries boundaries(*p.static_global_scales, p.rounding);
    const cpu::Nvfp4Values decoded(boundaries.global_scale);
    pool_.parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto* x =
            static_cast<const std::uint16_t*>(p.x.data) + input_row(row) * p.x.row_stride;
        auto* codes = static_cast<std::uint8_t*>(p.out.data) + row * (p.out.row_stride / 2);
        auto* scales = static_cast<std::uint8_t*>(p.out.block_scales) + row * p.out.scale_stride;
        if (p.four_over_six) {
          row_kernels.encode_nvfp4_four_over_six(x, p.x.cols, boundaries, decoded, codes, scales);
        } else {
          row_kernels.encode_nvfp4(x, p.x.cols, boundaries, codes, scales);
        }
        if (p.out.global_scale_stride == 1) p.out.global_scales[row] = boundaries.global_scale;
      }
    });
    return;
  }
  const cpu::EncodeKernels& kernels = cpu::encode_kernels(targets_);
  const cpu::Source source = cpu::make_source(p.x, *tables_);
  pool_.parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    float* const x = values + thread_idx * row_floats;
    for (std::int64_t row = begin; row < end; ++row) {
      dot_.decode_row(source, input_row(row), x);
      quantize_row(kernels, p, row, x);
    }
  });
}

std::int64_t CpuBackend::workspace_bytes(const SwigluQuantizeParams& p) const {
  cpu::Scratch scratch(nullptr);
  scratch.take<float>(pool_.num_threads() * 2 * cpu::padded(p.out.cols));
  return scratch.bytes();
}

// SwiGLU is an element at a time: bits of the reference before speed, and no layer of the model
// takes this op.
void CpuBackend::compute(const SwigluQuantizeParams& p, const OpContext& context) {
  if (p.out.cols == 0) return;
  const std::int64_t rows = cpu::active_rows(p.row_count, p.out.rows);
  const std::int64_t row_floats = cpu::padded(p.out.cols);
  float* const values =
      cpu::Scratch(context.workspace).take<float>(pool_.num_threads() * 2 * row_floats);
  const cpu::EncodeKernels& kernels = cpu::encode_kernels(targets_);
  const cpu::Source gate_source = cpu::make_source(p.gate, *tables_);
  const cpu::Source up_source = cpu::make_source(p.up, *tables_);
  const std::int64_t grain = cpu::row_grain(p.out.cols, 1024);
  pool_.parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    float* const x = values + thread_idx * 2 * row_floats;
    float* const up = x + row_floats;
    for (std::int64_t row = begin; row < end; ++row) {
      dot_.decode_row(gate_source, row, x);
      dot_.decode_row(up_source, row, up);
      const float row_weight = p.row_weights == nullptr ? 1.0f : p.row_weights[row];
      for (std::int64_t i = 0; i < p.out.cols; ++i) {
        x[i] = swiglu(x[i], up[i], p.swiglu_limit, row_weight);
      }
      quantize_row(kernels, p, row, x);
    }
  });
}

}  // namespace dsv4
