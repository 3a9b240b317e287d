#include "checkpoint/quantization_config.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <string_view>
#include <vector>

#include "checkpoint/quantization_claims.h"
#include "numerics/fp8_block.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kExperts = ".ffn.experts.";

// Patterns that lists of modules may use, widest first; what they do not cover is listed by name.
constexpr std::string_view kPatterns[] = {
    "*.attn.*",
    "layers.*.attn.*",
    "*.attn.compressor.*",
    "*.attn.indexer.*",
    "*.attn.indexer.compressor.*",
    "*.attn.indexer.weights_proj",
    "*.attn.indexer.wq_b",
    "*.attn.wq_a",
    "*.attn.wq_b",
    "*.attn.wkv",
    "*.attn.wo_a",
    "*.attn.wo_b",
    "*.ffn.shared_experts.*",
    "layers.*.ffn.shared_experts.*",
    "*.ffn.experts.*",
    "layers.*.ffn.experts.*",
    "head",
    "mtp.*",
    "mtp.*.ffn.experts.*",
    "mtp.*_proj",
};

// ModelOpt's keys, which are written anew.
constexpr std::array<std::string_view, 10> kModelOptKeys{
    "moe_quant_algo", "quant_algo",       "kv_cache_quant_algo", "group_size", "config_groups",
    "ignore",         "quantized_layers", "exclude_modules",     "producer",   "awq_block_size"};

bool is_routed_expert(std::string_view name) { return name.find(kExperts) != name.npos; }

// A list of patterns and names that fits exactly the modules of which `is_member` holds.
template <class Predicate>
std::vector<std::string> cover(std::span<const ModuleFormat> modules, Predicate&& is_member) {
  std::vector<std::string> list;
  std::vector<bool> covered(modules.size(), false);
  for (const std::string_view pattern : kPatterns) {
    std::vector<std::size_t> fitting;
    bool fits_members_only = true, is_new = false;
    for (std::size_t i = 0; i < modules.size() && fits_members_only; ++i) {
      if (!fits_pattern(modules[i].name, pattern)) continue;
      fits_members_only = is_member(modules[i]);
      is_new = is_new || !covered[i];
      fitting.push_back(i);
    }
    if (!fits_members_only || !is_new) continue;
    list.emplace_back(pattern);
    for (const std::size_t i : fitting) covered[i] = true;
  }
  for (std::size_t i = 0; i < modules.size(); ++i) {
    if (!covered[i] && is_member(modules[i])) list.push_back(modules[i].name);
  }
  return list;
}

bool is_nvfp4(const ModuleFormat& module) { return module.format == Format::kNvfp4; }
bool is_fp8(const ModuleFormat& module) { return module.format == Format::kE4m3; }
bool is_plain(const ModuleFormat& module) { return !is_quantized(module.format); }
bool is_w4a4(const ModuleFormat& module) { return is_nvfp4(module) && module.has_input_scale; }
bool is_w4a16(const ModuleFormat& module) { return is_nvfp4(module) && !module.has_input_scale; }

// ---- ModelOpt

// The experts of a layer as one module, as NVIDIA lists them, if all of them are NVFP4.
Json quantized_layers(std::span<const ModuleFormat> modules) {
  const auto container_of = [](const std::string& name) {
    return name.substr(0, name.find(kExperts) + kExperts.size() - 1);
  };
  std::map<std::string, bool> is_whole;
  for (const ModuleFormat& module : modules) {
    if (!is_routed_expert(module.name)) continue;
    bool& whole = is_whole.emplace(container_of(module.name), true).first->second;
    whole = whole && is_nvfp4(module);
  }
  Json layers = Json::object();
  for (const ModuleFormat& module : modules) {
    if (!is_nvfp4(module)) continue;
    std::string name = module.name;
    if (is_routed_expert(name) && is_whole.at(container_of(name))) name = container_of(name);
    if (layers.contains(name)) continue;
    layers[name] = {{"quant_algo", "NVFP4"}, {"group_size", kNvfp4QuantBlock}};
  }
  return layers;
}

// What says that the rest is FP8: the source's own words where it has them.
Json fp8_keys(const Json& source, std::span<const ModuleFormat> modules) {
  Json keys = Json::object();
  if (source.is_object() && source.value("quant_method", "") == "fp8") {
    for (auto it = source.begin(); it != source.end(); ++it) {
      const bool is_ours =
          std::find(kModelOptKeys.begin(), kModelOptKeys.end(), it.key()) != kModelOptKeys.end();
      if (!is_ours) keys[it.key()] = it.value();
    }
    return keys;
  }
  keys["activation_scheme"] = "dynamic";
  keys["fmt"] = "e4m3";
  keys["quant_method"] = "fp8";
  const bool has_e8m0 = std::all_of(modules.begin(), modules.end(), [](const ModuleFormat& module) {
    return !is_fp8(module) || module.has_e8m0_scales;
  });
  if (has_e8m0) keys["scale_fmt"] = "ue8m0";
  keys["weight_block_size"] = {kWeightTile, kWeightTile};
  return keys;
}

Json nvfp4_values(bool is_dynamic) {
  return {{"num_bits", 4},
          {"type", "float"},
          {"group_size", kNvfp4QuantBlock},
          {"dynamic", is_dynamic}};
}

Json modelopt_config(const Json& source, std::span<const ModuleFormat> modules) {
  const auto has = [&](auto&& predicate) {
    return std::any_of(modules.begin(), modules.end(), predicate);
  };
  const bool has_mxfp4 =
      has([](const ModuleFormat& module) { return module.format == Format::kMxfp4; });
  const bool has_other = has([](const ModuleFormat& module) {
    return is_nvfp4(module) && !is_routed_expert(module.name);
  });
  const bool has_experts = has(
      [](const ModuleFormat& module) { return is_nvfp4(module) && is_routed_expert(module.name); });
  const bool is_dynamic = has([&](const ModuleFormat& module) {
    return is_w4a16(module) && (is_routed_expert(module.name) || !has_experts);
  });
  Json config;
  if (has(is_fp8)) {
    config = fp8_keys(source, modules);
    if (has_experts) config["moe_quant_algo"] = "NVFP4";
  } else {
    config["quant_method"] = "modelopt";
  }
  config["quant_algo"] = has(is_fp8) || has_mxfp4 ? "MIXED_PRECISION" : "NVFP4";
  config["kv_cache_quant_algo"] =
      source.is_object() ? source.value("kv_cache_quant_algo", Json()) : Json();
  config["group_size"] = kNvfp4QuantBlock;
  config["config_groups"]["group_0"] = {{"weights", nvfp4_values(false)},
                                        {"input_activations", nvfp4_values(is_dynamic)},
                                        {"targets", {"Linear"}}};
  config["quantized_layers"] = quantized_layers(modules);
  config["ignore"] = cover(modules, [](const ModuleFormat& module) { return !is_nvfp4(module); });
  // Engines know ModelOpt's files by the producer's name.
  config["producer"] = {{"name", "modelopt"},
                        {"version", has_other ? "dsv4-nvfp4" : "dsv4-nvfp4-experts"}};
  return config;
}

// ---- compressed-tensors

// Its lists take names and, after "re:", regular expressions.
std::string to_regex(const std::string& pattern) {
  if (pattern.find('*') == pattern.npos) return pattern;
  std::string regex = "re:^";
  for (const char c : pattern) {
    if (c == '*') {
      regex += ".*";
    } else if (c == '.') {
      regex += "\\.";
    } else {
      regex += c;
    }
  }
  return regex + "$";
}

template <class Predicate>
Json regexes(std::span<const ModuleFormat> modules, Predicate&& is_member) {
  Json list = Json::array();
  for (const std::string& pattern : cover(modules, is_member)) list.push_back(to_regex(pattern));
  return list;
}

// `dynamic`: false, true, or "local": the block scales are computed, the global one is stored.
Json scheme(int num_bits, std::string_view strategy, int group_size, Json dynamic) {
  return {{"num_bits", num_bits},     {"type", "float"},   {"strategy", strategy},
          {"group_size", group_size}, {"symmetric", true}, {"dynamic", std::move(dynamic)}};
}

Json compressed_tensors_config(std::span<const ModuleFormat> modules) {
  constexpr std::string_view kPacked = "nvfp4-pack-quantized";
  Json groups = Json::object();
  const auto add = [&](Json targets, std::string_view format, Json weights, Json inputs) {
    if (targets.empty()) return;
    groups["group_" + std::to_string(groups.size())] = {{"targets", std::move(targets)},
                                                        {"weights", std::move(weights)},
                                                        {"input_activations", std::move(inputs)},
                                                        {"output_activations", nullptr},
                                                        {"format", format}};
  };
  const Json nvfp4 = scheme(4, "tensor_group", kNvfp4QuantBlock, false);
  add(regexes(modules, is_w4a4), kPacked, nvfp4,
      scheme(4, "tensor_group", kNvfp4QuantBlock, "local"));
  add(regexes(modules, is_w4a16), kPacked, nvfp4, nullptr);
  Json tiles = {{"num_bits", 8},       {"type", "float"},
                {"strategy", "block"}, {"block_structure", {kWeightTile, kWeightTile}},
                {"symmetric", true},   {"dynamic", false}};
  add(regexes(modules, is_fp8), "float-quantized", std::move(tiles),
      scheme(8, "group", kWeightTile, true));
  Json config;
  config["quant_method"] = "compressed-tensors";
  config["format"] = kPacked;
  config["quantization_status"] = "compressed";
  config["kv_cache_scheme"] = nullptr;
  config["config_groups"] = std::move(groups);
  config["ignore"] = regexes(modules, [](const ModuleFormat& module) {
    return is_plain(module) || module.format == Format::kMxfp4;
  });
  return config;
}

}  // namespace

Json quantized_config(const Json& source, std::span<const ModuleFormat> modules,
                      Nvfp4Layout layout) {
  Json config = source;
  const Json of_source = source.value("quantization_config", Json());
  config["quantization_config"] = layout == Nvfp4Layout::kModelOpt
                                      ? modelopt_config(of_source, modules)
                                      : compressed_tensors_config(modules);
  const auto is_nvfp4_expert = [](const ModuleFormat& module) {
    return is_nvfp4(module) && is_routed_expert(module.name);
  };
  if (config.contains("expert_dtype") &&
      std::any_of(modules.begin(), modules.end(), is_nvfp4_expert)) {
    config["expert_dtype"] = "fp4";
  }
  return config;
}

Json hf_quant_config(const Json& config) {
  Json quantization = config.at("quantization_config");
  const Json producer = quantization.at("producer");
  quantization["exclude_modules"] = quantization.at("ignore");
  quantization.erase("ignore");
  quantization.erase("producer");
  return {{"producer", producer}, {"quantization", std::move(quantization)}};
}

}  // namespace dsv4
