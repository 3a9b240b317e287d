// Writing cache rows: Hadamard in FP64 rounded once, the simulated rounding, the encoding. The
// bytes are those of the encoders in tensor/kv_row_codec.h; rows are shared among the threads.
#include "ops/kv_write.h"

#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/row_math.h"
#include "ops/row_checks.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

// x [n], n a power of two, to its transform, by stages of sums and differences of values `half`
// apart in y [n].
void hadamard_transform(std::int64_t n, double* y, float* x) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
  for (std::int64_t half = 1; half < n; half *= 2) {
    for (std::int64_t begin = 0; begin < n; begin += 2 * half) {
      for (std::int64_t i = begin; i < begin + half; ++i) {
        const double low = y[i];
        const double high = y[i + half];
        y[i] = low + high;
        y[i + half] = low - high;
      }
    }
  }
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(y[i] * factor);
}

// Part `h` of a token's row, copied into out [width].
void copy_part(const MatrixView& x, std::int64_t token, std::int64_t h, std::int64_t width,
               float* out) {
  MatrixView part = x;
  part.data = static_cast<const std::byte*>(x.data) + data_bytes(x.format, h * width);
  part.cols = width;
  decode_matrix_row(part, token, out);
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
  // An encoded value takes as long as several of a row operation.
  const std::int64_t grain = cpu::row_grain(layout.width, 2048);
  pool_.parallel_for(
      p.x.rows * p.rows_per_token, grain,
      [&](std::int64_t begin, std::int64_t end, int thread_idx) {
        float* const x = values + thread_idx * layout.width;
        for (std::int64_t row = begin; row < end; ++row) {
          const std::int64_t slot = p.slots == nullptr ? row : p.slots[row];
          if (slot < 0) continue;
          DSV4_CHECK(slot < num_slots(p.rows), "slot {} of {}", slot, num_slots(p.rows));
          copy_part(p.x, row / p.rows_per_token, row % p.rows_per_token, layout.width, x);
          if (p.hadamard) {
            hadamard_transform(layout.width, sums + thread_idx * layout.width, x);
          }
          round_kv_row(p.rounding, p.rope_dim, layout.width, x);
          encode_kv_row(layout, x, p.rows.row_data(slot), p.rows.row_scales(slot));
        }
      });
}

}  // namespace dsv4
