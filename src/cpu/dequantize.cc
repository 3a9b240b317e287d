// Decoding of quantised matrices, and the largest magnitude of any: rows shared by the threads. The
// kernels: decode_rows.h, encode_rows.h, dot.h.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/decode_rows.h"
#include "cpu/dot.h"
#include "cpu/encode.h"
#include "cpu/encode_rows.h"
#include "cpu/row_math.h"
#include "cpu/scratch.h"
#include "numerics/bits.h"
#include "ops/quantize.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

std::int64_t row_scratch_bytes(const MatrixView& m, int num_threads) {
  cpu::Scratch scratch(nullptr);
  scratch.take<float>(num_threads * cpu::padded(m.cols));
  return scratch.bytes();
}

// A table of BF16 values is found in the time of some ten thousand look-ups.
constexpr std::int64_t kWorthATable = 1 << 17;

bool wants_bf16_table(const DequantizeParams& p) {
  return p.out.format == Format::kBf16 && is_packed(p.x.format) &&
         (p.x.format == Format::kMxfp4 || p.x.global_scale_stride == 0) &&
         p.x.rows * p.x.cols >= kWorthATable;
}

// A row of E4M3 to BF16, a tile's columns at a time. False, with nothing written that counts, if a
// code or a scale is NaN.
bool decode_e4m3_row(const cpu::DecodeRowKernels& kernels, const MatrixView& m, std::int64_t row,
                     std::uint16_t* out) {
  const auto* codes = static_cast<const std::uint8_t*>(m.data) + row * m.row_stride;
  if (kernels.has_e4m3_nan(codes, m.cols)) return false;
  for (std::int64_t begin = 0; begin < m.cols; begin += m.block_cols) {
    const float scale = decode_block_scale(m, row / m.block_rows, begin / m.block_cols);
    if (std::isnan(scale)) return false;
    kernels.decode_e4m3(codes + begin, std::min(m.block_cols, m.cols - begin), scale, out + begin);
  }
  return true;
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const AmaxParams& p) const {
  return row_scratch_bytes(p.x, pool_.num_threads());
}

void CpuBackend::compute(const AmaxParams& p, const OpContext& context) {
  const std::int64_t row_floats = cpu::padded(p.x.cols);
  float* const values =
      cpu::Scratch(context.workspace).take<float>(pool_.num_threads() * row_floats);
  const cpu::EncodeKernels& kernels = cpu::encode_kernels(targets_);
  const cpu::EncodeRowKernels& row_kernels = cpu::encode_row_kernels(targets_);
  const cpu::Source source = cpu::make_source(p.x, *tables_);
  const std::int64_t grain = cpu::conversion_grain(p.x.rows, p.x.cols, 16384);
  std::atomic<std::uint32_t> largest = 0;  // magnitudes as bits, NaN above infinity
  pool_.parallel_for(p.x.rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    std::uint32_t of_rows = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      if (p.x.format == Format::kBf16) {
        const auto* x = static_cast<const std::uint16_t*>(p.x.data) + row * p.x.row_stride;
        of_rows = std::max(of_rows, std::uint32_t{row_kernels.amax(x, p.x.cols)} << 16);
      } else {
        float* const x = values + thread_idx * row_floats;
        dot_.decode_row(source, row, x);
        of_rows = std::max(of_rows, f32_bits(kernels.amax(x, p.x.cols)));
      }
    }
    std::uint32_t seen = largest.load();
    while (of_rows > seen && !largest.compare_exchange_weak(seen, of_rows)) {
    }
  });
  const std::uint32_t bits = largest;
  *p.out = f32_from_bits(bits > kF32InfinityBits ? kF32QuietNanBits : bits);
}

std::int64_t CpuBackend::workspace_bytes(const DequantizeParams& p) const {
  return row_scratch_bytes(p.x, pool_.num_threads());
}

void CpuBackend::compute(const DequantizeParams& p, const OpContext& context) {
  if (p.x.empty()) return;
  const cpu::DecodeRowKernels& kernels = cpu::decode_row_kernels(targets_);
  auto* const bf16 = static_cast<std::uint16_t*>(p.out.data);
  const std::int64_t grain = cpu::conversion_grain(p.x.rows, p.x.cols, 16384);
  if (wants_bf16_table(p)) {
    const cpu::Bf16Table table(p.x.format,
                               p.x.format == Format::kNvfp4 ? *p.x.global_scales : 1.0f);
    const int block_shift = p.x.format == Format::kMxfp4 ? 1 : 0;
    pool_.parallel_for(p.x.rows, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        kernels.decode_e2m1(
            static_cast<const std::uint8_t*>(p.x.data) + row * (p.x.row_stride / 2),
            static_cast<const std::uint8_t*>(p.x.block_scales) + row * p.x.scale_stride, p.x.cols,
            block_shift, table.data(), bf16 + row * p.out.row_stride);
      }
    });
    return;
  }
  const std::int64_t row_floats = cpu::padded(p.x.cols);
  float* const values =
      cpu::Scratch(context.workspace).take<float>(pool_.num_threads() * row_floats);
  const cpu::Source source = cpu::make_source(p.x, *tables_);
  pool_.parallel_for(p.x.rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    float* const x = values + thread_idx * row_floats;
    for (std::int64_t row = begin; row < end; ++row) {
      if (source.kind == cpu::Source::Kind::kE4m3 && p.out.format == Format::kBf16 &&
          decode_e4m3_row(kernels, p.x, row, bf16 + row * p.out.row_stride)) {
        continue;
      }
      dot_.decode_row(source, row, x);
      if (source.interleaved()) cpu::deinterleave(x, row_floats);
      if (p.out.format == Format::kBf16) {
        kernels.round_to_bf16(x, p.x.cols, bf16 + row * p.out.row_stride);
        continue;
      }
      // A choice in place of a branch, of which compilers make vectors: a tenth of the time.
      const float nan = f32_from_bits(kF32QuietNanBits);
      for (std::int64_t i = 0; i < p.x.cols; ++i) x[i] = x[i] != x[i] ? nan : x[i];
      store_matrix_row(p.out, row, x);
    }
  });
}

}  // namespace dsv4
