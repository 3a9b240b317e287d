#include "quantizer/plan_notes.h"

#include <fmt/format.h>

#include "quantizer/counted.h"

namespace dsv4 {

std::string input_scale_note(std::int64_t matrices, std::int64_t with_scale, Nvfp4Layout layout) {
  if (with_scale == matrices) return "";
  if (with_scale > 0) {
    return fmt::format(
        "Only {} of {} NVFP4 expert matrices have an input scale in the source, so none is "
        "written; a calibration (--calibrate) gives all of them one.",
        with_scale, matrices);
  }
  return fmt::format(
      "The experts have no input scales: the files say that activations are {}. Engines that want "
      "static scales need a calibration (--calibrate).",
      layout == Nvfp4Layout::kModelOpt ? "scaled dynamically" : "not quantised");
}

std::string other_input_scale_note(std::int64_t matrices) {
  if (matrices == 0) return "";
  return fmt::format(
      "{} no input scale, being beside the routed experts, which alone calibration measures: an "
      "engine must take {} as they are or scale them dynamically.",
      counted(matrices, "NVFP4 matrix has", "NVFP4 matrices have"),
      matrices == 1 ? "its inputs" : "their inputs");
}

std::string split_layers_note(std::span<const NamedMatrix> matrices,
                              const std::vector<bool>& chosen, std::size_t num_layers) {
  std::vector<std::int64_t> nvfp4(num_layers), all(num_layers);
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    if (!is_expert(matrices[i].kind) || matrices[i].is_draft) continue;
    const auto layer = static_cast<std::size_t>(matrices[i].layer);
    ++all[layer];
    nvfp4[layer] += chosen[i] || matrices[i].view.format == Format::kNvfp4;
  }
  std::int64_t split = 0;
  std::size_t first = 0;
  for (std::size_t layer = num_layers; layer-- > 0;) {
    if (nvfp4[layer] == 0 || nvfp4[layer] == all[layer]) continue;
    ++split;
    first = layer;
  }
  if (split == 0) return "";
  return fmt::format(
      "Only some of the routed experts' matrices are NVFP4 in {} of {} layers, layers.{} for one. "
      "Other engines take all of a layer's experts in one format; --modules experts gives that.",
      split, num_layers, first);
}

}  // namespace dsv4
