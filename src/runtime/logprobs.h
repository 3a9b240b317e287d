// logprobs.h: log-probabilities of one row of logits on the host, at temperature 1.
#pragma once

#include <span>
#include <vector>

#include "dsv4/request.h"

namespace dsv4 {

// ln softmax(logits)[i], in FP64, the sum over ascending ids. As in sampling (ops/sampling.h),
// logits of +inf share all probability. NaN logits have no part in it: no token is drawn beside
// one.
class Logprobs {
 public:
  // `logits` ([vocab]) must outlive this.
  explicit Logprobs(std::span<const float> logits);

  // NaN where the logit is NaN or no logit is a number above -inf.
  float of(TokenId token) const;
  // The `count` most likely tokens, ties to the lower id; fewer if fewer logits are numbers.
  std::vector<TokenLogprob> top(int count) const;

 private:
  double distance(float logit) const;

  std::span<const float> logits_;
  float largest_;
  double log_sum_;
};

}  // namespace dsv4
