#include "model/precision.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "checkpoint/foldable.h"

namespace dsv4 {
namespace {

DeviceBuffer upload_input_scales(Backend& backend, std::span<const std::optional<float>> scales) {
  std::vector<float> values;
  for (const std::optional<float>& scale : scales) {
    if (scale.has_value()) values.push_back(*scale);
  }
  if (values.empty() || values.size() != scales.size()) return {};
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
  DeviceBuffer memory = backend.allocate(bytes);
  backend.copy_to_device(memory.data(), values.data(), bytes);
  backend.synchronize();
  return memory;
}

std::vector<MatrixView> joined(std::span<const MatrixView> a, std::span<const MatrixView> b) {
  std::vector<MatrixView> all(a.begin(), a.end());
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

// Matrices of one kind whose input stays as it is although another format was asked for.
struct UnroundedGroup {
  std::string_view name;
  std::size_t num_layers = 0;
  Format format = Format::kBf16;  // of one of them

  // `matrices`: those of a layer. Only formats in which a user would expect the choice count: all
  // for a8, quantised ones for auto, NVFP4 for a4.
  void count_layer(std::span<const MatrixView> matrices, Activations activations) {
    const auto found =
        std::find_if(matrices.begin(), matrices.end(), [activations](const MatrixView& matrix) {
          if (activations == Activations::kA4) return matrix.format == Format::kNvfp4;
          return activations == Activations::kA8 || is_quantized(matrix.format);
        });
    if (found == matrices.end()) return;
    ++num_layers;
    format = found->format;
  }
};

void add_note(std::vector<std::string>& notes, std::initializer_list<UnroundedGroup> groups,
              std::size_t num_layers, std::string_view reason) {
  std::vector<std::string> names;
  for (const UnroundedGroup& group : groups) {
    if (group.num_layers == 0) continue;
    names.push_back(fmt::format("{} of {} of {} layers ({})", group.name, group.num_layers,
                                num_layers, to_string(group.format)));
  }
  if (names.empty()) return;
  notes.push_back(
      fmt::format("{} take activations as they are (a16): {}", fmt::join(names, ", "), reason));
}

}  // namespace

ActivationFormat expert_activation(std::span<const MatrixView> weights, Activations activations) {
  const auto all = [&](auto&& predicate) {
    return std::all_of(weights.begin(), weights.end(), predicate);
  };
  switch (activations) {
    case Activations::kA16:
      return std::nullopt;
    case Activations::kA4:
      if (all([](const MatrixView& w) { return w.format == Format::kNvfp4; }))
        return Format::kNvfp4;
      return std::nullopt;
    case Activations::kAuto:
    case Activations::kA8:
      if (all([](const MatrixView& w) {
            return w.format == Format::kE4m3 || w.format == Format::kMxfp4 || is_foldable(w);
          })) {
        return Format::kE4m3;
      }
      return std::nullopt;
  }
  return std::nullopt;
}

ActivationFormat dense_activation(const MatrixView& weight, Activations activations) {
  if (activations == Activations::kA4) return std::nullopt;
  return expert_activation({&weight, 1}, activations);
}

LayerPrecision plan_precision(const LayerWeights& layer, Activations activations,
                              Backend& backend) {
  LayerPrecision plan;
  plan.q_a = dense_activation(layer.q_a, activations);
  plan.q_b = dense_activation(layer.q_b, activations);
  plan.kv = dense_activation(layer.kv, activations);
  plan.o_b = dense_activation(layer.o_b, activations);
  if (layer.indexer.has_value()) plan.index_q_b = dense_activation(layer.indexer->q_b, activations);
  plan.expert_gate_up =
      expert_activation(joined(layer.experts.gate, layer.experts.up), activations);
  plan.expert_down = expert_activation(layer.experts.down, activations);
  const MatrixView shared_gate_up[] = {layer.shared_expert.gate, layer.shared_expert.up};
  const bool quantize_shared = activations != Activations::kA4;
  if (quantize_shared) {
    plan.shared_gate_up = expert_activation(shared_gate_up, activations);
    plan.shared_down = dense_activation(layer.shared_expert.down, activations);
  }
  if (plan.expert_gate_up == Format::kNvfp4) {
    plan.gate_up_input_scales = upload_input_scales(backend, layer.experts.gate_up_input_scales);
  }
  if (plan.expert_down == Format::kNvfp4) {
    plan.down_input_scales = upload_input_scales(backend, layer.experts.down_input_scales);
  }
  return plan;
}

std::string describe_precision(const ModelWeights& weights, std::span<const LayerPrecision> layers,
                               Activations activations) {
  if (activations == Activations::kA16) return "";
  UnroundedGroup attention{"attention"}, experts{"the experts"}, shared{"the shared experts"};
  bool dynamic = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerWeights& layer = weights.layers[i];
    const LayerPrecision& plan = layers[i];
    std::vector<MatrixView> unrounded;
    const auto check = [&unrounded](const ActivationFormat& format, const MatrixView& weight) {
      if (!format.has_value()) unrounded.push_back(weight);
    };
    check(plan.q_a, layer.q_a);
    check(plan.q_b, layer.q_b);
    check(plan.kv, layer.kv);
    check(plan.o_b, layer.o_b);
    if (layer.indexer.has_value()) check(plan.index_q_b, layer.indexer->q_b);
    attention.count_layer(std::exchange(unrounded, {}), activations);
    check(plan.shared_gate_up, layer.shared_expert.gate);
    check(plan.shared_gate_up, layer.shared_expert.up);
    check(plan.shared_down, layer.shared_expert.down);
    shared.count_layer(std::exchange(unrounded, {}), activations);
    if (!plan.expert_gate_up) unrounded = joined(layer.experts.gate, layer.experts.up);
    if (!plan.expert_down) unrounded = joined(unrounded, layer.experts.down);
    // Of experts a4 asks NVFP4, so that any other format is worth a word.
    experts.count_layer(unrounded,
                        activations == Activations::kA4 ? Activations::kA8 : activations);
    dynamic |= plan.expert_gate_up == Format::kNvfp4 && plan.gate_up_input_scales.size_bytes() == 0;
  }
  std::vector<std::string> notes;
  if (activations == Activations::kA4) {
    add_note(notes, {experts}, layers.size(), "their weights do not come in NVFP4");
    add_note(notes, {attention, shared}, layers.size(),
             "a4 is for the experts that the router picks");
  } else {
    add_note(notes, {attention, experts, shared}, layers.size(),
             "their weights do not fold into FP8");
  }
  if (is_quantized(weights.head.format)) {
    notes.push_back(
        fmt::format("the head ({}) takes activations as they are (a16), as it always does",
                    to_string(weights.head.format)));
  }
  if (dynamic) {
    notes.push_back("no input_scale in the checkpoint: a4 scales are dynamic, per row");
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

}  // namespace dsv4
