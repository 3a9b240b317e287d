// calibration.h: what enters each routed expert while a model reads a text: the amaxes that static
// scales of NVFP4 activations are made from. Making the scales: quantizer/input_scales.h. Reading
// the text piece by piece: text_file.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dsv4/types.h"
#include "runtime/loaded_model.h"

namespace dsv4 {

// The inputs of one expert over all tokens that were routed to it.
struct ExpertAmaxes {
  float gate_up = 0;        // of the rows that enter gate and up
  float down = 0;           // of silu(gate) * up * router weight
  std::int64_t tokens = 0;  // 0: never routed; then both amaxes are 0
};

struct InputAmaxes {
  std::vector<std::vector<ExpertAmaxes>> layers;  // [layers of the trunk][experts of the layer]
  std::int64_t tokens = 0;                        // of the text; begin marks do not count
};

// The next tokens of a text, any number of them; none: the end.
using TokenSource = std::function<std::vector<TokenId>()>;

struct CalibrationOptions {
  std::int64_t window = 1024;  // tokens, 2 .. LoadedModel::max_session_tokens()
  std::function<void(std::int64_t tokens)> progress;  // tokens computed so far; may throw
};

// Cuts the tokens into windows of `window` - 1 (the last may be shorter), puts the model's begin
// mark before each, as every prompt has it (a window that begins with it gets no second one), and
// computes each from position 0. Holds one window of tokens beside what the source gives at a time.
// Takes one session of the model. The result does not depend on the model's max_step_tokens.
// Throws Error: kBadRequest (window out of range, a text without tokens, an id outside the
// vocabulary, a model whose activations are not kA16), kBadCheckpoint naming layer, expert and
// input where a value is NaN or infinite, kOverloaded; and what the source throws.
InputAmaxes calibrate(LoadedModel& model, const TokenSource& source,
                      const CalibrationOptions& options = {});

}  // namespace dsv4
