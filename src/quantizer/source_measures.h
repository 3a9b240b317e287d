// source_measures.h: what a run measures of its source before it writes: input scales by
// calibration, and the evaluation. The journal keeps it, so that a run that goes on has it already.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "quantizer/evaluation.h"
#include "quantizer/input_scales.h"

namespace dsv4 {

struct SourceMeasures {
  std::optional<InputScales> input_scales;
  std::string evaluation_key;            // of what was asked; empty: nothing was
  std::vector<EvaluatedRun> evaluation;  // of the source
};

// Differs where another text, other questions or another device would give other figures.
std::string evaluation_key(const EvaluationOptions& options);

// Keeps every bit.
nlohmann::ordered_json to_json(const SourceMeasures& measures);
// Reads what to_json wrote. Throws nlohmann::json::exception for anything else.
SourceMeasures source_measures_from_json(const nlohmann::json& json);

}  // namespace dsv4
