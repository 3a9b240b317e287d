// penalties.h: the penalties and biases of a request, applied to its logits before they are
// sampled. The formulas stand at SamplingOptions in dsv4/request.h.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "dsv4/request.h"

namespace dsv4 {

// Belongs to one request.
class Penalties {
 public:
  // All ids are within the vocabulary, here and below.
  Penalties(const SamplingOptions& options, std::span<const TokenId> prompt);

  // False: apply() leaves all logits as they are, whatever is drawn.
  bool are_active() const { return active_; }
  // Counts a drawn token.
  void count(TokenId token);
  // `logits` is [vocab].
  void apply(std::span<float> logits) const;

 private:
  float repetition_, presence_, frequency_;
  std::map<TokenId, float> bias_;
  bool active_;
  std::unordered_map<TokenId, std::int64_t> num_drawn_;  // of each token in prompt or draws
};

}  // namespace dsv4
