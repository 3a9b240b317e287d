#include "runtime/calibration.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "kv/handle.h"
#include "numerics/amax.h"

namespace dsv4 {
namespace {

// Keeps the largest magnitude of each expert's inputs, step by step.
class AmaxRecorder final : public LayerObserver {
 public:
  AmaxRecorder(Backend& backend, const ModelWeights& weights) : backend_(backend) {
    for (const LayerWeights& layer : weights.layers)
      layers_.emplace_back(static_cast<std::size_t>(layer.num_experts));
  }

  // Where the tokens of the next step stand, for messages.
  void begin_step(std::int64_t window_idx, std::int64_t first_position) {
    window_idx_ = window_idx;
    first_position_ = first_position;
  }

  void expert_inputs(int layer_idx, const ExpertInputs& inputs) override {
    fetch(inputs);
    std::vector<ExpertAmaxes>& experts = layers_[static_cast<std::size_t>(layer_idx)];
    DSV4_CHECK(std::ssize(experts) == inputs.num_experts);
    for (std::size_t i = 0; i < experts.size(); ++i) {
      ExpertAmaxes& expert = experts[i];
      for (std::int32_t row = offsets_[i]; row < offsets_[i + 1]; ++row) {
        const std::int32_t token = row_tokens_[static_cast<std::size_t>(row)];
        const float gate_up = row_amax(x_, token, inputs.x.cols);
        const float down = row_amax(inter_, row, inputs.inter.cols);
        check(gate_up, "gate and up", layer_idx, i, token);
        check(down, "down", layer_idx, i, token);
        expert.gate_up = std::max(expert.gate_up, gate_up);
        expert.down = std::max(expert.down, down);
      }
      expert.tokens += offsets_[i + 1] - offsets_[i];
    }
  }

  std::vector<std::vector<ExpertAmaxes>> take() { return std::move(layers_); }

 private:
  // All of the step's to the host; rows of `inter` past the last offset are no data.
  void fetch(const ExpertInputs& inputs) {
    copy(inputs.expert_offsets, inputs.num_experts + 1, offsets_);
    backend_.synchronize();
    const std::int64_t rows = offsets_.back();
    copy(inputs.row_tokens, rows, row_tokens_);
    copy_rows(inputs.x, inputs.x.rows, x_);
    copy_rows(inputs.inter, rows, inter_);
    backend_.synchronize();
  }
  void copy_rows(const MatrixView& from, std::int64_t rows, std::vector<float>& to) {
    DSV4_CHECK(from.format == Format::kF32 && from.row_stride == from.cols && rows <= from.rows);
    copy(static_cast<const float*>(from.data), rows * from.cols, to);
  }
  template <class T>
  void copy(const T* from, std::int64_t count, std::vector<T>& to) {
    to.resize(static_cast<std::size_t>(count));
    if (count > 0) backend_.copy_to_host(to.data(), from, count * std::int64_t{sizeof(T)});
  }

  static float row_amax(const std::vector<float>& rows, std::int64_t row, std::int64_t cols) {
    return amax(rows.data() + row * cols, cols);
  }
  void check(float value, std::string_view input, int layer, std::size_t expert,
             std::int32_t token) const {
    require(is_finite(value), ErrorCode::kBadCheckpoint,
            "calibration: what enters {} of expert {} in layer {} is not finite, at position {} of "
            "window {}; the weights are damaged, or hold NaN",
            input, expert, layer, first_position_ + token, window_idx_);
  }

  Backend& backend_;
  std::vector<std::vector<ExpertAmaxes>> layers_;
  std::int64_t window_idx_ = 0, first_position_ = 0;
  std::vector<std::int32_t> offsets_, row_tokens_;
  std::vector<float> x_, inter_;
};

// The source's tokens in windows that begin with the begin mark.
class Windows {
 public:
  Windows(const TokenSource& source, TokenId bos, std::int64_t window)
      : source_(source), bos_(bos), window_(static_cast<std::size_t>(window)) {}

  // Empty after the last. Valid until the next call.
  std::span<const TokenId> next() {
    current_.clear();
    while (current_.size() < window_ && (used_ < pending_.size() || refill())) {
      if (current_.empty() && pending_[used_] != bos_) current_.push_back(bos_);
      const std::size_t count = std::min(window_ - current_.size(), pending_.size() - used_);
      const auto begin = pending_.begin() + static_cast<std::ptrdiff_t>(used_);
      current_.insert(current_.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
      used_ += count;
      text_tokens_ += static_cast<std::int64_t>(count);
    }
    return current_;
  }
  // Tokens of the text in all windows so far.
  std::int64_t text_tokens() const { return text_tokens_; }

 private:
  bool refill() {
    pending_ = source_();
    used_ = 0;
    return !pending_.empty();
  }

  const TokenSource& source_;
  TokenId bos_;
  std::size_t window_;
  std::vector<TokenId> pending_, current_;
  std::size_t used_ = 0;  // of pending_
  std::int64_t text_tokens_ = 0;
};

void check_request(LoadedModel& model, std::int64_t window) {
  require(window >= 2 && window <= model.max_session_tokens(), ErrorCode::kBadRequest,
          "a calibration window of {} tokens; it must be between 2 and {}, what a session of this "
          "model holds",
          window, model.max_session_tokens());
  require(model.model().options().activations == Activations::kA16, ErrorCode::kBadRequest,
          "calibration measures activations as they are: open the model with a16");
}

}  // namespace

InputAmaxes calibrate(LoadedModel& model, const TokenSource& source,
                      const CalibrationOptions& options) {
  check_request(model, options.window);
  AmaxRecorder recorder(model.backend(), model.weights());
  Windows windows(source, model.config().bos_id, options.window);
  SequenceCache cache(model.cache());
  const auto step_tokens = static_cast<std::size_t>(model.model().options().max_step_tokens);
  std::int64_t window_idx = 0;
  for (auto window = windows.next(); !window.empty(); window = windows.next(), ++window_idx) {
    cache.clear();
    for (std::size_t done = 0; done < window.size();) {
      const std::size_t count = std::min(step_tokens, window.size() - done);
      const StepSequence sequence{.cache = &cache,
                                  .first_position = static_cast<std::int64_t>(done),
                                  .num_tokens = static_cast<std::int64_t>(count)};
      recorder.begin_step(window_idx, sequence.first_position);
      model.model().forward(model.cache(),
                            {.token_ids = window.subspan(done, count),
                             .sequences = {&sequence, 1},
                             .logits_rows = {}},
                            &recorder);
      done += count;
      if (options.progress)
        options.progress(windows.text_tokens() - static_cast<std::int64_t>(window.size() - done));
    }
  }
  require(windows.text_tokens() > 0, ErrorCode::kBadRequest,
          "the calibration text is empty; give one that the model is to be used for");
  return {.layers = recorder.take(), .tokens = windows.text_tokens()};
}

}  // namespace dsv4
