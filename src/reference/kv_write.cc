// Writing cache rows, plainly: Hadamard in FP64 rounded once, the simulated rounding, the encoding.
#include "ops/kv_write.h"

#include <cmath>
#include <vector>

#include "ops/row_checks.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"
#include "tensor/kv_row_codec.h"

namespace dsv4 {
namespace {

// In place on x [n], n a power of two: stage by stage, the sum and the difference of values
// `half` apart.
void hadamard_transform(float* x, std::int64_t n) {
  std::vector<double> y(x, x + n);
  for (std::int64_t half = 1; half < n; half *= 2) {
    for (std::int64_t i = 0; i < n; ++i) {
      if ((i & half) != 0) continue;
      const double low = y[i];
      const double high = y[i + half];
      y[i] = low + high;
      y[i + half] = low - high;
    }
  }
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(y[i] * factor);
}

}  // namespace

void ReferenceBackend::compute(const KvWriteParams& p, const OpContext&) {
  const RowLayout& layout = p.rows.layout;
  std::vector<float> values(static_cast<std::size_t>(p.x.cols));
  for (std::int64_t t = 0; t < p.x.rows; ++t) {
    bool decoded = false;
    for (std::int64_t h = 0; h < p.rows_per_token; ++h) {
      const std::int64_t row = t * p.rows_per_token + h;
      const std::int64_t slot = p.slots == nullptr ? row : p.slots[row];
      if (slot < 0) continue;
      DSV4_CHECK(slot < num_slots(p.rows), "slot {} of {}", slot, num_slots(p.rows));
      if (!decoded) decode_matrix_row(p.x, t, values.data());
      decoded = true;
      float* const x = values.data() + h * layout.width;
      if (p.hadamard) hadamard_transform(x, layout.width);
      round_kv_row(p.rounding, p.rope_dim, layout.width, x);
      encode_kv_row(layout, x, p.rows.row_data(slot), p.rows.row_scales(slot));
    }
  }
}

}  // namespace dsv4
