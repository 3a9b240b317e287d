// bind_damage_test.cc: every kind of damage, mix-up and foreign scheme is refused by name; what
// merely looks odd is accepted.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint_test_files.h"

namespace dsv4 {
namespace {

TEST(BindDamage, MissingTensorsAreCountedAndNamed) {
  EditableModel model(golden_dir("flash-official"));
  model.remove("layers.1.attn.indexer.compressor.ape");
  expect_refused(
      model, ErrorCode::kBadCheckpoint,
      {"1 missing", "layers.1.attn.indexer.compressor.ape", model.dir().path().string()});
  model.remove_prefix("layers.3.");
  expect_refused(
      model, ErrorCode::kBadCheckpoint,
      {"missing", "layers.1.attn.indexer.compressor.ape", "layers.3.attn_norm.weight", "..."});
}

TEST(BindDamage, UnknownTensorIsNamed) {
  EditableModel model(golden_dir("flash-bf16"));
  model.add("layers.0.attn.wq_c.weight", DType::kBF16, {4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"1 unknown", "layers.0.attn.wq_c.weight"});
}

// A renamed tensor is at once missing and unknown, never dropped: a non-strict loader that loses
// hc_head answers every prompt with the same token.
TEST(BindDamage, RenamedHeadWeightsAreNotDropped) {
  EditableModel model(golden_dir("flash-bf16"));
  model.tensor("hc_head_fn").name = "hc_head.fn";
  model.tensor("hc_head_base").name = "hc_head.base";
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"2 missing", "hc_head_fn", "hc_head_base", "2 unknown", "hc_head.fn"});
}

// Hyper-connection parameters are called scale and are none of quantisation; the first layers
// route by token id and have no bias.
TEST(BindDamage, NamesThatLookLikeOthers) {
  EditableModel model(golden_dir("flash-bf16"));
  const auto weights = model.load();
  EXPECT_EQ(weights->layers[0].hc_attn.scales[2],
            value_at<float>(stored(*weights, "layers.0.hc_attn_scale"), 2));
  model.add("layers.0.ffn.gate.bias", DType::kF32, {6});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "layers.0.ffn.gate.bias"});
  model.remove("layers.0.ffn.gate.bias");
  // A scale beside a weight that needs none.
  model.add("layers.0.attn.wkv.scale", DType::kE8M0, {1, 1});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "layers.0.attn.wkv.scale"});
}

TEST(BindDamage, HashTableMustBeI64) {
  EditableModel model(golden_dir("flash-bf16"));
  model.retype("layers.0.ffn.gate.tid2eid", DType::kI32, {256, 2});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.0.ffn.gate.tid2eid", "I32", "I64"});
}

TEST(BindDamage, HashTableIdsAtTheirBounds) {
  EditableModel model(golden_dir("flash-bf16"));
  auto& table = model.tensor("layers.1.ffn.gate.tid2eid");
  table.set<std::int64_t>(511, 5);  // 6 experts
  table.set<std::int64_t>(0, 0);
  EXPECT_NO_THROW(model.load());
  for (const std::int64_t bad : {std::int64_t{6}, std::int64_t{-1}, std::int64_t{1} << 32,
                                 std::numeric_limits<std::int64_t>::min()}) {
    model.tensor("layers.1.ffn.gate.tid2eid").set<std::int64_t>(511, bad);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {"layers.1.ffn.gate.tid2eid", "token 255", std::to_string(bad), "0 to 5"});
  }
}

TEST(BindDamage, WrongShapeIsNamedWithBothShapes) {
  EditableModel model(golden_dir("flash-official"));
  model.retype("layers.0.attn.wq_b.weight", DType::kE4M3, {128, 2048});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"layers.0.attn.wq_b.weight", "[128, 2048]", "[2048, 128]"});
}

TEST(BindDamage, WrongScaleShapeIsRefused) {
  EditableModel model(golden_dir("flash-official"));
  model.retype("layers.0.attn.wkv.scale", DType::kE8M0, {1, 4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.0.attn.wkv.scale", "[1, 4]", "[4, 1]"});
  EditableModel experts(golden_dir("flash-official"));
  experts.retype("layers.2.ffn.experts.1.w2.scale", DType::kE8M0, {128, 8});
  expect_refused(experts, ErrorCode::kBadCheckpoint, {"layers.2.ffn.experts.1.w2.scale"});
}

TEST(BindDamage, ConfigOfAnotherModelIsRefused) {
  EditableModel model(golden_dir("flash-bf16"));
  model.config["q_lora_rank"] = 96;
  expect_refused(model, ErrorCode::kBadCheckpoint, {"wq_a.weight", "[128, 128]", "[96, 128]"});
  model.config["q_lora_rank"] = 128;
  model.config["num_hidden_layers"] = 3;
  expect_refused(model, ErrorCode::kBadCheckpoint, {"compress_ratios[3]", "draft"});
  model.config["compress_ratios"] = {0, 4, 128, 0};
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "layers.3."});
  model.config["compress_ratios"] = {0, 4, 128, 4, 128, 0};
  model.config["num_hidden_layers"] = 5;
  expect_refused(model, ErrorCode::kBadCheckpoint, {"missing", "layers.4.attn_norm.weight"});
  EditableModel ratio(golden_dir("flash-bf16"));
  ratio.config["compress_ratios"] = {0, 4, 64, 4, 0};
  expect_refused(ratio, ErrorCode::kBadCheckpoint, {"layers.2.attn.compressor.ape", "[64, 128]"});
}

TEST(BindDamage, WrongDtypeIsNamed) {
  struct Case {
    const char* name;
    DType dtype;
    Shape shape;
    const char* says;
  };
  for (const Case& c : {Case{"embed.weight", DType::kF16, {256, 128}, "BF16 or F32"},
                        Case{"norm.weight", DType::kE4M3, {128}, "BF16 or F32"},
                        Case{"layers.0.attn.attn_sink", DType::kBF16, {4}, "F32"},
                        Case{"layers.0.hc_attn_fn", DType::kBF16, {24, 512}, "F32"},
                        Case{"layers.0.attn.wq_a.weight", DType::kF16, {128, 128}, "F8_E4M3"},
                        Case{"layers.0.attn.wq_a.weight", DType::kBool, {128, 128}, "BOOL"},
                        Case{"layers.0.attn.wq_a.scale", DType::kU8, {1, 1}, "F8_E8M0"},
                        Case{"layers.0.ffn.experts.0.w1.scale", DType::kE4M3, {128, 4}, "F8_E8M0"},
                        Case{"layers.0.ffn.experts.0.w1.scale", DType::kU8, {128, 4}, "F8_E8M0"}}) {
    EditableModel model(golden_dir("flash-official"));
    model.retype(c.name, c.dtype, c.shape);
    SCOPED_TRACE(c.name);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {c.name, std::string(dtype_name(c.dtype)), c.says});
  }
}

TEST(BindDamage, F32InPlaceOfBf16IsAccepted) {
  EditableModel model(golden_dir("flash-bf16"));
  model.retype("norm.weight", DType::kF32, {128});
  EXPECT_EQ(model.load()->final_norm.format, Format::kF32);
}

// ---- the 4-bit formats

// The same packing under two labels: I8 goes with scale, U8 with weight_scale.
TEST(BindDamage, MixedUpLabelsOfFourBitExpertsAreRefused) {
  EditableModel official(golden_dir("flash-official"));
  official.retype("layers.0.ffn.experts.3.w1.weight", DType::kU8, {128, 64});
  expect_refused(official, ErrorCode::kBadCheckpoint,
                 {"layers.0.ffn.experts.3.w1.weight", "U8", "NVFP4", "weight_scale"});
  EditableModel nvfp4(golden_dir("flash-nvfp4"));
  nvfp4.retype("layers.0.ffn.experts.3.w1.weight", DType::kI8, {128, 64});
  expect_refused(nvfp4, ErrorCode::kBadCheckpoint,
                 {"layers.0.ffn.experts.3.w1.weight", "I8", "MXFP4", "scale"});
  // One byte a weight is not FP8 because it is one byte.
  EditableModel as_fp8(golden_dir("flash-official"));
  as_fp8.retype("layers.0.ffn.experts.3.w1.weight", DType::kE4M3, {128, 64});
  expect_refused(as_fp8, ErrorCode::kBadCheckpoint,
                 {"layers.0.ffn.experts.3.w1.weight", "[128, 64]", "[128, 128]"});
}

TEST(BindDamage, LeftOverScaleOfAnotherFormatIsUnknown) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.add("layers.0.ffn.experts.3.w1.scale", DType::kE8M0, {128, 4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "layers.0.ffn.experts.3.w1.scale"});
}

TEST(BindDamage, Nvfp4ExpertThatLacksOneKeyIsNamed) {
  for (const char* key : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"}) {
    for (const char* matrix : {"w1", "w2", "w3"}) {
      const std::string name = "layers.3.ffn.experts.5." + std::string(matrix) + key;
      EditableModel model(golden_dir("flash-nvfp4"));
      model.remove(name);
      SCOPED_TRACE(name);
      expect_refused(model, ErrorCode::kBadCheckpoint, {name});
    }
  }
}

TEST(BindDamage, Nvfp4WithoutAnyInputScaleIsWeightOnly) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.remove_suffix(".input_scale");
  const auto weights = model.load();
  EXPECT_FALSE(weights->layers[0].experts.gate_up_input_scales[0].has_value());
  EXPECT_FALSE(weights->layers[3].experts.down_input_scales[5].has_value());
}

TEST(BindDamage, GlobalAndInputScalesMustBeFiniteAndPositive) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const char* key : {"weight_scale_2", "input_scale"}) {
    const std::string name = "layers.1.ffn.experts.2.w2." + std::string(key);
    for (const float bad : {0.0f, -0.0f, -1.0f, kInf, -kInf, std::nanf("")}) {
      EditableModel model(golden_dir("flash-nvfp4"));
      model.tensor(name).set<float>(0, bad);
      SCOPED_TRACE(bad);
      expect_refused(model, ErrorCode::kBadCheckpoint, {name, "finite and above 0"});
    }
    // An expert that calibration never reached: small, but a number.
    EditableModel tiny(golden_dir("flash-nvfp4"));
    tiny.tensor(name).set<float>(0, std::numeric_limits<float>::denorm_min());
    EXPECT_NO_THROW(tiny.load());
  }
}

// What selects, or what only a softmax sees, hides such a value: the model would speak on.
TEST(BindDamage, ParametersThatAreNotFiniteAreRefused) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  struct Case {
    const char* name;
    std::size_t idx;
  };
  for (const Case& c :
       {Case{"layers.3.ffn.gate.bias", 5}, Case{"layers.0.attn.attn_sink", 3},
        Case{"layers.0.hc_attn_base", 23}, Case{"layers.2.hc_ffn_scale", 2},
        Case{"layers.1.hc_ffn_fn", 24 * 512 - 1}, Case{"layers.1.attn.compressor.ape", 7},
        Case{"hc_head_base", 0}, Case{"hc_head_fn", 1}, Case{"hc_head_scale", 0},
        Case{"mtp.0.ffn.gate.bias", 0}, Case{"mtp.0.hc_head_base", 0}}) {
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      EditableModel model(golden_dir("flash-bf16"));
      model.tensor(c.name).set<float>(c.idx, bad);
      SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(bad));
      expect_refused(model, ErrorCode::kBadCheckpoint,
                     {c.name, "model.safetensors", "value " + std::to_string(c.idx) + " is ",
                      std::to_string(bad).substr(0, 3), "finite"});
    }
  }
  EditableModel largest(golden_dir("flash-bf16"));
  largest.tensor("layers.3.ffn.gate.bias").set<float>(0, std::numeric_limits<float>::lowest());
  largest.tensor("layers.0.attn.attn_sink").set<float>(3, std::numeric_limits<float>::max());
  EXPECT_NO_THROW(largest.load());
}

TEST(BindDamage, IndexerWeightsThatAreNotFiniteAreRefused) {
  const std::string name = "layers.1.attn.indexer.weights_proj.weight";
  for (const std::uint16_t bad : {0x7F80, 0xFF80, 0x7FC0}) {
    EditableModel model(golden_dir("flash-bf16"));
    model.tensor(name).set<std::uint16_t>(511, bad);
    expect_refused(model, ErrorCode::kBadCheckpoint, {name, "value 511 is ", "finite"});
  }
}

TEST(BindDamage, NormsThatAreNotFiniteAreRefusedInEitherFormat) {
  for (const char* name :
       {"norm.weight", "layers.0.attn_norm.weight", "layers.1.attn.q_norm.weight",
        "layers.1.attn.compressor.norm.weight", "mtp.0.enorm.weight"}) {
    for (const std::uint16_t bad : {0x7F80, 0xFF80, 0x7FC0, 0x7F81}) {
      EditableModel model(golden_dir("flash-bf16"));
      model.tensor(name).set<std::uint16_t>(1, bad);
      SCOPED_TRACE(name);
      expect_refused(model, ErrorCode::kBadCheckpoint, {name, "value 1 is ", "finite"});
    }
  }
  EditableModel wide(golden_dir("flash-bf16"));
  wide.retype("norm.weight", DType::kF32, {128});
  wide.tensor("norm.weight").set<float>(127, std::nanf(""));
  expect_refused(wide, ErrorCode::kBadCheckpoint, {"norm.weight", "value 127 is nan"});
  wide.tensor("norm.weight").set<float>(127, std::numeric_limits<float>::max());
  EXPECT_NO_THROW(wide.load());
}

TEST(BindDamage, ScalarsMayHaveShapeOne) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.retype("layers.0.ffn.experts.0.w1.weight_scale_2", DType::kF32, {1});
  EXPECT_NO_THROW(model.load());
  for (const Shape& shape : {Shape{2}, Shape{1, 1}}) {
    model.retype("layers.0.ffn.experts.0.w1.weight_scale_2", DType::kF32, shape);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {"layers.0.ffn.experts.0.w1.weight_scale_2", shape.to_string()});
  }
}

TEST(BindDamage, GateAndUpMustShareTheirInputScale) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.tensor("layers.2.ffn.experts.1.w3.input_scale").set<float>(0, 0.125f);
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.2.ffn.experts.1", "w1", "w3", "0.125"});
}

// One scale for all experts, as some engines take it, loses accuracy.
TEST(BindDamage, EveryExpertKeepsItsInputScale) {
  EditableModel model(golden_dir("flash-nvfp4"));
  for (const int e : {1, 2}) {
    for (const char* w : {"w1", "w3", "w2"}) {
      const std::string name = "layers.2.ffn.experts." + std::to_string(e) + "." + w;
      model.tensor(name + ".input_scale").set<float>(0, static_cast<float>(e));
    }
  }
  const auto weights = model.load();
  for (const std::size_t e : {std::size_t{1}, std::size_t{2}}) {
    EXPECT_EQ(weights->layers[2].experts.gate_up_input_scales[e], static_cast<float>(e));
    EXPECT_EQ(weights->layers[2].experts.down_input_scales[e], static_cast<float>(e));
  }
}

// Each matrix decodes with its own global scale, so differing ones are right, if unusual.
TEST(BindDamage, GateAndUpMayDifferInTheirGlobalScale) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.tensor("layers.2.ffn.experts.1.w3.weight_scale_2").set<float>(0, 0.125f);
  const auto weights = model.load();
  EXPECT_EQ(*weights->layers[2].experts.up[1].global_scales, 0.125f);
  EXPECT_NE(*weights->layers[2].experts.gate[1].global_scales, 0.125f);
}

// Attention in NVFP4, as some community models have it.
TEST(BindDamage, FormatIsDecidedForEachMatrix) {
  EditableModel model(golden_dir("flash-nvfp4"));
  const std::string q_a = "layers.1.attn.wq_a";
  model.retype(q_a + ".weight", DType::kU8, {128, 64});
  model.remove(q_a + ".scale");
  model.add(q_a + ".weight_scale", DType::kE4M3, {128, 8});
  model.add(q_a + ".weight_scale_2", DType::kF32, {});
  model.tensor(q_a + ".weight_scale_2").set<float>(0, 0.5f);
  model.add(q_a + ".input_scale", DType::kF32, {});
  const auto weights = model.load();
  EXPECT_EQ(weights->layers[1].q_a.format, Format::kNvfp4);
  EXPECT_EQ(weights->layers[1].q_b.format, Format::kE4m3);
  EXPECT_EQ(weights->report.layers[1].linear_formats, "FP8+NVFP4");
  ASSERT_EQ(weights->report.unused.size(), 1u);
  EXPECT_EQ(weights->report.unused[0].name, q_a + ".input_scale");
  EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
}

TEST(BindDamage, InputsThatDoNotFillQuantBlocksAreRefused) {
  EditableModel model(golden_dir("flash-official"));
  model.config["moe_intermediate_size"] = 112;
  for (auto& t : model.tensors) {
    if (t.name.find(".experts.") == std::string::npos || t.dtype != DType::kI8) continue;
    const bool is_down = t.name.find(".w2.") != std::string::npos;
    model.retype(t.name, DType::kI8, is_down ? Shape{128, 56} : Shape{112, 64});
  }
  for (auto& t : model.tensors) {
    if (t.name.ends_with("w1.scale") || t.name.ends_with("w3.scale")) {
      if (t.name.find("shared") == std::string::npos) model.retype(t.name, t.dtype, {112, 4});
    }
  }
  expect_refused(model, ErrorCode::kBadCheckpoint, {"w2.weight", "MXFP4", "112", "32"});
}

// ---- other schemes, other files

TEST(BindDamage, ForeignSchemesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"layers.0.attn.fused_wqa_wkv.weight", "wq_a and wkv"},
      {"model.layers.0.mlp.experts.gate_up_proj", "transformers"},
      {"layers.0.attn.wq_a.biases", "MLX"},
      {"blk.0.attn_q_a.weight", "GGUF"},
      {"vision.blocks.0.norm1.weight", "Vision"},
      {"layers.3.ffn.gate.bias_vl", "Vision"},
      {"layers.1.engram.embed.weight", "V4.1"}};
  for (const auto& [name, says] : cases) {
    EditableModel model(golden_dir("flash-bf16"));
    model.add(name, DType::kU8, {4});
    expect_refused(model, ErrorCode::kUnsupported, {name, says});
  }
}

TEST(BindDamage, WhatIsNotAModelDirectory) {
  const TempDir dir;
  const auto refused = [](ErrorCode code, const std::string& says, const auto& path) {
    SCOPED_TRACE(path);
    expect_error(code, {says}, [&] { load_checkpoint(path); });
    expect_error(code, {says}, [&] { load_model_config(path); });
  };
  refused(ErrorCode::kNotFound, "nowhere", dir / "nowhere");
  refused(ErrorCode::kNotFound, "config.json", dir.path());
  put_file(dir / "model.txt", "");
  refused(ErrorCode::kBadRequest, "directory", dir / "model.txt");
  refused(ErrorCode::kBadRequest, "directory", "/dev/null");
  put_file(dir / "config.json", get_file(golden_dir("flash-bf16") / "config.json"));
  expect_error(ErrorCode::kNotFound, {dir.path().string()}, [&] { load_checkpoint(dir.path()); });
  refused(ErrorCode::kBadRequest, "is empty", "");
}

TEST(BindDamage, GgufIsRefusedByName) {
  const TempDir dir;
  const auto refused = [](const std::filesystem::path& path) {
    expect_error(ErrorCode::kUnsupported, {"GGUF", "safetensors"}, [&] { load_checkpoint(path); });
  };
  put_file(dir / "renamed.bin", "GGUF\x03");
  refused(dir / "renamed.bin");
  put_file(dir / "model.gguf", "");
  refused(dir / "model.gguf");
  expect_error(ErrorCode::kUnsupported, {"GGUF"}, [&] { load_model_config(dir / "model.gguf"); });
  refused(dir.path());
  put_file(dir / "config.json", get_file(golden_dir("flash-bf16") / "config.json"));
  refused(dir.path());  // a config that was put beside it
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(golden_dir("flash-bf16") / file, dir / file,
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_NO_THROW(load_checkpoint(dir.path()));  // beside the real one it does no harm
}

TEST(BindDamage, EosOfGenerationConfigMustBeInTheVocabulary) {
  EditableModel model(golden_dir("flash-bf16"));
  put_file(model.dir() / "generation_config.json", R"({"eos_token_id": 255, "top_p": 0.5})");
  EXPECT_EQ(model.load()->generation.top_p, 0.5);
  put_file(model.dir() / "generation_config.json", R"({"eos_token_id": 256})");
  expect_refused(model, ErrorCode::kBadCheckpoint, {"generation_config.json", "256", "255"});
}

}  // namespace
}  // namespace dsv4
