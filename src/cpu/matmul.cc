#include "cpu/matmul.h"

#include <cstring>

#include "base/check.h"
#include "numerics/bf16.h"

namespace dsv4::cpu {

void prepare_row(const DotKernels& kernels, const Activations& a, std::int64_t row,
                 float* row_scratch, float* out) {
  const std::int64_t k_padded = padded(a.k);
  // Parts of whole lanes lie in the decoded row as they must in the prepared one.
  const bool in_place = a.parts == 1 || a.k == k_padded;
  float* const decoded = in_place ? out : row_scratch;
  kernels.decode_row(a.x, row, decoded);
  if (a.x.interleaved() && (!in_place || !a.interleaved))
    deinterleave(decoded, padded(a.x.view.cols));
  if (!in_place) {
    for (int part = 0; part < a.parts; ++part) {
      float* const to = out + part * k_padded;
      std::memcpy(to, decoded + part * a.k, static_cast<std::size_t>(a.k) * sizeof(float));
      std::fill(to + a.k, to + k_padded, 0.0f);
    }
  }
  if (a.interleaved && (!in_place || !a.x.interleaved())) interleave(out, a.width());
}

void fill_table(const Source& source, float* table) {
  const float global_scale = source.view.global_scales[0];
  for (std::int64_t i = 0; i < kE2m1TableSize; ++i) table[i] = source.table[i] * global_scale;
}

void use_table(Source& source, const float* table) {
  source.table = table;
  source.needs_global_scale = false;
}

void store_values(const MutableMatrixView& y, std::int64_t row, std::int64_t col_begin,
                  const float* values, std::int64_t n) {
  const std::int64_t offset = row * y.row_stride + col_begin;
  if (y.format == Format::kF32) {
    std::memcpy(static_cast<float*>(y.data) + offset, values,
                static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  DSV4_CHECK(y.format == Format::kBf16);
  auto* const bits = static_cast<std::uint16_t*>(y.data) + offset;
  for (std::int64_t i = 0; i < n; ++i) bits[i] = encode_bf16(values[i]);
}

}  // namespace dsv4::cpu
