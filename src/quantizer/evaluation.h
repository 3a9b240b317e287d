// evaluation.h: what a model can do before and after quantisation: answers by kind and perplexity,
// side by side. How they are measured: runtime/evaluate.h and perplexity.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/types.h"
#include "runtime/evaluate.h"
#include "runtime/question_file.h"

namespace dsv4 {

struct EvaluationProgress {
  std::string_view what;  // "scoring, source a16"
  std::string_view unit;  // "tokens", "questions"
  std::int64_t done = 0, total = 0;
};

struct EvaluationOptions {
  std::vector<Question> questions;  // empty: none are asked
  std::optional<std::string> text;  // none: no perplexity
  std::int64_t window = 1024;       // tokens, of perplexity
  std::string device = "cpu";
  int num_threads = 0;  // 0: all cores of the affinity mask
  LoadProgressCallback load_progress;
  std::function<void(const EvaluationProgress&)> progress;  // done == total ends a work; may throw
};

// One model in one activation mode.
struct EvaluatedRun {
  std::string model;               // "source", "result"
  std::string activations;         // "a16", "a4"
  bool has_static_scales = false;  // of a4: the checkpoint's input scales, else made for each row
  std::vector<KindScore> answers;  // in the order of the kinds
  std::optional<double> perplexity;
};

// What evaluate_model would refuse after minutes: a directory without a tokenizer, a text that is
// shorter than a window. Throws Error: kBadRequest, kNotFound, kIo, kBadCheckpoint.
void check_evaluation(const std::filesystem::path& dir, const EvaluationOptions& options);

// Measures a model's directory in a16, and in a4 as well if its experts are NVFP4. Throws what
// opening a model, evaluate and measure_perplexity throw.
std::vector<EvaluatedRun> evaluate_model(const std::filesystem::path& dir, std::string_view name,
                                         const EvaluationOptions& options);

// [{"model", "activations", "scales": "static" or "dynamic" (of a4), "perplexity", "correct",
// "total", "kinds": [{"kind", "correct", "total"}]}], without what was not asked for.
nlohmann::ordered_json to_json(std::span<const EvaluatedRun> runs);

// For the report: {"window" (tokens, of perplexity), "runs"}.
nlohmann::ordered_json evaluation_json(std::span<const EvaluatedRun> runs,
                                       const EvaluationOptions& options);

// A column a run, a line a kind, their sum, perplexity. Ends with a newline. All runs were asked
// the same.
std::string evaluation_table(std::span<const EvaluatedRun> runs);

}  // namespace dsv4
