// quantize_measures.h: what dsv4 quantize computes with models beside quantising: calibration of
// the source, answers and perplexity before and after; each with its bar.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>
#include <string>

#include "quantizer/evaluation.h"
#include "quantizer/quantize.h"

namespace dsv4 {

// --calibrate, --evaluate, --text as they were typed.
struct MeasureArguments {
  std::optional<std::string> calibrate, questions, text;

  void add_to(CLI::App& command);
};

// None without --calibrate. The text is named by its size and checksum, so that a resumed run can
// tell another one; a pipe cannot be read twice and is only called one. Looks at the text and at
// the tokenizer of the model in `dir`, so that mistakes show before anything is computed. Throws
// Error: kNotFound, kBadRequest (an empty text, a directory), kIo, and what load_tokenizer throws;
// the task what LoadedModel, TextFileTokens, calibrate and make_input_scales throw.
std::optional<CalibrationTask> calibration_task(const MeasureArguments& args,
                                                const std::filesystem::path& dir,
                                                const std::string& device, int threads);

// Reads questions and text, so that what is wrong with them is said before anything is computed.
// None if neither questions nor text were asked for. Throws what TextSource::read and
// parse_questions throw.
std::optional<EvaluationOptions> read_evaluation(const MeasureArguments& args,
                                                 const std::string& device, int threads);

}  // namespace dsv4
