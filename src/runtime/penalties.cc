#include "runtime/penalties.h"

#include <cmath>

namespace dsv4 {
namespace {

// An infinite bias, or a penalty that overflowed, wins over an infinite logit: opposite infinities
// would make a NaN, which condemns the row. A logit that is NaN stays NaN.
float sum(float logit, float addend) {
  return std::isinf(addend) && !std::isnan(logit) ? addend : logit + addend;
}

}  // namespace

Penalties::Penalties(const SamplingOptions& options, std::span<const TokenId> prompt)
    : repetition_(options.repetition_penalty),
      presence_(options.presence_penalty),
      frequency_(options.frequency_penalty),
      bias_(options.logit_bias),
      active_(repetition_ != 1 || presence_ != 0 || frequency_ != 0 || !bias_.empty()) {
  if (repetition_ == 1) return;  // only the repetition penalty looks at the prompt
  for (const TokenId token : prompt) num_drawn_.try_emplace(token, 0);
}

void Penalties::count(TokenId token) {
  if (active_) ++num_drawn_[token];
}

void Penalties::apply(std::span<float> logits) const {
  for (const auto& [token, drawn] : num_drawn_) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / repetition_ : logit * repetition_;
    if (drawn > 0) logit = sum(logit, -(static_cast<float>(drawn) * frequency_ + presence_));
  }
  for (const auto& [token, bias] : bias_) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = sum(logit, bias);
  }
}

}  // namespace dsv4
