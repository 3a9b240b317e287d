// softmax_oracle.h: attention of one head straight from its formula, in long double and without a
// maximum, and how far an implementation may lie from it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "testing/tolerances.h"

namespace dsv4::testing {

struct HeadOracle {
  std::vector<double> out;
  std::vector<double> magnitudes;  // sum of weight * |value|
  double lse = -std::numeric_limits<double>::infinity();
  double largest_score = 0;    // magnitude, the sink's included
  double score_magnitude = 0;  // largest sum of |q k| * softmax_scale
};

// weight_j = e^score_j / (sum of e^score + e^sink). `sink` is finite or -inf (none); scores stay
// below 11000, where a long double's exponential ends.
inline HeadOracle attend_by_formula(const std::vector<float>& q,
                                    const std::vector<std::vector<float>>& keys,
                                    const std::vector<std::vector<float>>& values,
                                    std::size_t value_dim, double softmax_scale, double sink) {
  HeadOracle head;
  head.out.assign(value_dim, 0);
  head.magnitudes.assign(value_dim, 0);
  if (keys.empty()) return head;
  if (std::isfinite(sink)) head.largest_score = std::fabs(sink);
  std::vector<long double> exponentials;
  long double sum = 0;
  for (const std::vector<float>& key : keys) {
    long double product = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < q.size(); ++i) {
      product += static_cast<long double>(q[i]) * key[i];
      magnitude += std::fabs(double{q[i]} * key[i]);
    }
    const long double score = product * softmax_scale;
    head.largest_score = std::max(head.largest_score, std::fabs(static_cast<double>(score)));
    head.score_magnitude = std::max(head.score_magnitude, magnitude * std::fabs(softmax_scale));
    exponentials.push_back(std::exp(score));
    sum += exponentials.back();
  }
  head.lse = static_cast<double>(std::log(sum));
  const long double denominator = sum + std::exp(static_cast<long double>(sink));
  for (std::size_t i = 0; i < value_dim; ++i) {
    long double out = 0;
    for (std::size_t j = 0; j < keys.size(); ++j) {
      out += exponentials[j] * values[j][i];
      head.magnitudes[i] +=
          static_cast<double>(exponentials[j] / denominator) * std::fabs(double{values[j][i]});
    }
    head.out[i] = static_cast<double>(out / denominator);
  }
  return head;
}

// Error of one head relative to its magnitudes, for arithmetic of unit roundoff u whose dot
// products of n terms err by dot_bound * sum |q k| and whose sums over rows, one after the other,
// by sum_bound: every score errs by the first, an exponential by its argument's error (two
// roundings of numbers up to twice the largest score) and two ulps, and numerator and denominator
// each carry that error once.
inline double attention_error(const HeadOracle& head, std::size_t rows, double u, double dot_bound,
                              double sum_bound) {
  const double score_error = dot_bound * head.score_magnitude + 4 * u * head.largest_score;
  return 2 * (score_error + 4 * u + sum_bound * (rows > 0 ? 1 : 0));
}
inline double fp32_attention_error(const HeadOracle& head, std::size_t head_dim, std::size_t rows) {
  return attention_error(head, rows, 0x1p-24,
                         accumulation_bound(static_cast<std::int64_t>(head_dim)),
                         chain_bound(static_cast<std::int64_t>(rows)));
}
inline double fp64_attention_error(const HeadOracle& head, std::size_t head_dim, std::size_t rows) {
  return attention_error(head, rows, 0x1p-53, static_cast<double>(head_dim + 1) * 0x1p-53,
                         static_cast<double>(rows + 1) * 0x1p-53);
}

}  // namespace dsv4::testing
