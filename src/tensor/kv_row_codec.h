// kv_row_codec.h: writing FP32 values as a cache row of any kind and reading them back, on the
// host.
//
// Sources of the rounding rules: docs/numerics.md. Where a row kind could hold more than the model
// was trained with (FP32, BF16), RowRounding says which rounding is simulated first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "tensor/kv_rows.h"

namespace dsv4 {

// kNone:      the values as they are (BF16 rows still round to BF16)
// kAttention: E4M3 in blocks of 64 for all but the last rope_dim values, BF16 for those
// kIndexer:   MXFP4 in blocks of 32
enum class RowRounding : std::uint8_t { kNone, kAttention, kIndexer };

// Encodes x [layout.width] into a row's data and scale bytes. Pad bytes of the scales become 0.
inline void encode_kv_row(const RowLayout& layout, const float* x, std::byte* data,
                          std::byte* scales) {
  auto* codes = reinterpret_cast<std::uint8_t*>(data);
  auto* scale_codes = reinterpret_cast<std::uint8_t*>(scales);
  switch (layout.kind) {
    case RowKind::kF32:
      std::memcpy(data, x, static_cast<std::size_t>(layout.width) * sizeof(float));
      return;
    case RowKind::kBf16:
      for (std::int64_t i = 0; i < layout.width; ++i) {
        const std::uint16_t bits = encode_bf16(x[i]);
        std::memcpy(data + 2 * i, &bits, 2);
      }
      return;
    case RowKind::kAttentionFp8: {
      const std::int64_t nope = layout.width - layout.rope_dim;
      std::memset(scales, 0, static_cast<std::size_t>(layout.scale_bytes()));
      for (std::int64_t i = 0; i < nope; i += kAttentionFp8QuantBlock) {
        const auto n = static_cast<int>(std::min(kAttentionFp8QuantBlock, nope - i));
        scale_codes[i / kAttentionFp8QuantBlock] = encode_e4m3_block(x + i, n, codes + i);
      }
      for (std::int64_t i = 0; i < layout.rope_dim; ++i) {
        const std::uint16_t bits = encode_bf16(x[nope + i]);
        std::memcpy(data + nope + 2 * i, &bits, 2);
      }
      return;
    }
    case RowKind::kIndexerFp8: {
      float amax = 1e-4f;
      for (std::int64_t i = 0; i < layout.width; ++i) amax = std::max(amax, std::fabs(x[i]));
      const float row_scale = amax / kE4m3Max;
      for (std::int64_t i = 0; i < layout.width; ++i) codes[i] = encode_e4m3(x[i] / row_scale);
      std::memcpy(scales, &row_scale, sizeof(row_scale));
      return;
    }
    case RowKind::kIndexerFp4:
      for (std::int64_t i = 0; i < layout.width; i += kIndexerFp4QuantBlock) {
        scale_codes[i / kIndexerFp4QuantBlock] = encode_mxfp4_block(x + i, codes + i / 2);
      }
      return;
  }
}

// Decodes a row into out [layout.width]; exact.
inline void decode_kv_row(const RowLayout& layout, const std::byte* data, const std::byte* scales,
                          float* out) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(data);
  const auto* scale_codes = reinterpret_cast<const std::uint8_t*>(scales);
  const auto read_bf16 = [](const std::byte* from) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from, 2);
    return decode_bf16(bits);
  };
  switch (layout.kind) {
    case RowKind::kF32:
      std::memcpy(out, data, static_cast<std::size_t>(layout.width) * sizeof(float));
      return;
    case RowKind::kBf16:
      for (std::int64_t i = 0; i < layout.width; ++i) out[i] = read_bf16(data + 2 * i);
      return;
    case RowKind::kAttentionFp8: {
      const std::int64_t nope = layout.width - layout.rope_dim;
      for (std::int64_t i = 0; i < nope; ++i) {
        out[i] = decode_e4m3(codes[i]) * decode_e8m0(scale_codes[i / kAttentionFp8QuantBlock]);
      }
      for (std::int64_t i = 0; i < layout.rope_dim; ++i)
        out[nope + i] = read_bf16(data + nope + 2 * i);
      return;
    }
    case RowKind::kIndexerFp8: {
      float row_scale = 0;
      std::memcpy(&row_scale, scales, sizeof(row_scale));
      for (std::int64_t i = 0; i < layout.width; ++i) out[i] = decode_e4m3(codes[i]) * row_scale;
      return;
    }
    case RowKind::kIndexerFp4:
      for (std::int64_t i = 0; i < layout.width; ++i) {
        const std::uint8_t code = (i % 2 == 0) ? codes[i / 2] & 0xF : codes[i / 2] >> 4;
        out[i] = decode_e2m1(code) * decode_e8m0(scale_codes[i / kIndexerFp4QuantBlock]);
      }
      return;
  }
}

// Rounds x [width] in place as a row of the simulated kind would; rope_dim as in RowLayout.
inline void round_kv_row(RowRounding rounding, std::int64_t rope_dim, std::int64_t width,
                         float* x) {
  if (rounding == RowRounding::kNone) return;
  std::byte data[2 * kAttentionFp8QuantBlock];
  std::byte scales[8];
  const bool attention = rounding == RowRounding::kAttention;
  const std::int64_t nope = attention ? width - rope_dim : width;
  const std::int64_t quant_block = attention ? kAttentionFp8QuantBlock : kIndexerFp4QuantBlock;
  for (std::int64_t i = 0; i < nope; i += quant_block) {
    const RowLayout piece{attention ? RowKind::kAttentionFp8 : RowKind::kIndexerFp4,
                          std::min(quant_block, nope - i), 0};
    encode_kv_row(piece, x + i, data, scales);
    decode_kv_row(piece, data, scales, x + i);
  }
  for (std::int64_t i = nope; i < width; ++i) x[i] = round_bf16(x[i]);
}

}  // namespace dsv4
