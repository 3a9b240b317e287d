// Writing cache rows: Hadamard in FP64 rounded once, the simulated rounding, the encoding. The
// bytes are those of tensor/kv_row_codec.h, made by encode.h; rows are shared among the threads.
#include "ops/kv_write.h"

#include <algorithm>
#include <cstring>

#include "cpu/cpu_backend.h"
#include "cpu/encode.h"
#include "cpu/row_math.h"
#include "ops/row_checks.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

// Part `h` of a token's row, copied into out [width].
void copy_part(const MatrixView& x, std::int64_t token, std::int64_t h, std::int64_t width,
               float* out) {
  MatrixView part = x;
  part.data = static_cast<const std::byte*>(x.data) + data_bytes(x.format, h * width);
  part.cols = width;
  decode_matrix_row(part, token, out);
}

// As round_kv_row and encode_kv_row of tensor/kv_row_codec.h.
void round_row(const cpu::EncodeKernels& encode, RowRounding rounding, std::int64_t rope_dim,
               std::int64_t width, float* x) {
  if (rounding == RowRounding::kNone) return;
  if (rounding == RowRounding::kIndexer) {
    for (std::int64_t i = 0; i < width; i += kIndexerFp4QuantBlock) encode.round_mxfp4_block(x + i);
    return;
  }
  const std::int64_t nope = width - rope_dim;
  for (std::int64_t i = 0; i < nope; i += kAttentionFp8QuantBlock) {
    encode.round_e4m3_block(x + i, static_cast<int>(std::min(kAttentionFp8QuantBlock, nope - i)));
  }
  for (std::int64_t i = nope; i < width; ++i) x[i] = round_bf16(x[i]);
}

void encode_row(const cpu::EncodeKernels& encode, const RowLayout& layout, const float* x,
                std::byte* data, std::byte* scales) {
  auto* const codes = reinterpret_cast<std::uint8_t*>(data);
  auto* const scale_codes = reinterpret_cast<std::uint8_t*>(scales);
  switch (layout.kind) {
    case RowKind::kF32:
      std::memcpy(data, x, static_cast<std::size_t>(layout.width) * sizeof(float));
      return;
    case RowKind::kBf16:
      return encode.encode_bf16_values(x, layout.width, data);
    case RowKind::kAttentionFp8: {
      const std::int64_t nope = layout.width - layout.rope_dim;
      std::memset(scales, 0, static_cast<std::size_t>(layout.scale_bytes()));
      for (std::int64_t i = 0; i < nope; i += kAttentionFp8QuantBlock) {
        const auto n = static_cast<int>(std::min(kAttentionFp8QuantBlock, nope - i));
        scale_codes[i / kAttentionFp8QuantBlock] = encode.encode_e4m3_block(x + i, n, codes + i);
      }
      return encode.encode_bf16_values(x + nope, layout.rope_dim, data + nope);
    }
    case RowKind::kIndexerFp8: {
      const float row_amax = encode.amax(x, layout.width);
      if (!is_finite(row_amax)) return encode_kv_row(layout, x, data, scales);
      const float row_scale = std::max(1e-4f, row_amax) / kE4m3Max;
      encode.encode_e4m3_values(x, layout.width, row_scale, codes);
      std::memcpy(scales, &row_scale, sizeof(row_scale));
      return;
    }
    case RowKind::kIndexerFp4:
      for (std::int64_t i = 0; i < layout.width; i += kIndexerFp4QuantBlock) {
        scale_codes[i / kIndexerFp4QuantBlock] = encode.encode_mxfp4_block(x + i, codes + i / 2);
      }
      return;
  }
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const KvWriteParams& p) const {
  const std::int64_t width = p.rows.layout.width;
  cpu::Scratch scratch(nullptr);
  scratch.take<float>(pool_.num_threads() * width);
  scratch.take<double>(pool_.num_threads() * width);
  return scratch.bytes();
}

void CpuBackend::compute(const KvWriteParams& p, const OpContext& context) {
  const RowLayout& layout = p.rows.layout;
  cpu::Scratch scratch(context.workspace);
  float* const values = scratch.take<float>(pool_.num_threads() * layout.width);
  double* const sums = scratch.take<double>(pool_.num_threads() * layout.width);
  const cpu::EncodeKernels& encode = cpu::encode_kernels(targets_);
  const std::int64_t grain = cpu::row_grain(layout.width);
  pool_.parallel_for(
      p.x.rows * p.rows_per_token, grain,
      [&](std::int64_t begin, std::int64_t end, int thread_idx) {
        float* const x = values + thread_idx * layout.width;
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t slot = p.slots == nullptr ? row : p.slots[row];
          if (slot < 0) continue;
          DSV4_CHECK(slot < num_slots(p.rows), "slot {} of {}", slot, num_slots(p.rows));
          copy_part(p.x, row / p.rows_per_token, row % p.rows_per_token, layout.width, x);
          if (p.hadamard) encode.hadamard(x, layout.width, sums + thread_idx * layout.width);
          round_row(encode, p.rounding, p.rope_dim, layout.width, x);
          encode_row(encode, layout, x, p.rows.row_data(slot), p.rows.row_scales(slot));
        }
      });
}

}  // namespace dsv4
