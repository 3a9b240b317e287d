// Rotary position embedding.
#include <cmath>

#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {

void ReferenceBackend::compute(const RopeParams& p, const OpContext&) {
  const std::int64_t head_dim = p.x.cols / p.num_heads;
  for (std::int64_t token = 0; token < p.x.rows; ++token) {
    if (p.rope_dim == 0 || p.positions[token] == -1) continue;
    const auto position = static_cast<float>(p.positions[token]);
    for (int head = 0; head < p.num_heads; ++head) {
      const MutableMatrixView rotated =
          plain_columns(p.x, (head + 1) * head_dim - p.rope_dim, p.rope_dim);
      std::vector<float> x = decoded_row(rotated, token);
      for (int i = 0; i < p.rope_dim / 2; ++i) {
        const float angle = position * p.frequencies[i];  // the FP32 product, see the contract
        const double cosine = std::cos(static_cast<double>(angle));
        const double sine = std::sin(static_cast<double>(p.inverse ? -angle : angle));
        const auto pair = static_cast<std::size_t>(2 * i);
        const double re = x[pair];
        const double im = x[pair + 1];
        x[pair] = static_cast<float>(re * cosine - im * sine);
        x[pair + 1] = static_cast<float>(re * sine + im * cosine);
      }
      store_matrix_row(rotated, token, x.data());
    }
  }
}

}  // namespace dsv4
