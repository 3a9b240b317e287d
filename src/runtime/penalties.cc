#include "runtime/penalties.h"

#include <cmath>
#include <limits>

namespace dsv4 {

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
    if (drawn > 0) logit -= static_cast<float>(drawn) * frequency_ + presence_;
  }
  for (const auto& [token, bias] : bias_) {
    float& logit = logits[static_cast<std::size_t>(token)];
    // Penalties may have overflowed to -inf; a logit that is no number stays none.
    const bool is_forced = bias == std::numeric_limits<float>::infinity() && !std::isnan(logit);
    logit = is_forced ? bias : logit + bias;
  }
}

}  // namespace dsv4
