#include "quantizer/source_measures.h"

#include <fmt/format.h>

#include "io/checksum.h"

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;

Json scales_json(const InputScales& scales) {
  Json layers = Json::array(), filled = Json::array();
  for (const std::vector<ExpertInputScales>& experts : scales.layers) {
    Json& layer = layers.emplace_back(Json::array());
    for (const ExpertInputScales& expert : experts) {
      layer.push_back(
          Json::array({static_cast<double>(expert.gate_up), static_cast<double>(expert.down)}));
    }
  }
  for (const FilledInputScale& one : scales.filled) {
    filled.push_back(Json::array({one.layer, one.expert, one.is_down, one.tokens}));
  }
  return {{"tokens", scales.calibration_tokens},
          {"layers", std::move(layers)},
          {"filled", std::move(filled)}};
}

InputScales scales_from_json(const nlohmann::json& json) {
  InputScales scales;
  json.at("tokens").get_to(scales.calibration_tokens);
  for (const nlohmann::json& layer : json.at("layers")) {
    std::vector<ExpertInputScales>& experts = scales.layers.emplace_back();
    for (const nlohmann::json& expert : layer) {
      experts.push_back({expert.at(0).get<float>(), expert.at(1).get<float>()});
    }
  }
  for (const nlohmann::json& one : json.at("filled")) {
    scales.filled.push_back({one.at(0).get<int>(), one.at(1).get<int>(), one.at(2).get<bool>(),
                             one.at(3).get<std::int64_t>()});
  }
  return scales;
}

EvaluatedRun run_from_json(const nlohmann::json& json) {
  EvaluatedRun run;
  json.at("model").get_to(run.model);
  json.at("activations").get_to(run.activations);
  run.has_static_scales = json.value("scales", "") == "static";
  if (json.contains("perplexity")) run.perplexity = json.at("perplexity").get<double>();
  if (!json.contains("kinds")) return run;
  for (const nlohmann::json& kind : json.at("kinds")) {
    run.answers.push_back({.kind = kind.at("kind").get<std::string>(),
                           .correct = kind.at("correct").get<std::int64_t>(),
                           .total = kind.at("total").get<std::int64_t>()});
  }
  return run;
}

}  // namespace

std::string evaluation_key(const EvaluationOptions& options) {
  Checksum checksum;
  // Lengths, so that nothing that ends one text can begin the next.
  checksum.update(fmt::format("{} {} {} {}\n", options.device, options.window,
                              options.questions.size(),
                              options.text ? std::ssize(*options.text) : -1));
  for (const Question& question : options.questions) {
    checksum.update(fmt::format("{}\n{}\n", question.conversation.size(), question.conversation));
  }
  if (options.text) checksum.update(*options.text);
  return checksum.hex();
}

Json to_json(const SourceMeasures& measures) {
  Json json = Json::object();
  if (measures.input_scales) json["input_scales"] = scales_json(*measures.input_scales);
  if (measures.evaluation_key.empty()) return json;
  json["evaluation_key"] = measures.evaluation_key;
  json["evaluation"] = to_json(measures.evaluation);
  return json;
}

SourceMeasures source_measures_from_json(const nlohmann::json& json) {
  SourceMeasures measures;
  if (json.contains("input_scales")) {
    measures.input_scales = scales_from_json(json.at("input_scales"));
  }
  measures.evaluation_key = json.value("evaluation_key", "");
  if (measures.evaluation_key.empty()) return measures;
  for (const nlohmann::json& run : json.at("evaluation")) {
    measures.evaluation.push_back(run_from_json(run));
  }
  return measures;
}

}  // namespace dsv4
