// quantization_claims_test.cc: what the JSON files say of formats is compared to the tensors, in
// both schemas of ModelOpt, and never stops a model from loading.
#include "checkpoint/quantization_claims.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_variants.h"

namespace dsv4 {
namespace {

using nlohmann::json;

BindReport report_of(std::initializer_list<std::pair<const char*, const char*>> layers) {
  BindReport report;
  for (const auto& [name, format] : layers) {
    LayerSummary& layer = report.layers.emplace_back();
    layer.name = name;
    layer.expert_formats = format;
  }
  return report;
}

class Claims : public testing::Test {
 protected:
  std::vector<std::string> notes(const BindReport& report) {
    put_file(dir_ / "config.json", config_.dump());
    if (!hf_quant_config_.is_null()) {
      put_file(dir_ / "hf_quant_config.json", hf_quant_config_.dump());
    }
    return check_quantization_claims(dir_.path(), report);
  }

  TempDir dir_;
  json config_ = json::object(), hf_quant_config_;
  const BindReport nvidia_ =
      report_of({{"layers.0", "NVFP4"}, {"layers.1", "NVFP4"}, {"mtp.0", "MXFP4"}});
};

TEST_F(Claims, NothingSaidIsNothingNoted) {
  EXPECT_TRUE(notes(nvidia_).empty());
  config_["quantization_config"] = {{"quant_method", "fp8"}, {"quant_algo", nullptr}};
  EXPECT_TRUE(notes(nvidia_).empty());
}

TEST_F(Claims, NewerSchemaListsModules) {
  const json layers = {{"layers.0.ffn.experts", {{"quant_algo", "NVFP4"}, {"group_size", 16}}},
                       {"layers.1.ffn.experts", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}};
  config_["quantization_config"] = {{"quant_algo", "MIXED_PRECISION"},
                                    {"moe_quant_algo", "NVFP4"},
                                    {"quantized_layers", layers},
                                    {"ignore", {"*.attn.*", "mtp.*"}}};
  hf_quant_config_["quantization"] = {{"quantized_layers", layers}, {"exclude_modules", {"mtp.*"}}};
  EXPECT_TRUE(notes(nvidia_).empty());
  const auto noted =
      notes(report_of({{"layers.0", "NVFP4"}, {"layers.1", "MXFP4"}, {"mtp.0", "NVFP4"}}));
  ASSERT_EQ(noted.size(), 2u);  // one a file
  EXPECT_NE(noted[0].find("2 layers (layers.1: NVFP4 by the file, MXFP4"), std::string::npos)
      << noted[0];
  EXPECT_NE(noted[1].find("hf_quant_config.json"), std::string::npos);
}

TEST_F(Claims, OlderSchemaListsMatrices) {
  json layers;
  for (const char* layer : {"layers.0", "model.layers.1"}) {
    const bool is_hf = std::string(layer).starts_with("model.");
    for (const char* w : {"w1", "w2", "w3"}) {
      const std::string experts = is_hf ? ".mlp.experts.0." : ".ffn.experts.0.";
      layers[layer + experts + w] = {{"quant_algo", "NVFP4"}, {"awq_block_size", 16}};
    }
  }
  hf_quant_config_["quantization"] = {{"quant_algo", nullptr}, {"quantized_layers", layers}};
  EXPECT_TRUE(notes(nvidia_).empty());
  EXPECT_EQ(notes(report_of({{"layers.0", "FP8"}, {"layers.1", "NVFP4"}})).size(), 1u);
}

// Without a list the algorithm holds for all but the exceptions, which may be FP8, MXFP4 or BF16.
TEST_F(Claims, ExceptionsSayNotNvfp4AndNoMore) {
  config_["quantization_config"] = {{"moe_quant_algo", "NVFP4"}, {"ignore", {"mtp.*", "head"}}};
  for (const char* draft : {"MXFP4", "FP8", "BF16"}) {
    EXPECT_TRUE(notes(report_of({{"layers.0", "NVFP4"}, {"mtp.0", draft}})).empty());
  }
  EXPECT_EQ(notes(report_of({{"layers.0", "NVFP4"}, {"mtp.0", "NVFP4"}})).size(), 1u);
  EXPECT_EQ(notes(report_of({{"layers.0", "MXFP4"}, {"mtp.0", "MXFP4"}})).size(), 1u);
}

TEST_F(Claims, ExpertDtype) {
  const std::pair<const char*, const char*> fine[] = {
      {"fp4", "MXFP4"}, {"fp4", "NVFP4"}, {"fp8", "FP8"}};
  for (const auto& [claimed, stored] : fine) {
    config_["expert_dtype"] = claimed;
    EXPECT_TRUE(notes(report_of({{"layers.0", stored}})).empty()) << claimed << stored;
  }
  const std::pair<const char*, const char*> wrong[] = {
      {"fp4", "FP8"}, {"fp8", "MXFP4"}, {"fp4", "BF16"}, {"int4", "MXFP4"}};
  for (const auto& [claimed, stored] : wrong) {
    config_["expert_dtype"] = claimed;
    EXPECT_EQ(notes(report_of({{"layers.0", stored}})).size(), 1u) << claimed << stored;
  }
}

TEST_F(Claims, OddJsonIsNotedOrIgnored) {
  const json odd[] = {json(3), json("x"), json::array(), json::object(), json(nullptr)};
  for (const json& value : odd) {
    for (const char* key : {"quant_algo", "quantized_layers", "ignore", "exclude_modules"}) {
      config_["quantization_config"] = {{key, value}};
      EXPECT_TRUE(notes(nvidia_).empty()) << key << value.dump();
    }
    config_["quantization_config"] = value;
    config_["expert_dtype"] = value.is_string() ? json(nullptr) : value;
    EXPECT_TRUE(notes(nvidia_).empty());
  }
  config_["quantization_config"] = {{"ignore", {1, nullptr}}, {"quant_algo", "NVFP4"}};
  EXPECT_EQ(notes(nvidia_).size(), 1u);  // mtp.0 is none of the exceptions
  config_ = json::object();
  put_file(dir_ / "hf_quant_config.json", "{\"quantization\":");
  const auto noted = notes(nvidia_);
  ASSERT_EQ(noted.size(), 1u);
  EXPECT_NE(noted[0].find("hf_quant_config.json was not read"), std::string::npos);
}

TEST_F(Claims, AModelLoadsWhateverIsClaimed) {
  EditableModel model(golden_dir("flash-official"));
  put_file(model.dir() / "hf_quant_config.json",
           R"({"quantization": {"quant_algo": "NVFP4", "exclude_modules": []}})");
  const auto weights = model.load();
  EXPECT_EQ(weights->report.layers[0].expert_formats, "MXFP4");
  ASSERT_EQ(weights->report.notes.size(), 1u);
  EXPECT_NE(weights->report.notes[0].find("5 layers"), std::string::npos);
}

TEST(FitsPattern, StarsStandForAnyText) {
  const std::pair<const char*, const char*> yes[] = {{"", ""},
                                                     {"", "*"},
                                                     {"a", "*"},
                                                     {"mtp.0.ffn", "mtp.*"},
                                                     {"a.attn.b", "*.attn.*"},
                                                     {"ab", "*b"},
                                                     {"ab", "a**"},
                                                     {"aXbXb", "a*b"},
                                                     {"head", "head"}};
  const std::pair<const char*, const char*> no[] = {
      {"a", ""}, {"mtp", "mtp.*"}, {"attn.b", "*.attn.*"}, {"abc", "*b"}, {"headx", "head"}};
  for (const auto& [name, pattern] : yes) EXPECT_TRUE(fits_pattern(name, pattern)) << pattern;
  for (const auto& [name, pattern] : no) EXPECT_FALSE(fits_pattern(name, pattern)) << pattern;
}

}  // namespace
}  // namespace dsv4
