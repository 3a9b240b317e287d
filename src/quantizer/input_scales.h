// input_scales.h: the static scales of activations that enter NVFP4 experts, from what calibration
// saw of their inputs, and what stands in where it saw nothing. Measuring: runtime/calibration.h;
// writing them into a checkpoint: quantize.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/calibration.h"

namespace dsv4 {

// Global scales: x = code * block_scale * scale. Finite and > 0.
struct ExpertInputScales {
  float gate_up = 0, down = 0;
};

// An input that calibration says nothing about: of an expert that was never routed, or all 0.
struct FilledInputScale {
  int layer = 0, expert = 0;
  bool is_down = false;     // else gate and up
  std::int64_t tokens = 0;  // that were routed to the expert

  bool operator==(const FilledInputScale&) const = default;
};

struct InputScales {
  std::vector<std::vector<ExpertInputScales>> layers;  // [layers of the trunk][experts]
  std::vector<FilledInputScale> filled;                // ascending by layer, expert, projection
  std::int64_t calibration_tokens = 0;
};

// Scale = amax / 2688 in FP32. An input without a usable amax (0, or so small that the quotient is
// 0) takes the largest amax of the same input (gate and up, or down) in its layer, and if there is
// none, in the model; it is listed as filled.
// Throws Error kBadRequest if one of the two inputs has no usable amax in the whole model.
InputScales make_input_scales(const InputAmaxes& amaxes);

// A sentence on the inputs that were filled, if there are any; else empty.
std::string describe(const InputScales& scales);

// For the report: {"tokens", "filled": [{"layer", "expert", "input", "tokens"}]}; the outer tokens
// are those of the text, the inner ones those that were routed to the expert.
nlohmann::ordered_json to_json(const InputScales& scales);

}  // namespace dsv4
