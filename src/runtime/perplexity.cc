#include "runtime/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kv/handle.h"

namespace dsv4 {
namespace {

// Bounds the logits of one step, which take 4 bytes * vocabulary a token.
constexpr std::int64_t kMaxLogitsBytes = std::int64_t{64} << 20;

// -ln softmax(logits)[token], FP64, ascending.
double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double max_logit = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - max_logit);
  return std::log(sum) + max_logit - static_cast<double>(logits[static_cast<std::size_t>(token)]);
}

// Computes one window from position 0, step by step.
class WindowScorer {
 public:
  explicit WindowScorer(LoadedModel& model)
      : model_(model), cache_(model.cache()), vocab_size_(model.config().vocab_size) {
    const std::int64_t row_bytes = vocab_size_ * static_cast<std::int64_t>(sizeof(float));
    step_tokens_ = std::clamp<std::int64_t>(kMaxLogitsBytes / row_bytes, 1,
                                            model.model().options().max_step_tokens);
  }

  void begin() {
    cache_.clear();
    sum_ = 0;
  }

  // Computes the next step of `window` and returns the number of its tokens computed so far.
  std::int64_t step(std::span<const TokenId> window) {
    const std::int64_t first = cache_.length();
    const auto size = static_cast<std::int64_t>(window.size());
    const std::int64_t count = std::min(step_tokens_, size - first);
    // Row i predicts token i + 1: the window's last row predicts nothing that is scored.
    rows_.resize(static_cast<std::size_t>(std::min(count, size - 1 - first)));
    std::iota(rows_.begin(), rows_.end(), 0);
    const StepSequence sequence{.cache = &cache_, .first_position = first, .num_tokens = count};
    model_.model().forward(model_.cache(),
                           {.token_ids = window.subspan(static_cast<std::size_t>(first),
                                                        static_cast<std::size_t>(count)),
                            .sequences = {&sequence, 1},
                            .logits_rows = rows_});
    const auto vocab = static_cast<std::size_t>(vocab_size_);
    logits_.resize(rows_.size() * vocab);
    if (!rows_.empty()) {
      model_.backend().copy_to_host(logits_.data(), model_.model().logits().data,
                                    static_cast<std::int64_t>(logits_.size() * sizeof(float)));
      model_.backend().synchronize();
    }
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::size_t position = static_cast<std::size_t>(first) + i;
      const double nll = negative_log_likelihood(
          std::span<const float>(logits_).subspan(i * vocab, vocab), window[position + 1]);
      require(std::isfinite(nll), ErrorCode::kBadCheckpoint,
              "the logits at position {} of a window are not numbers; the weights are damaged, or "
              "do not suit the chosen formats",
              position);
      sum_ += nll;
    }
    return first + count;
  }

  double sum() const { return sum_; }  // of the window so far
  std::int64_t scored_of(std::int64_t computed, std::int64_t window) const {
    return std::min(computed, window - 1);
  }

 private:
  LoadedModel& model_;
  SequenceCache cache_;
  std::int64_t vocab_size_;
  std::int64_t step_tokens_;
  double sum_ = 0;
  std::vector<std::int32_t> rows_;
  std::vector<float> logits_;
};

void check_request(const LoadedModel& model, std::span<const TokenId> tokens, std::int64_t window) {
  require(window >= 2 && window <= model.max_session_tokens(), ErrorCode::kBadRequest,
          "a window of {} tokens; it must be between 2 and {}, what a session of this model holds",
          window, model.max_session_tokens());
  require(static_cast<std::int64_t>(tokens.size()) >= window, ErrorCode::kBadRequest,
          "the text has {} tokens, fewer than one window of {}; give a longer text or a smaller "
          "window",
          tokens.size(), window);
  for (const TokenId id : tokens) {
    require(id >= 0 && id < model.config().vocab_size, ErrorCode::kBadRequest,
            "token id {} is outside the model's vocabulary, 0 to {}", id,
            model.config().vocab_size - 1);
  }
}

}  // namespace

PerplexityResult measure_perplexity(LoadedModel& model, std::span<const TokenId> tokens,
                                    const PerplexityOptions& options) {
  const std::int64_t window = options.window;
  check_request(model, tokens, window);
  const std::int64_t num_windows = static_cast<std::int64_t>(tokens.size()) / window;
  PerplexityResult result;
  result.dropped_tokens = static_cast<std::int64_t>(tokens.size()) - num_windows * window;

  WindowScorer scorer(model);
  double sum = 0;
  for (std::int64_t i = 0; i < num_windows; ++i) {
    const auto part =
        tokens.subspan(static_cast<std::size_t>(i * window), static_cast<std::size_t>(window));
    scorer.begin();
    for (std::int64_t computed = 0; computed < window;) {
      computed = scorer.step(part);
      if (!options.progress) continue;
      const std::int64_t scored = result.scored_tokens + scorer.scored_of(computed, window);
      options.progress(
          {.window_idx = i,
           .num_windows = num_windows,
           .window_tokens = computed,
           .perplexity = std::exp((sum + scorer.sum()) / static_cast<double>(scored))});
    }
    sum += scorer.sum();
    result.scored_tokens += window - 1;
    result.window_perplexities.push_back(std::exp(scorer.sum() / static_cast<double>(window - 1)));
  }
  result.perplexity = std::exp(sum / static_cast<double>(result.scored_tokens));
  return result;
}

}  // namespace dsv4
