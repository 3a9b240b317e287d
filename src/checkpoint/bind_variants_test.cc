// bind_variants_test.cc: other publishers' forms of one model bind to the same values, bit for bit
// where the form is exact; mixed and damaged forms are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint_variants.h"

namespace dsv4 {
namespace {

// ---- names

TEST(BindVariants, TransformersNamesBindToTheSameValues) {
  for (const auto& dir : {golden_dir("flash-bf16"), golden_dir("flash-official"),
                          golden_dir("flash-nvfp4"), nano_dir()}) {
    SCOPED_TRACE(dir);
    EditableModel model(dir);
    rename_all(model, transformers_name);
    const auto weights = model.load();
    expect_same_values(*weights, *load_checkpoint(dir));
    EXPECT_TRUE(weights->report.unused.empty());
    EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
    EXPECT_EQ(weights->report.layers.back().name, "mtp.0");
  }
}

// NeMo's and vLLM's: half renamed, scales under their names.
TEST(BindVariants, MixedNamesBindToTheSameValues) {
  EditableModel model(golden_dir("flash-official"));
  rename_all(model, [&](std::string name) {
    if (has_suffix(name, ".scale")) {
      const std::string matrix = name.substr(0, name.size() - 6);
      const bool is_expert = name.find(".experts.") != std::string::npos;
      name = matrix + (is_expert ? ".weight_scale" : ".weight_scale_inv");
    }
    const std::size_t attn = name.find(".attn.");
    if (attn != std::string::npos) name.replace(attn, 6, ".self_attn.");
    return "model." + name;
  });
  expect_same_values(*model.load(), *load_checkpoint(golden_dir("flash-official")));
}

TEST(BindVariants, MissingTensorOfARenamedModelIsNamedOfficially) {
  EditableModel model(golden_dir("flash-bf16"));
  rename_all(model, transformers_name);
  for (const char* name : {"hc_head_fn", "hc_head_base", "hc_head_scale", "norm.weight",
                           "layers.1.attn.indexer.compressor.ape"}) {
    model.remove(transformers_name(name));
  }
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"5 missing", "hc_head_fn", "hc_head_scale", "norm.weight",
                  "layers.1.attn.indexer.compressor.ape", "DeepSeek's spelling"});
  model.add("model.layers.0.self_attn.k_proj.weight", DType::kBF16, {4});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"5 missing", "1 unknown", "model.layers.0.self_attn.k_proj.weight"});
}

// transformers drops mtp.* when it saves.
TEST(BindVariants, DraftDroppedByTransformersIsNoted) {
  EditableModel model(golden_dir("flash-official"));
  model.remove_prefix("mtp.");
  rename_all(model, transformers_name);
  const auto weights = model.load();
  EXPECT_FALSE(weights->draft.has_value());
  ASSERT_EQ(weights->report.notes.size(), 1u);
}

// ---- FP8

TEST(BindVariants, NumberScalesOfFp8BindToTheSameValues) {
  const auto want = load_checkpoint(golden_dir("flash-official"));
  for (const char* name : {"scale", "weight_scale", "weight_scale_inv"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      EditableModel model(golden_dir("flash-official"));
      to_number_scales(model, name, dtype);
      const auto weights = model.load();
      EXPECT_EQ(weights->layers[0].q_a.scale_dtype, DType::kF32);
      EXPECT_EQ(weights->layers[0].experts.gate[0].format, Format::kMxfp4);
      expect_same_values(*weights, *want);
    }
  }
}

TEST(BindVariants, OneScaleUnderTwoNamesIsRefused) {
  EditableModel model(golden_dir("flash-official"));
  model.add("layers.0.attn.wo_a.weight_scale", DType::kE8M0, {1, 2});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"1 unknown", "layers.0.attn.wo_a.weight_scale"});
  model.remove("layers.0.attn.wo_a.weight_scale");
  model.add("layers.0.attn.wo_a.weight_scale_inv", DType::kE8M0, {1, 2});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"layers.0.attn.wo_a.scale", "layers.0.attn.wo_a.weight_scale_inv"});
}

// wo_a comes with a scale, or in BF16 without one (convert.py); FP8 without a scale is nothing.
TEST(BindVariants, OutputProjectionInBf16) {
  EditableModel model(golden_dir("flash-official"));
  const auto want = model.load();
  const MatrixView& o_a = want->layers[0].o_a;
  const std::string name = "layers.0.attn.wo_a";
  model.remove(name + ".scale");
  expect_refused(model, ErrorCode::kBadCheckpoint, {"1 missing", name + ".scale"});
  model.retype(name + ".weight", DType::kBF16, {o_a.rows, o_a.cols});
  for (std::int64_t r = 0; r < o_a.rows; ++r) {
    const auto row = decoded_row(o_a, r);
    for (std::int64_t k = 0; k < o_a.cols; ++k) {
      model.tensor(name + ".weight")
          .set<std::uint16_t>(static_cast<std::size_t>(r * o_a.cols + k),
                              encode_bf16(row[static_cast<std::size_t>(k)]));
    }
  }
  // A power of two times a 4-bit significand is a BF16.
  expect_same_values(*model.load(), *want);
}

// Exponent bytes copied as numbers: 2^-7 becomes 120.
TEST(BindVariants, E8m0BytesAsNumbersAreRefused) {
  const std::string name = "layers.0.attn.wq_b.scale";  // [16, 1]
  EditableModel model(golden_dir("flash-official"));
  const std::vector<std::byte> codes = model.tensor(name).bytes;
  const auto size = static_cast<std::int64_t>(codes.size());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    model.retype(name, dtype, {size, 1});
    const auto put = [&](std::size_t i, float value) {
      if (dtype == DType::kF32) model.tensor(name).set<float>(i, value);
      if (dtype == DType::kBF16) model.tensor(name).set<std::uint16_t>(i, encode_bf16(value));
    };
    for (std::size_t i = 0; i < codes.size(); ++i) put(i, static_cast<float>(codes[i]));
    expect_refused(model, ErrorCode::kBadCheckpoint, {name, "E8M0 exponent bytes"});
    put(0, 0.5f);  // one real scale: the rest may be what it likes
    EXPECT_NO_THROW(model.load());
    for (const float bad : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
      put(1, bad);
      expect_refused(model, ErrorCode::kBadCheckpoint, {name, "finite"});
    }
    put(1, 0.0f);  // of a tile that is all 0
    EXPECT_NO_THROW(model.load());
  }
  // The bounds of what counts as an exponent byte.
  model.retype(name, DType::kF32, {size, 1});
  const std::pair<float, bool> bounds[] = {
      {96.0f, true}, {159.0f, true}, {95.0f, false}, {160.0f, false}, {120.5f, false}};
  for (const auto& [value, refused] : bounds) {
    for (std::size_t i = 0; i < codes.size(); ++i) model.tensor(name).set<float>(i, value);
    if (refused) {
      expect_refused(model, ErrorCode::kBadCheckpoint, {"E8M0"});
    } else {
      EXPECT_NO_THROW(model.load()) << value;
    }
  }
}

// Base models: FP8 experts, FP32 or E8M0 scales, expert_dtype "fp8" or missing.
TEST(BindVariants, Fp8ExpertsOfBaseModels) {
  for (const DType dtype : {DType::kE8M0, DType::kF32, DType::kBF16}) {
    EditableModel model(golden_dir("flash-official"));
    const std::string shared = "layers.1.ffn.shared_experts.";
    const int num_experts = load_model_config(golden_dir("flash-official")).num_experts;
    for (int e = 0; e < num_experts; ++e) {
      for (const char* w : {"w1", "w2", "w3"}) {
        const std::string matrix = "layers.1.ffn.experts." + std::to_string(e) + "." + w;
        const auto codes = model.tensor(shared + w + ".weight");
        const auto scale = model.tensor(shared + w + ".scale");
        model.retype(matrix + ".weight", DType::kE4M3, codes.shape);
        model.tensor(matrix + ".weight").bytes = codes.bytes;
        model.retype(matrix + ".scale", DType::kE8M0, scale.shape);
        model.tensor(matrix + ".scale").bytes = scale.bytes;
      }
    }
    if (dtype != DType::kE8M0) to_number_scales(model, "scale", dtype);
    model.config["expert_dtype"] = "fp8";
    const auto weights = model.load();
    const LayerWeights& layer = weights->layers[1];
    EXPECT_EQ(weights->report.layers[1].expert_formats, "FP8");
    for (std::int64_t r = 0; r < 128; ++r) {
      EXPECT_EQ(decoded_row(layer.experts.gate[3], r), decoded_row(layer.shared_expert.gate, r));
      EXPECT_EQ(decoded_row(layer.experts.up[1], r), decoded_row(layer.shared_expert.up, r));
      EXPECT_EQ(decoded_row(layer.experts.down[0], r), decoded_row(layer.shared_expert.down, r));
    }
  }
}

// ---- compressed-tensors

TEST(BindVariants, CompressedTensorsBindToTheSameValues) {
  for (const Shape& scalar : {Shape{1}, Shape{}}) {
    EditableModel model(golden_dir("flash-nvfp4"));
    make_scalars_powers_of_two(model);
    const auto want = model.load();
    EditableModel packed(golden_dir("flash-nvfp4"));
    make_scalars_powers_of_two(packed);
    to_compressed_tensors(packed, scalar);
    to_number_scales(packed, "weight_scale", DType::kBF16);
    packed.config["quantization_config"] = {{"quant_method", "compressed-tensors"},
                                            {"format", "mixed-precision"}};
    const auto weights = packed.load();
    expect_same_values(*weights, *want);
    EXPECT_EQ(weights->report.layers[0].expert_formats, "NVFP4");
    EXPECT_TRUE(weights->layers[0].experts.gate_up_input_scales[0].has_value());
    EXPECT_TRUE(weights->report.notes.empty());
  }
}

// Of other scales the file holds 1 / x rounded, which we divide by: two roundings of half an ulp on
// the global scale, and the decoded products round once on either side.
TEST(BindVariants, ReciprocalScalesAgreeToTheirRounding) {
  const auto want = load_checkpoint(golden_dir("flash-nvfp4"));
  EditableModel packed(golden_dir("flash-nvfp4"));
  to_compressed_tensors(packed, {1});
  const auto weights = packed.load();
  constexpr float kTolerance = 4 * 0x1p-24f * 1.01f;  // 1 %: the second-order terms
  for (std::int64_t r = 0; r < 128; ++r) {
    const auto a = decoded_row(weights->layers[2].experts.up[4], r);
    const auto b = decoded_row(want->layers[2].experts.up[4], r);
    for (std::size_t k = 0; k < b.size(); ++k) {
      EXPECT_LE(std::abs(a[k] - b[k]), kTolerance * std::abs(b[k]));
    }
  }
}

TEST(BindVariants, CompressedTensorsWithoutInputScales) {  // NVFP4A16
  EditableModel model(golden_dir("flash-nvfp4"));
  to_compressed_tensors(model, {1});
  model.remove_suffix(".input_global_scale");
  const auto weights = model.load();
  EXPECT_FALSE(weights->layers[3].experts.down_input_scales[5].has_value());
}

TEST(BindVariants, DamagedCompressedTensorsAreRefused) {
  const std::string expert = "layers.1.ffn.experts.2.w2";
  EditableModel model(golden_dir("flash-nvfp4"));
  to_compressed_tensors(model, {});
  auto& global = model.tensor(expert + ".weight_global_scale");
  // 1 / the smallest FP32 is infinite; 1 / the largest is a denormal, which decodes.
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::denorm_min(), std::nanf(""),
                          std::numeric_limits<float>::infinity()}) {
    global.set<float>(0, bad);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {expert + ".weight_global_scale", "finite and above 0"});
  }
  global.set<float>(0, std::numeric_limits<float>::max());
  EXPECT_NO_THROW(model.load());
  // The multiplying scale beside packed codes: nobody's form.
  global.name = expert + ".weight_scale_2";
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"missing", expert + ".weight_global_scale", "unknown", "weight_scale_2"});
  EditableModel twice(golden_dir("flash-nvfp4"));
  twice.add(expert + ".weight_packed", DType::kU8, {128, 64});
  expect_refused(twice, ErrorCode::kBadCheckpoint,
                 {expert + ".weight_packed", expert + ".weight", "keep one"});
  EditableModel int4(golden_dir("flash-nvfp4"));
  to_compressed_tensors(int4, {});
  int4.retype(expert + ".weight_packed", DType::kI32, {128, 16});
  expect_refused(int4, ErrorCode::kUnsupported, {expert + ".weight_packed", "I32", "NVFP4"});
}

// ---- the draft block

// A draft block unquantised beside a quantised trunk, with copies of embedding and head.
TEST(BindVariants, DraftInBf16WithCopiesOfEmbeddingAndHead) {
  EditableModel model(golden_dir("flash-nvfp4"));
  const auto want = model.load();
  EditableModel bf16(golden_dir("flash-nvfp4"));
  const auto unquantise = [&](const std::string& matrix, const MatrixView& view) {
    bf16.remove(matrix + ".scale");
    bf16.retype(matrix + ".weight", DType::kBF16, {view.rows, view.cols});
    auto& tensor = bf16.tensor(matrix + ".weight");
    for (std::int64_t r = 0; r < view.rows; ++r) {
      const auto row = decoded_row(view, r);
      for (std::int64_t k = 0; k < view.cols; ++k) {
        tensor.set<std::uint16_t>(static_cast<std::size_t>(r * view.cols + k),
                                  encode_bf16(row[static_cast<std::size_t>(k)]));
      }
    }
  };
  const DraftWeights& draft = *want->draft;
  unquantise("mtp.0.e_proj", draft.e_proj);
  unquantise("mtp.0.attn.wq_b", draft.layer.q_b);
  unquantise("mtp.0.ffn.shared_experts.w2", draft.layer.shared_expert.down);
  for (std::size_t e = 0; e < 6; ++e) {
    const std::string expert = "mtp.0.ffn.experts." + std::to_string(e);
    unquantise(expert + ".w1", draft.layer.experts.gate[e]);
    unquantise(expert + ".w2", draft.layer.experts.down[e]);
    unquantise(expert + ".w3", draft.layer.experts.up[e]);
  }
  bf16.add("mtp.0.emb.tok_emb.weight", DType::kBF16, {256, 128});
  bf16.add("mtp.0.head.weight", DType::kBF16, {256, 128});
  const auto weights = bf16.load();
  expect_same_values(*weights, *want);
  EXPECT_EQ(weights->report.layers.back().expert_formats, "BF16");
  EXPECT_EQ(weights->report.unused.size(), 2u);
  EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
}

// MXFP4 draft experts beside an NVFP4 trunk are NVIDIA's; others made NVFP4 of them, perhaps
// without input scales.
TEST(BindVariants, DraftExpertsInNvfp4) {
  EditableModel model(golden_dir("flash-nvfp4"));
  for (int e = 0; e < 6; ++e) {
    for (const char* w : {"w1", "w2", "w3"}) {
      const std::string rest = "ffn.experts." + std::to_string(e) + "." + w;
      model.remove("mtp.0." + rest + ".scale");
      model.remove("mtp.0." + rest + ".weight");
      for (const char* key : {".weight", ".weight_scale", ".weight_scale_2"}) {
        auto copy = model.tensor("layers.0." + rest + key);
        copy.name = "mtp.0." + rest + key;
        model.tensors.push_back(copy);
      }
    }
  }
  const auto weights = model.load();
  EXPECT_EQ(weights->report.layers.back().expert_formats, "NVFP4");
  EXPECT_FALSE(weights->draft->layer.experts.down_input_scales[0].has_value());
  EXPECT_TRUE(weights->layers[0].experts.down_input_scales[0].has_value());
  for (std::int64_t r = 0; r < 128; ++r) {
    EXPECT_EQ(decoded_row(weights->draft->layer.experts.down[5], r),
              decoded_row(weights->layers[0].experts.down[5], r));
  }
  // config.json still says that mtp.* was left alone.
  ASSERT_EQ(weights->report.notes.size(), 1u);
  EXPECT_NE(weights->report.notes[0].find("mtp.0"), std::string::npos);
  // One of them with an input scale: damage.
  model.add("mtp.0.ffn.experts.3.w2.input_scale", DType::kF32, {});
  model.tensor("mtp.0.ffn.experts.3.w2.input_scale").set<float>(0, 1.0f);
  expect_refused(model, ErrorCode::kBadCheckpoint, {"no input_scale", "mtp.0.ffn.experts.0.w1"});
}

}  // namespace
}  // namespace dsv4
