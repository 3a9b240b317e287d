// perplexity.h: how well a model predicts a text, in windows: the number by which conversions and
// cache formats are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dsv4/types.h"
#include "runtime/loaded_model.h"

namespace dsv4 {

struct PerplexityProgress {
  std::int64_t window_idx = 0, num_windows = 0;
  std::int64_t window_tokens = 0;  // computed of this window; `window` when it is done
  double perplexity = 0;           // over the tokens scored so far
};

struct PerplexityOptions {
  std::int64_t window = 1024;  // tokens, 2 .. LoadedModel::max_session_tokens()
  std::function<void(const PerplexityProgress&)> progress;  // after each step; may throw
};

struct PerplexityResult {
  double perplexity = 0;
  std::vector<double> window_perplexities;
  std::int64_t scored_tokens = 0;
  std::int64_t dropped_tokens = 0;  // the last, partial window
};

// Cuts `tokens` into windows, drops the last partial one, computes each from position 0 and scores
// all of its tokens but the first: exp of the mean negative log-likelihood over all scored tokens,
// summed in FP64. Nothing is added to the tokens. Takes one session of the model.
// Throws Error: kBadRequest (window out of range, a text shorter than one window, an id outside
// the vocabulary), kOverloaded, kBadCheckpoint (logits that are not numbers).
PerplexityResult measure_perplexity(LoadedModel& model, std::span<const TokenId> tokens,
                                    const PerplexityOptions& options = {});

}  // namespace dsv4
