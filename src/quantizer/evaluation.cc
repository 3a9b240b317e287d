#include "quantizer/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "dsv4/engine.h"
#include "runtime/loaded_model.h"
#include "runtime/perplexity.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

// Questions computed side by side; changes the memory and the time, never the answers.
constexpr int kParallel = 8;

bool takes_a4(const ModelWeights& weights) {
  const auto is_nvfp4 = [](const MatrixView& matrix) { return matrix.format == Format::kNvfp4; };
  return std::any_of(weights.layers.begin(), weights.layers.end(), [&](const LayerWeights& layer) {
    return std::all_of(layer.experts.down.begin(), layer.experts.down.end(), is_nvfp4);
  });
}

bool has_input_scales(const ModelWeights& weights) {
  return std::any_of(weights.layers.begin(), weights.layers.end(), [](const LayerWeights& layer) {
    const auto& scales = layer.experts.down_input_scales;
    return !scales.empty() && scales[0].has_value();
  });
}

double perplexity_of(LoadedModel& model, const EvaluationOptions& options, std::string_view what) {
  PerplexityOptions perplexity;
  perplexity.window = options.window;
  perplexity.progress = [&](const PerplexityProgress& progress) {
    if (!options.progress) return;
    options.progress({what, "tokens", progress.window_idx * options.window + progress.window_tokens,
                      progress.num_windows * options.window});
  };
  return measure_perplexity(model, model.tokenizer().encode(*options.text), perplexity).perplexity;
}

std::vector<KindScore> answers_of(const std::filesystem::path& dir, const std::string& activations,
                                  const EvaluationOptions& options, std::string_view what) {
  EngineOptions engine_options;
  engine_options.model_dir = dir;
  engine_options.device = options.device;
  engine_options.num_threads = options.num_threads;
  engine_options.activations = activations;
  engine_options.max_sessions = engine_options.max_waiting_requests = kParallel;
  engine_options.load_progress = options.load_progress;
  const std::unique_ptr<Engine> engine = Engine::open(engine_options);
  const std::int64_t total = std::ssize(options.questions);
  const auto progress = [&](std::int64_t answered, std::int64_t) {
    if (options.progress) options.progress({what, "questions", answered, total});
  };
  const std::vector<QuestionResult> results =
      evaluate(*engine, options.questions, {.parallel = kParallel, .progress = progress});
  return score_by_kind(options.questions, results);
}

KindScore total_of(const EvaluatedRun& run) {
  KindScore total{.kind = "total"};
  for (const KindScore& score : run.answers) {
    total.correct += score.correct;
    total.total += score.total;
  }
  return total;
}

std::string label_of(const EvaluatedRun& run) {
  if (run.activations != "a4") return fmt::format("{} {}", run.model, run.activations);
  return fmt::format("{} a4 {}", run.model, run.has_static_scales ? "static" : "dynamic");
}

// A question file may call its kinds anything.
std::string kind_text(const KindScore& score) { return printable_utf8(score.kind, 60); }

std::string score_text(const KindScore& score) {
  return fmt::format("{} of {}", score.correct, score.total);
}

}  // namespace

void check_evaluation(const std::filesystem::path& dir, const EvaluationOptions& options) {
  const Tokenizer tokenizer = load_tokenizer(dir);
  if (!options.text) return;
  const std::int64_t tokens = std::ssize(tokenizer.encode(*options.text));
  require(tokens >= options.window, ErrorCode::kBadRequest,
          "--text: the text has {} tokens, fewer than one window of {}; give a longer one", tokens,
          options.window);
}

std::vector<EvaluatedRun> evaluate_model(const std::filesystem::path& dir, std::string_view name,
                                         const EvaluationOptions& options) {
  std::vector<EvaluatedRun> runs;
  bool wants_a4 = true;  // until the weights are seen
  for (const Activations activations : {Activations::kA16, Activations::kA4}) {
    if (activations == Activations::kA4 && !wants_a4) break;
    EvaluatedRun& run = runs.emplace_back();
    run.model = name;
    run.activations = activations == Activations::kA16 ? "a16" : "a4";
    ModelOpenOptions open;
    open.model_dir = dir;
    open.device = options.device;
    open.num_threads = options.num_threads;
    open.model.activations = activations;
    open.kv_tokens = options.window;
    open.load_progress = options.load_progress;
    {
      LoadedModel model(open);
      wants_a4 = takes_a4(model.weights());
      run.has_static_scales = run.activations == "a4" && has_input_scales(model.weights());
      const std::string what = fmt::format("scoring, {}", label_of(run));
      if (options.text) run.perplexity = perplexity_of(model, options, what);
    }
    const std::string what = fmt::format("answering, {}", label_of(run));
    if (!options.questions.empty()) run.answers = answers_of(dir, run.activations, options, what);
  }
  return runs;
}

nlohmann::ordered_json to_json(std::span<const EvaluatedRun> runs) {
  using Json = nlohmann::ordered_json;
  Json json = Json::array();
  for (const EvaluatedRun& run : runs) {
    Json& one = json.emplace_back();
    one = {{"model", run.model}, {"activations", run.activations}};
    if (run.activations == "a4") one["scales"] = run.has_static_scales ? "static" : "dynamic";
    if (run.perplexity) one["perplexity"] = *run.perplexity;
    if (run.answers.empty()) continue;
    const KindScore total = total_of(run);
    one["correct"] = total.correct;
    one["total"] = total.total;
    for (const KindScore& score : run.answers) {
      one["kinds"].push_back(
          {{"kind", score.kind}, {"correct", score.correct}, {"total", score.total}});
    }
  }
  return json;
}

nlohmann::ordered_json evaluation_json(std::span<const EvaluatedRun> runs,
                                       const EvaluationOptions& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (options.text) json["window"] = options.window;
  json["runs"] = to_json(runs);
  return json;
}

std::string evaluation_table(std::span<const EvaluatedRun> runs) {
  if (runs.empty()) return "";
  constexpr std::size_t kGap = 2;
  std::size_t kind_width = std::string_view("perplexity").size();
  for (const KindScore& score : runs[0].answers)
    kind_width = std::max(kind_width, kind_text(score).size());
  std::string text(kind_width, ' ');
  std::vector<std::size_t> widths;
  for (const EvaluatedRun& run : runs) {
    widths.push_back(std::max(label_of(run).size(), std::string_view("1000 of 1000").size()) +
                     kGap);
    text += fmt::format("{:>{}}", label_of(run), widths.back());
  }
  // One line; `cell` gives a run's text.
  const auto line = [&](std::string_view name, auto&& cell) {
    text += fmt::format("\n{:<{}}", name, kind_width);
    for (std::size_t i = 0; i < runs.size(); ++i)
      text += fmt::format("{:>{}}", cell(runs[i]), widths[i]);
  };
  for (std::size_t i = 0; i < runs[0].answers.size(); ++i) {
    line(kind_text(runs[0].answers[i]),
         [&](const EvaluatedRun& run) { return score_text(run.answers.at(i)); });
  }
  if (!runs[0].answers.empty())
    line("total", [](const EvaluatedRun& run) { return score_text(total_of(run)); });
  if (runs[0].perplexity)
    line("perplexity",
         [](const EvaluatedRun& run) { return fmt::format("{:.4f}", *run.perplexity); });
  return text + "\n";
}

}  // namespace dsv4
