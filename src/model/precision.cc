#include "model/precision.h"

#include <algorithm>

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
  std::size_t plain = 0;
  bool dynamic = false;
  for (const LayerPrecision& layer : layers) {
    if (!layer.expert_gate_up.has_value() || !layer.expert_down.has_value()) ++plain;
    dynamic |=
        layer.expert_gate_up == Format::kNvfp4 && layer.gate_up_input_scales.size_bytes() == 0;
  }
  const Format format =
      weights.layers.empty() ? Format::kBf16 : weights.layers[0].experts.down[0].format;
  std::string text;
  if (plain > 0 && (activations != Activations::kAuto || is_quantized(format))) {
    text = fmt::format(
        "the experts of {} of {} layers ({}) take activations as they are (a16): their weights do "
        "not {}",
        plain, layers.size(), to_string(format),
        activations == Activations::kA4 ? "come in NVFP4" : "fold into FP8");
  }
  if (dynamic) {
    text += fmt::format("{}no input_scale in the checkpoint: a4 scales are dynamic, per row",
                        text.empty() ? "" : "; ");
  }
  return text;
}

}  // namespace dsv4
