// The router: affinities, selection, weights.
#include <cmath>
#include <limits>
#include <numeric>

#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

// affinities [experts] from dot products, in place. Functions in FP64, rounded once to FP32.
void apply_scoring(ScoringFunction scoring, std::vector<float>& values) {
  if (scoring == ScoringFunction::kSoftmax) {
    double largest = -std::numeric_limits<double>::infinity();
    for (float value : values) largest = std::max(largest, static_cast<double>(value));
    double sum = 0;
    for (float value : values) sum += std::exp(value - largest);
    for (float& value : values) value = static_cast<float>(std::exp(value - largest) / sum);
    return;
  }
  for (float& value : values) {
    const double x = value;
    value = static_cast<float>(scoring == ScoringFunction::kSigmoid ? 1 / (1 + std::exp(-x))
                                                                    : std::sqrt(softplus(x)));
  }
}

// The experts_per_token highest keys, descending; ties to the lower index, NaN below all numbers.
std::vector<std::int32_t> select_experts(const std::vector<float>& keys, int experts_per_token) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float key_a = keys[static_cast<std::size_t>(a)];
    const float key_b = keys[static_cast<std::size_t>(b)];
    if (std::isnan(key_a) != std::isnan(key_b)) return std::isnan(key_b);
    if (!std::isnan(key_a) && key_a != key_b) return key_a > key_b;
    return a < b;
  };
  std::sort(order.begin(), order.end(), before);
  order.resize(static_cast<std::size_t>(experts_per_token));
  return order;
}

std::vector<std::int32_t> hashed_experts(const RouterParams& p, std::int32_t token_id) {
  DSV4_CHECK(token_id >= 0 && token_id < p.vocab, "token id {} of a hash table of {}", token_id,
             p.vocab);
  const std::int32_t* experts = p.hash_table + token_id * std::int64_t{p.experts_per_token};
  for (int i = 0; i < p.experts_per_token; ++i) {
    DSV4_CHECK(experts[i] >= 0 && experts[i] < p.weight.rows, "hash table has expert {} of {}",
               experts[i], p.weight.rows);
  }
  return {experts, experts + p.experts_per_token};
}

void route_token(const RouterParams& p, const std::vector<std::vector<float>>& weight,
                 std::int64_t token) {
  const std::vector<float> x = decoded_row(p.x, token);
  std::vector<float> affinities;
  for (const std::vector<float>& w : weight) {
    affinities.push_back(static_cast<float>(dot(w.data(), x.data(), p.x.cols)));
  }
  apply_scoring(p.scoring, affinities);
  std::vector<std::int32_t> experts;
  if (p.hash_table != nullptr) {
    experts = hashed_experts(p, p.token_ids[token]);
  } else {
    std::vector<float> keys = affinities;
    for (std::size_t e = 0; e < keys.size(); ++e) keys[e] += p.bias == nullptr ? 0 : p.bias[e];
    experts = select_experts(keys, p.experts_per_token);
  }
  float sum = 0;
  for (std::int32_t e : experts) sum += affinities[static_cast<std::size_t>(e)];
  if (p.scoring == ScoringFunction::kSoftmax) sum = 1;
  for (int i = 0; i < p.experts_per_token; ++i) {
    const std::int32_t e = experts[static_cast<std::size_t>(i)];
    const std::int64_t out = token * p.experts_per_token + i;
    p.expert_idx[out] = e;
    p.expert_weights[out] = affinities[static_cast<std::size_t>(e)] / sum * p.routed_scale;
  }
}

}  // namespace

void ReferenceBackend::compute(const RouterParams& p, const OpContext&) {
  std::vector<std::vector<float>> weight;
  for (std::int64_t e = 0; e < p.weight.rows; ++e) weight.push_back(decoded_row(p.weight, e));
  for (std::int64_t token = 0; token < p.x.rows; ++token) {
    if (p.token_ids == nullptr || p.token_ids[token] != -1) {
      route_token(p, weight, token);
      continue;
    }
    for (int i = 0; i < p.experts_per_token; ++i) {
      p.expert_idx[token * p.experts_per_token + i] = -1;
    }
  }
}

}  // namespace dsv4
