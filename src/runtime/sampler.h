// sampler.h: draws tokens from logits where these lie, through the sampling op; only the tokens
// come to the host.
//
// How a row is sampled is said in ops/sampling.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dsv4/types.h"
#include "ops/backend.h"

namespace dsv4 {

struct SampledToken {
  TokenId token = -1;  // -1: a logit of the row was NaN, or none above -inf
  float logprob = 0;   // ln of its probability at temperature 1; NaN with token -1
};

// What is said of a row of the model that gave no token, for the token at `position`.
std::string bad_logits_message(std::int64_t position);

// Reuses its memory from call to call; belongs to one thread. The backend must outlive it.
class Sampler {
 public:
  explicit Sampler(Backend& backend) : backend_(backend) {}

  // One token from each row of `logits` ([rows, vocab] F32, device memory), row i as rows[i] says.
  // Throws Error kBadRequest for a row that check(SamplingRow) refuses.
  std::vector<SampledToken> sample(const MatrixView& logits, std::span<const SamplingRow> rows);
  SampledToken sample(const MatrixView& logits, const SamplingRow& row);

 private:
  Backend& backend_;
  DeviceBuffer arrays_, workspace_;
};

}  // namespace dsv4
