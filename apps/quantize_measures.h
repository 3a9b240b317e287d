// quantize_measures.h: what dsv4 quantize computes with models beside quantising: calibration of
// the source, answers and perplexity before and after; each with its bar.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "quantizer/evaluation.h"
#include "quantizer/input_scales.h"

namespace dsv4 {

// --calibrate, --evaluate, --text as they were typed.
struct MeasureArguments {
  std::optional<std::string> calibrate, questions, text;

  void add_to(CLI::App& command);
};

// Runs the text of `calibrate` through the model in `dir`. Throws what LoadedModel, TextFileTokens,
// calibrate and make_input_scales throw.
InputScales calibrate_with_bar(const std::filesystem::path& dir, const std::string& text_file,
                               const std::string& device, int threads);

// Reads questions and text, so that what is wrong with them is said before anything is computed;
// of the calibration's text only whether it is there. None if neither questions nor text were asked
// for. Throws what TextSource::read and parse_questions throw.
std::optional<EvaluationOptions> read_evaluation(const MeasureArguments& args,
                                                 const std::string& device, int threads);

}  // namespace dsv4
