#include "quantizer/input_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/error.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

// One of an expert's two inputs, in what was measured and in what becomes of it.
struct Projection {
  float ExpertAmaxes::*amax;
  float ExpertInputScales::*scale;
  bool is_down;
};
constexpr Projection kProjections[] = {
    {&ExpertAmaxes::gate_up, &ExpertInputScales::gate_up, false},
    {&ExpertAmaxes::down, &ExpertInputScales::down, true},
};

// 0 where calibration says nothing: an amax of 0 has no scale, and 1 / 0 reached users before.
float scale_of(float amax) { return amax > 0 ? nvfp4_global_scale(amax) : 0; }

float largest_amax(const std::vector<ExpertAmaxes>& experts, const Projection& projection) {
  float largest = 0;
  for (const ExpertAmaxes& expert : experts) largest = std::max(largest, expert.*projection.amax);
  return largest;
}

// One projection of all layers.
void fill_projection(const InputAmaxes& amaxes, const Projection& projection, InputScales& scales) {
  float of_model = 0;
  for (const std::vector<ExpertAmaxes>& experts : amaxes.layers)
    of_model = std::max(of_model, scale_of(largest_amax(experts, projection)));
  require(of_model > 0, ErrorCode::kBadRequest,
          "calibration saw nothing but zeros enter the experts' {}, so there is no scale for them; "
          "give another text, or none for scales that are made as a model runs",
          projection.is_down ? "down matrices" : "gate and up matrices");
  for (std::size_t layer = 0; layer < amaxes.layers.size(); ++layer) {
    const std::vector<ExpertAmaxes>& experts = amaxes.layers[layer];
    const float of_layer = scale_of(largest_amax(experts, projection));
    for (std::size_t expert = 0; expert < experts.size(); ++expert) {
      float& scale = scales.layers[layer][expert].*projection.scale;
      scale = scale_of(experts[expert].*projection.amax);
      if (scale > 0) continue;
      scale = of_layer > 0 ? of_layer : of_model;
      scales.filled.push_back({.layer = static_cast<int>(layer),
                               .expert = static_cast<int>(expert),
                               .is_down = projection.is_down,
                               .tokens = experts[expert].tokens});
    }
  }
}

}  // namespace

InputScales make_input_scales(const InputAmaxes& amaxes) {
  InputScales scales;
  scales.calibration_tokens = amaxes.tokens;
  for (const std::vector<ExpertAmaxes>& experts : amaxes.layers)
    scales.layers.emplace_back(experts.size());
  for (const Projection& projection : kProjections) fill_projection(amaxes, projection, scales);
  std::sort(scales.filled.begin(), scales.filled.end(),
            [](const FilledInputScale& a, const FilledInputScale& b) {
              return std::tie(a.layer, a.expert, a.is_down) <
                     std::tie(b.layer, b.expert, b.is_down);
            });
  return scales;
}

std::string describe(const InputScales& scales) {
  if (scales.filled.empty()) return "";
  std::int64_t inputs = 0;
  for (const std::vector<ExpertInputScales>& experts : scales.layers)
    inputs += std::ssize(experts) * std::ssize(kProjections);
  return fmt::format(
      "{} of {} input scales are not their expert's own: the calibration text ({} {}) gave it "
      "nothing, or only zeros, so it has the largest of its layer or of the model. A longer text "
      "reaches more experts.",
      scales.filled.size(), inputs, scales.calibration_tokens,
      scales.calibration_tokens == 1 ? "token" : "tokens");
}

nlohmann::ordered_json to_json(const InputScales& scales) {
  nlohmann::ordered_json filled = nlohmann::ordered_json::array();
  for (const FilledInputScale& one : scales.filled) {
    filled.push_back({{"layer", one.layer},
                      {"expert", one.expert},
                      {"input", one.is_down ? "down" : "gate_up"},
                      {"tokens", one.tokens}});
  }
  return {{"tokens", scales.calibration_tokens}, {"filled", std::move(filled)}};
}

}  // namespace dsv4
