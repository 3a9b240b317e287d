#include "runtime/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dsv4 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float largest_number(std::span<const float> logits) {
  float largest = -kInfinity;
  for (const float logit : logits) largest = std::max(largest, logit);  // NaN loses
  return largest;
}

}  // namespace

Logprobs::Logprobs(std::span<const float> logits)
    : logits_(logits), largest_(largest_number(logits)) {
  double sum = 0;
  for (const float logit : logits) {
    if (logit > -kInfinity) sum += std::exp(distance(logit));
  }
  log_sum_ = sum > 0 ? std::log(sum) : std::numeric_limits<double>::quiet_NaN();
}

// 0 at the largest, even if that is infinite.
double Logprobs::distance(float logit) const {
  return logit == largest_ ? 0 : static_cast<double>(logit) - largest_;
}

float Logprobs::of(TokenId token) const {
  return static_cast<float>(distance(logits_[static_cast<std::size_t>(token)]) - log_sum_);
}

std::vector<TokenLogprob> Logprobs::top(int count) const {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (!std::isnan(logits_[i])) ids.push_back(static_cast<TokenId>(i));
  }
  const auto end = ids.begin() + std::min(static_cast<std::ptrdiff_t>(count), std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [this](TokenId a, TokenId b) {
    const float logit_a = logits_[static_cast<std::size_t>(a)];
    const float logit_b = logits_[static_cast<std::size_t>(b)];
    return logit_a != logit_b ? logit_a > logit_b : a < b;
  });
  ids.erase(end, ids.end());
  std::vector<TokenLogprob> top;
  for (const TokenId id : ids) top.push_back({id, of(id)});
  return top;
}

}  // namespace dsv4
