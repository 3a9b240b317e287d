// verify.h: judges a loaded model against recorded values of a correct run: each layer alone, then
// the whole. Where the values come from: golden_file.h.
//
// Layer by layer means: every layer is fed the recorded output of the layer before it, so that one
// rounding decision on the other side of a near-tie cannot grow through the layers behind it. The
// limits come from three correct FP32 implementations measured against each other
// (docs/numerics.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "model/options.h"
#include "ops/backend.h"

namespace dsv4 {

// The relative errors of the rows of one comparison. A row is one token's residual copies, sublayer
// output or logits.
struct ErrorSummary {
  std::int64_t rows = 0;
  // Nearest rank: of n errors in ascending order number ceil(n / 2), ceil(0.95 n) and n, counted
  // from 1. A row with a NaN on either side has an infinite error.
  double median = 0, p95 = 0, max = 0;
};

// The error of a row is ||got - want|| / ||want||, in double; 0 where both are zero. got and want
// are [rows, cols], row-major; rows > 0.
ErrorSummary summarize_errors(std::span<const float> got, std::span<const float> want,
                              std::int64_t cols);

// Inclusive. Infinity: not judged by this figure, but an infinite error never passes.
struct ErrorLimits {
  double median = std::numeric_limits<double>::infinity();
  double p95 = std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
};
// One layer on recorded input, in every mode.
inline constexpr ErrorLimits kLayerLimits{2e-6, 1e-4, 1e-1};
// A sublayer's output is not diluted by the residual copies: a single rounding decision of a cache
// row shows at full size in every token that attends to it. It tells which half of a layer departs;
// the residuals judge, except in a model that rounds nothing, where kLayerLimits hold here too.
inline constexpr ErrorLimits kSublayerLimits{.max = 1e-1};
// Logits of the whole model where nothing is rounded on the way (exact rows, activations as they
// are) ...
inline constexpr ErrorLimits kExactModelLimits{.max = 2e-5};
// ... and where something is: near-ties make the models chaotic.
inline constexpr ErrorLimits kRoundedModelLimits{.median = 1e-1};

struct VerifyCheck {
  std::string name;    // "layer 2 (ratio 128) residuals, decode"
  int layer_idx = -1;  // -1: the whole model
  ErrorSummary errors;
  ErrorLimits limits;

  bool passed() const;
  // One line: name, figures, limits, "ok" or "FAIL".
  std::string to_string() const;
};

struct VerifyReport {
  std::vector<VerifyCheck> checks;  // layer by layer first
  std::string precision_note;       // Model::precision_note: what did not run as asked

  bool passed() const;
  // The first layer with a check that failed.
  std::optional<int> first_departing_layer() const;
  // A sentence: what failed and where it begins, or that all passed.
  std::string summary() const;
};

// Told after every step how many of all tokens have been computed; may throw to give up.
using VerifyProgress = std::function<void(std::int64_t done_tokens, std::int64_t total_tokens)>;

// Runs the model with `options` (its max_step_tokens is replaced by what the prompts need) and
// compares it with `golden`; prompts.json lies beside that. The draft block is judged where its
// logits were recorded.
// Throws Error: those of GoldenFile::open and of Model; kBadRequest when draft logits were recorded
// and `weights` has no draft block.
VerifyReport verify_golden(std::shared_ptr<const ModelWeights> weights, Backend& backend,
                           const ModelOptions& options, const std::filesystem::path& golden,
                           const VerifyProgress& progress = {});

}  // namespace dsv4
