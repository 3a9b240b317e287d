// Hyper-connections. FP32 once the mixes are formed, so that every step rounds as the model's does.
#include <cmath>

#include "reference/norm.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

float sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); }

// mixes [weight.rows] = (weight . flat) * rsqrt(mean(flat^2) + norm_eps).
std::vector<float> mixes(const std::vector<std::vector<float>>& weight,
                         const std::vector<float>& flat, float norm_eps) {
  const auto n = static_cast<std::int64_t>(flat.size());
  const double r = inverse_rms(flat.data(), n, norm_eps);
  std::vector<float> out;
  for (const std::vector<float>& w : weight) {
    out.push_back(static_cast<float>(dot(w.data(), flat.data(), n) * r));
  }
  return out;
}

std::vector<std::vector<float>> decoded_rows(const MatrixView& m) {
  std::vector<std::vector<float>> rows;
  for (std::int64_t row = 0; row < m.rows; ++row) rows.push_back(decoded_row(m, row));
  return rows;
}

// A small square matrix, row-major, as the doubly stochastic comb is made of.
struct Square {
  float* values;
  int n;
  float& at(int row, int col) const { return values[row * n + col]; }
};

void softmax_rows(const Square& m) {
  for (int i = 0; i < m.n; ++i) {
    float largest = m.at(i, 0);
    for (int j = 1; j < m.n; ++j) largest = std::max(largest, m.at(i, j));
    float sum = 0;
    for (int j = 0; j < m.n; ++j) {
      m.at(i, j) = static_cast<float>(std::exp(static_cast<double>(m.at(i, j) - largest)));
      sum += m.at(i, j);
    }
    for (int j = 0; j < m.n; ++j) m.at(i, j) /= sum;
  }
}

void divide_by_row_sums(const Square& m, float eps) {
  for (int i = 0; i < m.n; ++i) {
    float sum = 0;
    for (int j = 0; j < m.n; ++j) sum += m.at(i, j);
    for (int j = 0; j < m.n; ++j) m.at(i, j) /= sum + eps;
  }
}

void divide_by_column_sums(const Square& m, float eps) {
  for (int j = 0; j < m.n; ++j) {
    float sum = 0;
    for (int i = 0; i < m.n; ++i) sum += m.at(i, j);
    for (int i = 0; i < m.n; ++i) m.at(i, j) /= sum + eps;
  }
}

// Sinkhorn's iteration as the model runs it: eps enters after the softmax and in every division.
void normalise_comb(const Square& comb, int sinkhorn_iters, float eps) {
  softmax_rows(comb);
  for (int i = 0; i < comb.n * comb.n; ++i) comb.values[i] += eps;
  divide_by_column_sums(comb, eps);
  for (int iter = 1; iter < sinkhorn_iters; ++iter) {
    divide_by_row_sums(comb, eps);
    divide_by_column_sums(comb, eps);
  }
}

// out[token] = RMSNorm(sum over j of pre[j] * X_j).
void store_mixed_row(const std::vector<float>& flat, const std::vector<float>& pre,
                     const MatrixView& norm_weight, float norm_eps, const MutableMatrixView& out,
                     std::int64_t token) {
  const auto dim = static_cast<std::size_t>(out.cols);
  std::vector<float> sum(dim);
  for (std::size_t j = 0; j < pre.size(); ++j) {
    for (std::size_t k = 0; k < dim; ++k) sum[k] += pre[j] * flat[j * dim + k];
  }
  if (norm_weight.data != nullptr) {
    rms_norm_row(sum.data(), decoded_row(norm_weight, 0).data(), out.cols, norm_eps);
  }
  store_matrix_row(out, token, sum.data());
}

}  // namespace

void ReferenceBackend::compute(const HcPreParams& p, const OpContext&) {
  if (p.x.cols == 0) return;
  const std::vector<std::vector<float>> weight = decoded_rows(p.mix_weight);
  const std::int64_t tokens = active_rows(p.row_count, p.x.rows);
  const std::int64_t copies = p.copies;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::vector<float> flat = decoded_row(p.x, token);
    const std::vector<float> mix = mixes(weight, flat, p.norm_eps);
    // Mix number idx under its part's scale and its own base.
    const auto scaled = [&](std::int64_t idx, int part) {
      return mix[static_cast<std::size_t>(idx)] * p.scales[part] + p.base[idx];
    };
    std::vector<float> pre;
    for (std::int64_t j = 0; j < copies; ++j) {
      pre.push_back(sigmoid(scaled(j, 0)) + p.hc_eps);
      p.post[token * copies + j] = 2 * sigmoid(scaled(copies + j, 1));
    }
    float* comb = p.comb + token * copies * copies;
    for (std::int64_t i = 0; i < copies * copies; ++i) comb[i] = scaled(2 * copies + i, 2);
    normalise_comb({comb, p.copies}, p.sinkhorn_iters, p.hc_eps);
    store_mixed_row(flat, pre, p.norm_weight, p.norm_eps, p.out, token);
  }
}

void ReferenceBackend::compute(const HcPostParams& p, const OpContext&) {
  const std::int64_t tokens = active_rows(p.row_count, p.x.rows);
  const std::int64_t copies = p.copies;
  const std::int64_t dim = p.y.cols;
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::vector<float> flat = decoded_row(p.x, token);
    const std::vector<float> y = decoded_row(p.y, token);
    const float* post = p.post + token * copies;
    const float* comb = p.comb + token * copies * copies;
    std::vector<float> out(flat.size());
    for (std::int64_t j = 0; j < copies; ++j) {
      for (std::int64_t k = 0; k < dim; ++k) {
        float sum = post[j] * y[static_cast<std::size_t>(k)];
        for (std::int64_t i = 0; i < copies; ++i) {
          sum += comb[i * copies + j] * flat[static_cast<std::size_t>(i * dim + k)];
        }
        out[static_cast<std::size_t>(j * dim + k)] = sum;
      }
    }
    store_matrix_row(p.out, token, out.data());
  }
}

void ReferenceBackend::compute(const HcHeadParams& p, const OpContext&) {
  if (p.x.cols == 0) return;
  const std::vector<std::vector<float>> weight = decoded_rows(p.mix_weight);
  const std::int64_t tokens = active_rows(p.row_count, p.x.rows);
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::vector<float> flat = decoded_row(p.x, token);
    std::vector<float> pre = mixes(weight, flat, p.norm_eps);
    for (std::size_t j = 0; j < pre.size(); ++j) {
      pre[j] = sigmoid(pre[j] * *p.scale + p.base[j]) + p.hc_eps;
    }
    store_mixed_row(flat, pre, p.norm_weight, p.norm_eps, p.out, token);
  }
}

}  // namespace dsv4
