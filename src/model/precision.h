// precision.h: which activations each quantised linear takes, decided once when the model is
// opened.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "model/options.h"
#include "ops/backend.h"

namespace dsv4 {

// The format that a linear's input is quantised to; none: it stays as it is.
using ActivationFormat = std::optional<Format>;

// Input of a dense linear, or of the experts' gate and up or down matrices, which share one.
ActivationFormat dense_activation(const MatrixView& weight, Activations activations);
ActivationFormat expert_activation(std::span<const MatrixView> weights, Activations activations);

// The formats of all quantisable linears of a layer.
struct LayerPrecision {
  ActivationFormat q_a, q_b, kv, o_b, index_q_b;
  ActivationFormat expert_gate_up, expert_down;
  ActivationFormat shared_gate_up, shared_down;
  // [experts] on the device, the static global scales of kNvfp4 inputs; empty: dynamic, per row.
  DeviceBuffer gate_up_input_scales, down_input_scales;

  // Whether any of them quantises its input.
  bool quantizes() const {
    return q_a || q_b || kv || o_b || index_q_b || expert_gate_up || expert_down ||
           shared_gate_up || shared_down;
  }
};
LayerPrecision plan_precision(const LayerWeights& layer, Activations activations, Backend& backend);

// What a user would not expect of the choice, with semicolons between, e.g. that NVFP4 attention or
// experts that do not fold stay at a16 under kA8. Empty: nothing to say.
std::string describe_precision(const ModelWeights& weights, std::span<const LayerPrecision> layers,
                               Activations activations);

}  // namespace dsv4
