#include "runtime/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "kv/handle.h"
#include "model/model.h"
#include "runtime/golden_file.h"

namespace dsv4 {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double row_error(const float* got, const float* want, std::int64_t cols) {
  double difference = 0;
  double reference = 0;
  for (std::int64_t i = 0; i < cols; ++i) {
    const double delta = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    difference += delta * delta;
    reference += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  if (difference == 0) return 0;  // also where both rows are zero
  const double error = std::sqrt(difference / reference);
  return std::isnan(error) ? kInfinity : error;
}

// The values of a plain contiguous FP32 matrix of the device.
std::vector<float> download(Backend& backend, const MatrixView& m) {
  DSV4_CHECK(m.format == Format::kF32 && m.row_stride == m.cols);
  std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
  backend.copy_to_host(values.data(), m.data,
                       static_cast<std::int64_t>(values.size() * sizeof(float)));
  backend.synchronize();
  return values;
}

// Feeds every layer the recorded output of the one before and keeps what it makes of it, over the
// steps of one prompt.
class LayerByLayer : public LayerObserver {
 public:
  struct Outputs {
    std::vector<float> residuals, attention, experts;  // row after row, over all steps
  };

  LayerByLayer(Backend& backend, const GoldenFile& golden, const ModelConfig& config)
      : backend_(backend), outputs_(static_cast<std::size_t>(config.num_layers)) {
    for (int layer = 0; layer < config.num_layers; ++layer) {
      recorded_.push_back(golden.values(
          fmt::format("{}.layers.{}.streams_out", golden.layered_prompt().name, layer)));
    }
  }

  void before_layer(int layer_idx, const MutableMatrixView& residuals) override {
    if (layer_idx == 0) return;  // the embedding of the tokens
    DSV4_CHECK(residuals.format == Format::kF32 && residuals.row_stride == residuals.cols);
    // The layer has as many outputs as there were tokens in the steps before this one.
    const std::size_t seen = outputs_[static_cast<std::size_t>(layer_idx)].residuals.size();
    const std::vector<float>& recorded = recorded_[static_cast<std::size_t>(layer_idx - 1)];
    const auto count = static_cast<std::size_t>(residuals.rows * residuals.cols);
    DSV4_CHECK(seen + count <= recorded.size());
    backend_.copy_to_device(residuals.data, recorded.data() + seen,
                            static_cast<std::int64_t>(count * sizeof(float)));
    backend_.synchronize();
  }
  void after_attention(int layer_idx, const MatrixView& out) override {
    append(out, outputs_[static_cast<std::size_t>(layer_idx)].attention);
  }
  void after_experts(int layer_idx, const MatrixView& out) override {
    append(out, outputs_[static_cast<std::size_t>(layer_idx)].experts);
  }
  void after_layer(int layer_idx, const MatrixView& residuals) override {
    append(residuals, outputs_[static_cast<std::size_t>(layer_idx)].residuals);
  }

  const Outputs& outputs(int layer_idx) const {
    return outputs_[static_cast<std::size_t>(layer_idx)];
  }
  const std::vector<float>& recorded(int layer_idx) const {
    return recorded_[static_cast<std::size_t>(layer_idx)];
  }

 private:
  void append(const MatrixView& m, std::vector<float>& to) {
    const std::vector<float> values = download(backend_, m);
    to.insert(to.end(), values.begin(), values.end());
  }

  Backend& backend_;
  std::vector<std::vector<float>> recorded_;  // streams_out of each layer
  std::vector<Outputs> outputs_;
};

class Verifier {
 public:
  Verifier(Model& model, Backend& backend, const GoldenFile& golden, const VerifyProgress& progress)
      : model_(model), backend_(backend), golden_(golden), progress_(progress) {
    std::int64_t capacity = 0;
    total_tokens_ = golden.layered_prompt().num_tokens();
    for (const GoldenPrompt& prompt : golden.prompts()) {
      capacity = std::max(capacity, prompt.num_tokens());
      total_tokens_ += prompt.num_tokens();
    }
    cache_ = model.make_cache(capacity, /*max_sessions=*/1);
  }

  VerifyReport run() {
    check_layers();
    for (const GoldenPrompt& prompt : golden_.prompts()) check_logits(prompt);
    return std::move(report_);
  }

 private:
  // One step of the prompt's next tokens; logits of its last `num_logits` of them.
  void step(SequenceCache& sequence, const GoldenPrompt& prompt, std::int64_t num_tokens,
            std::int64_t num_logits, LayerObserver* observer) {
    const std::int64_t begin = sequence.length();
    const StepSequence sequences[] = {{&sequence, begin, num_tokens}};
    std::vector<std::int32_t> logits_rows;
    for (std::int64_t row = num_tokens - num_logits; row < num_tokens; ++row) {
      logits_rows.push_back(static_cast<std::int32_t>(row));
    }
    const auto tokens =
        std::span(prompt.tokens)
            .subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(num_tokens));
    model_.forward(*cache_, {tokens, sequences, logits_rows}, observer);
    done_tokens_ += num_tokens;
    if (progress_) progress_(done_tokens_, total_tokens_);
  }

  void check_layers() {
    const GoldenPrompt& prompt = golden_.layered_prompt();
    LayerByLayer layers(backend_, golden_, model_.config());
    SequenceCache sequence(*cache_);
    step(sequence, prompt, prompt.num_prefilled, 1, &layers);
    for (std::int64_t i = 0; i < prompt.num_decoded(); ++i) step(sequence, prompt, 1, 1, &layers);

    const std::int64_t hidden = model_.config().hidden_size;
    for (int layer = 0; layer < model_.config().num_layers; ++layer) {
      const LayerByLayer::Outputs& got = layers.outputs(layer);
      if (golden_.has_sublayer_outputs()) {
        const std::string prefix = fmt::format("{}.layers.{}", prompt.name, layer);
        const ErrorLimits limits = model_.is_exact() ? kLayerLimits : kSublayerLimits;
        add_layer_checks(layer, "attention", got.attention, golden_.values(prefix + ".attn_out"),
                         hidden, limits);
        add_layer_checks(layer, "experts", got.experts, golden_.values(prefix + ".ffn_out"), hidden,
                         limits);
      }
      add_layer_checks(layer, "residuals", got.residuals, layers.recorded(layer),
                       model_.config().hc_copies * hidden, kLayerLimits);
    }
  }

  // Prefilled and decoded rows apart: the few decoded ones would drown in the median.
  void add_layer_checks(int layer, std::string_view what, std::span<const float> got,
                        std::span<const float> want, std::int64_t cols, const ErrorLimits& limits) {
    const auto split = static_cast<std::size_t>(golden_.layered_prompt().num_prefilled * cols);
    const int ratio = model_.config().compress_ratios[static_cast<std::size_t>(layer)];
    const auto add = [&](std::string_view rows, std::size_t begin, std::size_t count) {
      report_.checks.push_back(
          {fmt::format("layer {} (ratio {}) {}, {}", layer, ratio, what, rows), layer,
           summarize_errors(got.subspan(begin, count), want.subspan(begin, count), cols), limits});
    };
    DSV4_CHECK(got.size() == want.size());
    add("prefill", 0, split);
    add("decode", split, got.size() - split);
  }

  void check_logits(const GoldenPrompt& prompt) {
    SequenceCache sequence(*cache_);
    step(sequence, prompt, prompt.num_prefilled, prompt.num_prefill_rows(), nullptr);
    add_logits_check(prompt, "prefill_logits", download(backend_, model_.logits()));
    if (&prompt == golden_.draft_prompt()) check_draft(sequence, prompt);
    std::vector<float> decoded;
    for (std::int64_t i = 0; i < prompt.num_decoded(); ++i) {
      step(sequence, prompt, 1, 1, nullptr);
      const std::vector<float> logits = download(backend_, model_.logits());
      decoded.insert(decoded.end(), logits.begin(), logits.end());
    }
    add_logits_check(prompt, "decode_logits", decoded);
  }

  // On the residuals of the prefill that has just been made.
  void check_draft(SequenceCache& sequence, const GoldenPrompt& prompt) {
    const std::int64_t num_tokens = prompt.num_prefilled;
    const StepSequence sequences[] = {{&sequence, 0, num_tokens}};
    std::vector<std::int32_t> rows;
    for (std::int64_t row = 0; row < num_tokens; ++row) {
      rows.push_back(static_cast<std::int32_t>(row));
    }
    const auto next_tokens =
        std::span(prompt.tokens).subspan(1, static_cast<std::size_t>(num_tokens));
    model_.forward_draft(*cache_, {next_tokens, sequences, rows});
    add_logits_check(prompt, "mtp_logits", download(backend_, model_.logits()));
  }

  void add_logits_check(const GoldenPrompt& prompt, std::string_view tensor,
                        std::span<const float> got) {
    const std::string name = fmt::format("{}.{}", prompt.name, tensor);
    report_.checks.push_back(
        {name, -1, summarize_errors(got, golden_.values(name), model_.config().vocab_size),
         model_.is_exact() ? kExactModelLimits : kRoundedModelLimits});
  }

  Model& model_;
  Backend& backend_;
  const GoldenFile& golden_;
  const VerifyProgress& progress_;
  std::int64_t done_tokens_ = 0, total_tokens_ = 0;
  std::unique_ptr<KvCache> cache_;
  VerifyReport report_;
};

}  // namespace

ErrorSummary summarize_errors(std::span<const float> got, std::span<const float> want,
                              std::int64_t cols) {
  DSV4_CHECK(cols > 0 && !want.empty() && got.size() == want.size(), "{} values for {}", got.size(),
             want.size());
  const auto row_size = static_cast<std::size_t>(cols);
  std::vector<double> errors;
  for (std::size_t at = 0; at < want.size(); at += row_size) {
    errors.push_back(row_error(got.data() + at, want.data() + at, cols));
  }
  std::sort(errors.begin(), errors.end());
  const std::size_t n = errors.size();
  return {static_cast<std::int64_t>(n), errors[(n + 1) / 2 - 1], errors[(95 * n + 99) / 100 - 1],
          errors[n - 1]};
}

bool VerifyCheck::passed() const {
  return std::isfinite(errors.max) && errors.median <= limits.median && errors.p95 <= limits.p95 &&
         errors.max <= limits.max;
}

std::string VerifyCheck::to_string() const {
  const auto figure = [](std::string_view label, double value, double limit) {
    const std::string bound = std::isfinite(limit) ? fmt::format(" (<= {:.0e})", limit) : "";
    return fmt::format("{} {:.1e}{:10}", label, value, bound);
  };
  return fmt::format("{:40} {} {} {} {}", name, figure("median", errors.median, limits.median),
                     figure("p95", errors.p95, limits.p95), figure("max", errors.max, limits.max),
                     passed() ? "ok" : "FAIL");
}

bool VerifyReport::passed() const {
  return std::all_of(checks.begin(), checks.end(),
                     [](const VerifyCheck& check) { return check.passed(); });
}

std::optional<int> VerifyReport::first_departing_layer() const {
  for (const VerifyCheck& check : checks) {
    if (check.layer_idx >= 0 && !check.passed()) return check.layer_idx;
  }
  return std::nullopt;
}

std::string VerifyReport::summary() const {
  const auto num_failed = std::count_if(checks.begin(), checks.end(),
                                        [](const VerifyCheck& check) { return !check.passed(); });
  if (num_failed == 0) return fmt::format("all {} checks passed", checks.size());
  const std::string text = fmt::format("{} of {} checks failed", num_failed, checks.size());
  const std::optional<int> layer = first_departing_layer();
  if (!layer.has_value()) return text + "; every layer alone is right";
  return fmt::format("{}; the first layer that departs is {}", text, *layer);
}

VerifyReport verify_golden(std::shared_ptr<const ModelWeights> weights, Backend& backend,
                           const ModelOptions& options, const std::filesystem::path& golden_path,
                           const VerifyProgress& progress) {
  const GoldenFile golden = GoldenFile::open(golden_path, weights->config);
  require(golden.draft_prompt() == nullptr || weights->draft.has_value(), ErrorCode::kBadRequest,
          "{} holds logits of a draft block, which this model lacks: golden values of another "
          "model",
          golden_path.string());
  ModelOptions model_options = options;
  model_options.max_step_tokens = 1;
  for (const GoldenPrompt& prompt : golden.prompts()) {
    model_options.max_step_tokens = std::max(model_options.max_step_tokens, prompt.num_prefilled);
  }
  Model model(std::move(weights), backend, model_options);
  VerifyReport report = Verifier(model, backend, golden, progress).run();
  report.precision_note = model.precision_note();
  return report;
}

}  // namespace dsv4
