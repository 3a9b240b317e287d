// token_drawer.h: draws the next tokens of all requests whose logits a step has computed. Logits
// come to the host only for requests with penalties or logprobs, and where none can be drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "runtime/request_run.h"
#include "runtime/sampler.h"

namespace dsv4 {

struct DrawnToken {
  TokenId token = -1;  // -1: the row has a NaN, or nothing above -infinity
  // [vocab], as the model gave them; only if logprobs are wanted or there is no token.
  std::vector<float> model_logits;
};

// Reuses its memory; belongs to one thread. The backend must outlive it.
class TokenDrawer {
 public:
  explicit TokenDrawer(Backend& backend) : backend_(backend), sampler_(backend) {}

  // Row i of `logits` ([requests, vocab] F32, contiguous, device memory) belongs to requests[i].
  std::vector<DrawnToken> draw(const MatrixView& logits, std::span<RequestRun* const> requests);

 private:
  std::vector<float> fetch_row(const MatrixView& logits, std::int64_t row_idx);
  MatrixView with_penalties(const MatrixView& logits, std::span<RequestRun* const> requests,
                            std::span<DrawnToken> drawn);

  Backend& backend_;
  Sampler sampler_;
  DeviceBuffer adjusted_;  // a copy of all rows in which penalties have been applied
};

}  // namespace dsv4
