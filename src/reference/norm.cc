// The root-mean-square norm.
#include "reference/norm.h"

#include <cmath>

#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {

double inverse_rms(const float* x, std::int64_t n, float eps) {
  const double mean = dot(x, x, n) / static_cast<double>(n);
  return 1.0 / std::sqrt(mean + static_cast<double>(eps));
}

void rms_norm_row(float* x, const float* weight, std::int64_t n, float eps) {
  const double factor = inverse_rms(x, n, eps);
  for (std::int64_t k = 0; k < n; ++k) {
    const double normed = x[k] * factor;
    x[k] = static_cast<float>(weight == nullptr ? normed : normed * weight[k]);
  }
}

void ReferenceBackend::compute(const RmsNormParams& p, const OpContext&) {
  if (p.x.empty()) return;
  std::vector<float> weight;
  if (p.weight.data != nullptr) weight = decoded_row(p.weight, 0);
  const std::int64_t rows = active_rows(p.row_count, p.x.rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<float> x = decoded_row(p.x, row);
    rms_norm_row(x.data(), weight.empty() ? nullptr : weight.data(), p.x.cols, p.eps);
    store_matrix_row(p.out, row, x.data());
  }
}

}  // namespace dsv4
