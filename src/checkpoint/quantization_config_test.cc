// quantization_config_test.cc: the JSON of quantised checkpoints: NVIDIA's keys for NVIDIA's case,
// lists that say exactly what the tensors are, and our own reader's agreement.
#include "checkpoint/quantization_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <vector>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/quantization_claims.h"

namespace dsv4 {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;

constexpr Nvfp4Layout kModelOpt = Nvfp4Layout::kModelOpt;
constexpr Nvfp4Layout kCompressedTensors = Nvfp4Layout::kCompressedTensors;

// Two layers and a draft block as in an official release, the trunk's experts in NVFP4.
std::vector<ModuleFormat> official_modules(bool has_input_scales) {
  std::vector<ModuleFormat> modules{{"head", Format::kBf16}};
  for (const std::string layer : {"layers.0", "layers.1", "mtp.0"}) {
    for (const char* name : {".attn.wq_a", ".attn.wkv", ".ffn.shared_experts.w1"}) {
      modules.push_back({layer + name, Format::kE4m3, true});
    }
    if (layer == "layers.1") modules.push_back({layer + ".attn.compressor.wkv", Format::kBf16});
    for (const char* name : {".ffn.experts.0.w1", ".ffn.experts.1.w2"}) {
      if (layer == "mtp.0") {
        modules.push_back({layer + name, Format::kMxfp4});
      } else {
        modules.push_back({layer + name, Format::kNvfp4, false, has_input_scales});
      }
    }
    if (layer == "mtp.0") modules.push_back({layer + ".e_proj", Format::kE4m3, true});
  }
  return modules;
}

Json official_source() {
  return Json::parse(R"({"model_type": "deepseek_v4", "expert_dtype": "fp4",
      "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
      "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}, "vocab_size": 8})");
}

TEST(QuantizationConfig, OfFp8AndNvfp4ExpertsIsNvidias) {
  const Json config = quantized_config(official_source(), official_modules(true), kModelOpt);
  EXPECT_EQ(config.at("vocab_size"), 8);
  EXPECT_EQ(config.at("expert_dtype"), "fp4");
  const Json want = Json::parse(R"({"activation_scheme": "dynamic", "fmt": "e4m3",
      "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
      "moe_quant_algo": "NVFP4", "quant_algo": "MIXED_PRECISION", "kv_cache_quant_algo": null,
      "group_size": 16,
      "config_groups": {"group_0": {
        "weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": false},
        "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": false},
        "targets": ["Linear"]}},
      "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16},
                           "layers.1.ffn.experts": {"quant_algo": "NVFP4", "group_size": 16}},
      "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"],
      "producer": {"name": "modelopt", "version": "dsv4-nvfp4-experts"}})");
  EXPECT_EQ(config.at("quantization_config").dump(), want.dump());
}

TEST(QuantizationConfig, HfQuantConfigSaysTheSame) {
  const Json config = quantized_config(official_source(), official_modules(true), kModelOpt);
  const Json file = hf_quant_config(config);
  EXPECT_EQ(file.at("producer").at("name"), "modelopt");
  const Json& quantization = file.at("quantization");
  EXPECT_EQ(quantization.at("exclude_modules"), config.at("quantization_config").at("ignore"));
  EXPECT_EQ(quantization.at("quantized_layers"),
            config.at("quantization_config").at("quantized_layers"));
  EXPECT_FALSE(quantization.contains("ignore"));
}

TEST(QuantizationConfig, WithoutInputScalesActivationsAreDynamic) {
  const auto inputs = [](const std::vector<ModuleFormat>& modules, Nvfp4Layout layout) {
    const Json config = quantized_config(official_source(), modules, layout);
    return config.at("quantization_config")
        .at("config_groups")
        .at("group_0")
        .at("input_activations");
  };
  EXPECT_EQ(inputs(official_modules(false), kModelOpt).at("dynamic"), true);
  EXPECT_EQ(inputs(official_modules(true), kModelOpt).at("dynamic"), false);
  EXPECT_EQ(inputs(official_modules(false), kCompressedTensors), nullptr);
  EXPECT_EQ(inputs(official_modules(true), kCompressedTensors).at("dynamic"), "local");
  // Attention alone, without experts.
  std::vector<ModuleFormat> attention{{"layers.0.attn.wq_a", Format::kNvfp4},
                                      {"layers.0.ffn.experts.0.w1", Format::kMxfp4}};
  EXPECT_EQ(inputs(attention, kModelOpt).at("dynamic"), true);
}

TEST(QuantizationConfig, OfBf16HasModelOptsMethod) {
  const std::vector<ModuleFormat> modules{{"head", Format::kBf16},
                                          {"layers.0.attn.wq_a", Format::kBf16},
                                          {"layers.0.ffn.experts.0.w1", Format::kNvfp4}};
  Json source = {{"expert_dtype", "fp8"}};
  const Json config = quantized_config(source, modules, kModelOpt);
  const Json& quantization = config.at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "modelopt");
  EXPECT_EQ(quantization.at("quant_algo"), "NVFP4");
  EXPECT_FALSE(quantization.contains("moe_quant_algo"));
  EXPECT_FALSE(quantization.contains("weight_block_size"));
  EXPECT_EQ(config.at("expert_dtype"), "fp4");
  EXPECT_FALSE(quantized_config(Json::object(), modules, kModelOpt).contains("expert_dtype"));
}

TEST(QuantizationConfig, Fp8KeysAreMadeWhereTheSourceHasAnotherMethod) {
  Json source = {
      {"quantization_config", {{"quant_method", "compressed-tensors"}, {"format", "x"}}}};
  std::vector<ModuleFormat> modules{{"layers.0.attn.wq_a", Format::kE4m3, true},
                                    {"layers.0.ffn.experts.0.w1", Format::kNvfp4}};
  Json quantization = quantized_config(source, modules, kModelOpt).at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "fp8");
  EXPECT_EQ(quantization.at("scale_fmt"), "ue8m0");
  EXPECT_EQ(quantization.at("weight_block_size"), (Json{128, 128}));
  EXPECT_FALSE(quantization.contains("format"));
  modules[0].has_e8m0_scales = false;
  quantization = quantized_config(source, modules, kModelOpt).at("quantization_config");
  EXPECT_FALSE(quantization.contains("scale_fmt"));
}

// Written twice it says the same: nothing of the first time is left over.
TEST(QuantizationConfig, OfAQuantizedSourceIsWrittenAnew) {
  const std::vector<ModuleFormat> modules = official_modules(true);
  const Json once = quantized_config(official_source(), modules, kModelOpt);
  EXPECT_EQ(quantized_config(once, modules, kModelOpt).dump(), once.dump());
  Json kept = once;
  kept["quantization_config"]["kv_cache_quant_algo"] = "FP8";
  kept["quantization_config"]["awq_block_size"] = 16;
  const Json again = quantized_config(kept, modules, kModelOpt).at("quantization_config");
  EXPECT_EQ(again.at("kv_cache_quant_algo"), "FP8");
  EXPECT_FALSE(again.contains("awq_block_size"));
}

TEST(QuantizationConfig, PartsOfAModuleAreListedByName) {
  std::vector<ModuleFormat> modules = official_modules(false);
  for (ModuleFormat& module : modules) {
    if (module.name == "layers.0.ffn.experts.1.w2") module.format = Format::kMxfp4;
    if (module.name == "layers.1.attn.wkv") module.format = Format::kNvfp4;
  }
  const Json quantization =
      quantized_config(official_source(), modules, kModelOpt).at("quantization_config");
  std::vector<std::string> layers;
  for (const auto& item : quantization.at("quantized_layers").items()) layers.push_back(item.key());
  EXPECT_THAT(layers, ElementsAre("layers.0.ffn.experts.0.w1", "layers.1.attn.wkv",
                                  "layers.1.ffn.experts"));
  EXPECT_EQ(quantization.at("producer").at("version"), "dsv4-nvfp4");
  // The list fits what is not NVFP4, and nothing else.
  for (const ModuleFormat& module : modules) {
    bool is_ignored = false;
    for (const Json& pattern : quantization.at("ignore")) {
      is_ignored = is_ignored || fits_pattern(module.name, pattern.get<std::string>());
    }
    EXPECT_EQ(is_ignored, module.format != Format::kNvfp4) << module.name;
  }
}

// Every module is in exactly the group of its format, or ignored.
TEST(QuantizationConfig, CompressedTensorsGroupsPartTheModules) {
  std::vector<ModuleFormat> modules = official_modules(true);
  for (ModuleFormat& module : modules) {
    if (module.name.ends_with(".attn.wkv")) module.format = Format::kNvfp4;  // without input scales
  }
  const Json quantization =
      quantized_config(official_source(), modules, kCompressedTensors).at("quantization_config");
  EXPECT_EQ(quantization.at("quant_method"), "compressed-tensors");
  EXPECT_EQ(quantization.at("format"), "nvfp4-pack-quantized");
  const Json& groups = quantization.at("config_groups");
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups.at("group_0").at("input_activations").at("dynamic"), "local");
  EXPECT_EQ(groups.at("group_1").at("input_activations"), nullptr);
  EXPECT_EQ(groups.at("group_2").at("weights").at("block_structure"), (Json{128, 128}));
  const auto fits = [](const std::string& name, const Json& list) {
    for (const Json& entry : list) {
      const std::string text = entry.get<std::string>();
      if (text.starts_with("re:") ? std::regex_match(name, std::regex(text.substr(3)))
                                  : name == text) {
        return true;
      }
    }
    return false;
  };
  for (const ModuleFormat& module : modules) {
    const bool is_nvfp4 = module.format == Format::kNvfp4;
    EXPECT_EQ(fits(module.name, groups.at("group_0").at("targets")),
              is_nvfp4 && module.has_input_scale)
        << module.name;
    EXPECT_EQ(fits(module.name, groups.at("group_1").at("targets")),
              is_nvfp4 && !module.has_input_scale)
        << module.name;
    EXPECT_EQ(fits(module.name, groups.at("group_2").at("targets")), module.format == Format::kE4m3)
        << module.name;
    EXPECT_EQ(fits(module.name, quantization.at("ignore")),
              module.format == Format::kBf16 || module.format == Format::kMxfp4)
        << module.name;
  }
}

TEST(QuantizationConfig, OurReaderAgrees) {
  BindReport report;
  report.layers.push_back({"layers.0", 0, false, 2, "FP8", "NVFP4"});
  report.layers.push_back({"layers.1", 0, false, 2, "FP8", "NVFP4"});
  report.layers.push_back({"mtp.0", 0, false, 2, "FP8", "MXFP4"});
  const TempDir dir;
  const Json config = quantized_config(official_source(), official_modules(false), kModelOpt);
  put_file(dir / "config.json", config.dump());
  put_file(dir / "hf_quant_config.json", hf_quant_config(config).dump());
  EXPECT_THAT(check_quantization_claims(dir.path(), report), ElementsAre());
  report.layers[1].expert_formats = "FP8";
  EXPECT_EQ(check_quantization_claims(dir.path(), report).size(), 2u);
}

}  // namespace
}  // namespace dsv4
