// bind_test.cc: the bundled models bind whole and in place; every kind of damage is refused by
// name.
#include "checkpoint/bind.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "checkpoint/checkpoint_test_files.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

const StoredTensor stored(const ModelWeights& weights, const std::string& name) {
  const auto tensor = weights.store->find(name);
  if (!tensor) throw std::runtime_error("no tensor " + name);
  return *tensor;
}

template <class T>
T value_at(const StoredTensor& tensor, std::size_t idx) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

std::vector<float> decoded_row(const MatrixView& matrix, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(matrix.cols));
  decode_matrix_row(matrix, row, out.data());
  return out;
}

std::int64_t accounted_bytes(const BindReport& report) {
  std::int64_t bytes = 0;
  for (const FormatTotal& total : report.totals) bytes += total.bytes;
  for (const UnusedTensor& tensor : report.unused) bytes += tensor.bytes;
  return bytes;
}

// ---- whole models

struct BundledModel {
  std::filesystem::path dir;
  std::string linears, experts, draft_experts;
};

TEST(Bind, BundledModelsBindWholeWithTheirDraftBlock) {
  for (const BundledModel& model :
       {BundledModel{golden_dir("flash-bf16"), "BF16", "BF16", "BF16"},
        BundledModel{golden_dir("flash-official"), "FP8", "MXFP4", "MXFP4"},
        BundledModel{golden_dir("flash-nvfp4"), "FP8", "NVFP4", "MXFP4"},
        BundledModel{nano_dir(), "FP8", "MXFP4", "MXFP4"}}) {
    SCOPED_TRACE(model.dir);
    const auto weights = load_checkpoint(model.dir);
    const ModelConfig& c = weights->config;
    ASSERT_TRUE(weights->draft.has_value());
    ASSERT_EQ(weights->layers.size(), static_cast<std::size_t>(c.num_layers));
    EXPECT_TRUE(weights->report.unused.empty());
    EXPECT_TRUE(weights->report.notes.empty());
    EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
    for (std::size_t i = 0; i < weights->layers.size(); ++i) {
      const LayerWeights& layer = weights->layers[i];
      const LayerSummary& row = weights->report.layers[i];
      EXPECT_EQ(row.linear_formats, model.linears);
      EXPECT_EQ(row.expert_formats, model.experts);
      EXPECT_EQ(layer.compress_ratio, c.compress_ratios[i]);
      EXPECT_EQ(layer.compressor.has_value(), layer.compress_ratio != 0);
      EXPECT_EQ(layer.indexer.has_value(), layer.compress_ratio == 4);
      const bool by_hash = static_cast<int>(i) < c.num_hash_layers;
      EXPECT_EQ(layer.router.hash_table != nullptr, by_hash);
      EXPECT_EQ(layer.router.bias != nullptr, !by_hash);
      EXPECT_EQ(layer.experts.down.size(), static_cast<std::size_t>(c.num_experts));
    }
    EXPECT_EQ(weights->report.layers.back().expert_formats, model.draft_experts);
    EXPECT_EQ(weights->report.layers.back().name, "mtp.0");
  }
}

// Nothing that is aligned is copied: a loaded model costs its file, and the hash tables.
TEST(Bind, ViewsPointIntoTheFile) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"));
  const ModelConfig& c = weights->config;
  EXPECT_EQ(weights->embedding.data, stored(*weights, "embed.weight").bytes.data());
  EXPECT_EQ(static_cast<const void*>(weights->layers[0].attn_sink),
            stored(*weights, "layers.0.attn.attn_sink").bytes.data());
  const MatrixView& up = weights->layers[3].experts.up[5];
  EXPECT_EQ(up.data, stored(*weights, "layers.3.ffn.experts.5.w3.weight").bytes.data());
  EXPECT_EQ(up.block_scales,
            stored(*weights, "layers.3.ffn.experts.5.w3.weight_scale").bytes.data());
  EXPECT_EQ(static_cast<const void*>(up.global_scales),
            stored(*weights, "layers.3.ffn.experts.5.w3.weight_scale_2").bytes.data());
  EXPECT_EQ(weights->report.copied_bytes,
            c.num_hash_layers * c.vocab_size * c.experts_per_token * 4);
}

TEST(Bind, HashTableIsTheFilesAsInt32) {
  const auto weights = load_checkpoint(golden_dir("flash-bf16"));
  const ModelConfig& c = weights->config;
  const StoredTensor file = stored(*weights, "layers.1.ffn.gate.tid2eid");
  const std::int32_t* table = weights->layers[1].router.hash_table;
  for (std::int64_t i = 0; i < c.vocab_size * c.experts_per_token; ++i) {
    ASSERT_EQ(table[i], value_at<std::int64_t>(file, static_cast<std::size_t>(i))) << i;
  }
}

TEST(Bind, Nvfp4DecodesByCodeBlockScaleAndGlobalScale) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"));
  const std::string name = "layers.2.ffn.experts.4.w2";
  const MatrixView& down = weights->layers[2].experts.down[4];
  const float global = value_at<float>(stored(*weights, name + ".weight_scale_2"), 0);
  const auto row = decoded_row(down, 7);
  for (std::size_t k = 0; k < row.size(); ++k) {
    const auto byte =
        value_at<std::uint8_t>(stored(*weights, name + ".weight"), 7 * row.size() / 2 + k / 2);
    const auto scale = value_at<std::uint8_t>(stored(*weights, name + ".weight_scale"),
                                              7 * row.size() / 16 + k / 16);
    const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
    EXPECT_EQ(row[k], decode_e2m1(static_cast<std::uint8_t>(code)) * decode_e4m3(scale) * global);
  }
  EXPECT_EQ(weights->layers[2].experts.down_input_scales[4],
            value_at<float>(stored(*weights, name + ".input_scale"), 0));
}

// An E8M0 byte is a power of two, not a number: 120 is 2^-7.
TEST(Bind, E8m0ScalesAreExponents) {
  EditableModel model(golden_dir("flash-official"));
  model.tensor("layers.0.attn.wq_a.scale").set<std::uint8_t>(0, 120);
  model.tensor("layers.0.attn.wq_a.weight").set<std::uint8_t>(0, 0x38);  // 1.0
  model.tensor("layers.0.ffn.experts.0.w1.scale").set<std::uint8_t>(0, 120);
  model.tensor("layers.0.ffn.experts.0.w1.weight").set<std::uint8_t>(0, 0x42);  // 1.0, then 2.0
  const auto weights = model.load();
  EXPECT_EQ(decoded_row(weights->layers[0].q_a, 0)[0], 0x1p-7f);
  EXPECT_EQ(decoded_row(weights->layers[0].experts.gate[0], 0)[0], 0x1p-7f);
  EXPECT_EQ(decoded_row(weights->layers[0].experts.gate[0], 0)[1], 0x1p-6f);
}

// Base models: FP8 with FP32 scales, also for experts.
TEST(Bind, F32ScalesOfFp8AreNumbers) {
  EditableModel model(golden_dir("flash-official"));
  model.retype("layers.0.attn.wq_a.scale", DType::kF32, {1, 1});
  model.tensor("layers.0.attn.wq_a.scale").set<float>(0, 3.0f);
  model.tensor("layers.0.attn.wq_a.weight").set<std::uint8_t>(0, 0x38);
  model.retype("layers.1.ffn.experts.2.w3.weight", DType::kE4M3, {128, 128});
  model.retype("layers.1.ffn.experts.2.w3.scale", DType::kF32, {1, 1});
  const auto weights = model.load();
  EXPECT_EQ(decoded_row(weights->layers[0].q_a, 0)[0], 3.0f);
  EXPECT_EQ(weights->layers[1].experts.up[2].format, Format::kE4m3);
  EXPECT_EQ(weights->report.layers[1].expert_formats, "FP8+MXFP4");
}

// The format is the tensors', whatever config.json says of it.
TEST(Bind, FormatDoesNotDependOnExpertDtype) {
  EditableModel model(golden_dir("flash-official"));
  for (const nlohmann::json& value :
       {nlohmann::json("fp4"), nlohmann::json("fp8"), nlohmann::json()}) {
    model.config["expert_dtype"] = value;
    EXPECT_EQ(model.load()->report.layers[0].expert_formats, "MXFP4");
  }
  model.config.erase("expert_dtype");
  model.config.erase("quantization_config");
  EXPECT_EQ(model.load()->report.layers[0].expert_formats, "MXFP4");
}

TEST(Bind, UnalignedTensorsAreCopiedWithTheSameValues) {
  const auto aligned = load_checkpoint(golden_dir("flash-nvfp4"));
  EditableModel model(golden_dir("flash-nvfp4"));
  // One byte ahead of everything: nothing wider than a byte is aligned any more.
  const std::string one_byte = "layers.0.attn.wq_a.scale";
  const EditableModel::Tensor first = model.tensor(one_byte);
  ASSERT_EQ(first.bytes.size(), 1u);
  model.remove(one_byte);
  model.tensors.insert(model.tensors.begin(), first);
  const auto weights = model.load();
  ASSERT_FALSE(stored(*weights, "embed.weight").aligned());
  EXPECT_NE(weights->embedding.data, stored(*weights, "embed.weight").bytes.data());
  EXPECT_GT(weights->report.copied_bytes, aligned->report.copied_bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weights->embedding.data) % 2, 0u);
  for (std::int64_t row : {std::int64_t{0}, weights->embedding.rows - 1}) {
    EXPECT_EQ(decoded_row(weights->embedding, row), decoded_row(aligned->embedding, row));
  }
  for (std::size_t e = 0; e < 6; ++e) {
    EXPECT_EQ(decoded_row(weights->layers[3].experts.gate[e], 127),
              decoded_row(aligned->layers[3].experts.gate[e], 127));
  }
  EXPECT_EQ(decoded_row(weights->draft->hc_head.mix_weight, 3),
            decoded_row(aligned->draft->hc_head.mix_weight, 3));
  EXPECT_EQ(weights->layers[2].router.bias[5], aligned->layers[2].router.bias[5]);
  EXPECT_EQ(weights->layers[0].router.hash_table[511], aligned->layers[0].router.hash_table[511]);
}

TEST(Bind, WeightsOutliveAMove) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.load();
  auto store = std::make_shared<const TensorStore>(TensorStore::open(model.dir().path()));
  ModelWeights first = bind_weights(load_model_config(model.dir().path()), store);
  const std::int32_t id = first.layers[0].router.hash_table[17];
  const ModelWeights moved = std::move(first);
  EXPECT_EQ(moved.layers[0].router.hash_table[17], id);
}

// ---- the draft block

TEST(Bind, DraftBlockSwitchedOffIsListedAsUnused) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"), {.with_draft = false});
  EXPECT_FALSE(weights->draft.has_value());
  ASSERT_FALSE(weights->report.unused.empty());
  for (const UnusedTensor& tensor : weights->report.unused) {
    EXPECT_TRUE(tensor.name.starts_with("mtp.0.")) << tensor.name;
    EXPECT_NE(tensor.reason.find("switched off"), std::string_view::npos);
  }
  EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
}

TEST(Bind, DraftBlockThatWasStrippedIsNoted) {
  EditableModel model(golden_dir("flash-bf16"));
  model.remove_prefix("mtp.");
  const auto weights = model.load();
  EXPECT_FALSE(weights->draft.has_value());
  EXPECT_EQ(weights->report.notes.size(), 1u);
}

TEST(Bind, DraftBlockInPartIsRefused) {
  EditableModel model(golden_dir("flash-bf16"));
  model.remove("mtp.0.enorm.weight");
  expect_refused(model, ErrorCode::kBadCheckpoint, {"1 missing", "mtp.0.enorm.weight"});
}

TEST(Bind, DraftTensorsThatTheConfigDoesNotNameAreUnknown) {
  EditableModel model(golden_dir("flash-bf16"));
  model.config["num_nextn_predict_layers"] = 0;
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "mtp.0."});
}

TEST(Bind, DsparkStagesAreListedAsUnused) {
  for (const bool by_config : {true, false}) {
    EditableModel model(golden_dir("flash-official"));
    model.remove("mtp.0.e_proj.weight");
    model.remove("mtp.0.e_proj.scale");
    model.add("mtp.0.main_proj.weight", DType::kE4M3, {128, 384});
    model.add("mtp.2.markov_head.markov_w1.weight", DType::kBF16, {256, 8});
    if (by_config) {
      model.config["dspark_block_size"] = 5;
      model.remove("mtp.0.main_proj.weight");
    }
    const auto weights = model.load();
    EXPECT_FALSE(weights->draft.has_value());
    EXPECT_EQ(weights->report.unused.back().reason, "DSpark draft stages");
    EXPECT_EQ(weights->report.notes.size(), 1u);
    EXPECT_EQ(accounted_bytes(weights->report), weights->store->payload_bytes());
  }
}

// ---- damage

TEST(Bind, MissingTensorsAreCountedAndNamed) {
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

TEST(Bind, UnknownTensorIsNamed) {
  EditableModel model(golden_dir("flash-bf16"));
  model.add("layers.0.attn.wq_c.weight", DType::kBF16, {4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"1 unknown", "layers.0.attn.wq_c.weight"});
}

// A renamed tensor is at once missing and unknown, never dropped: a non-strict loader that loses
// hc_head answers every prompt with the same token.
TEST(Bind, RenamedHeadWeightsAreNotDropped) {
  EditableModel model(golden_dir("flash-bf16"));
  model.tensor("hc_head_fn").name = "hc_head.fn";
  model.tensor("hc_head_base").name = "hc_head.base";
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"2 missing", "hc_head_fn", "hc_head_base", "2 unknown", "hc_head.fn"});
}

// Hyper-connection parameters are called scale and are none of quantisation; the first layers
// route by token id and have no bias.
TEST(Bind, NamesThatLookLikeOthers) {
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

TEST(Bind, HashTableMustBeI64) {
  EditableModel model(golden_dir("flash-bf16"));
  model.retype("layers.0.ffn.gate.tid2eid", DType::kI32, {256, 2});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.0.ffn.gate.tid2eid", "I32", "I64"});
}

TEST(Bind, HashTableIdsAtTheirBounds) {
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

TEST(Bind, WrongShapeIsNamedWithBothShapes) {
  EditableModel model(golden_dir("flash-official"));
  model.retype("layers.0.attn.wq_b.weight", DType::kE4M3, {128, 2048});
  expect_refused(model, ErrorCode::kBadCheckpoint,
                 {"layers.0.attn.wq_b.weight", "[128, 2048]", "[2048, 128]"});
}

TEST(Bind, WrongScaleShapeIsRefused) {
  EditableModel model(golden_dir("flash-official"));
  model.retype("layers.0.attn.wkv.scale", DType::kE8M0, {1, 4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.0.attn.wkv.scale", "[1, 4]", "[4, 1]"});
  EditableModel experts(golden_dir("flash-official"));
  experts.retype("layers.2.ffn.experts.1.w2.scale", DType::kE8M0, {128, 8});
  expect_refused(experts, ErrorCode::kBadCheckpoint, {"layers.2.ffn.experts.1.w2.scale"});
}

TEST(Bind, ConfigOfAnotherModelIsRefused) {
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

TEST(Bind, WrongDtypeIsNamed) {
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

TEST(Bind, F32InPlaceOfBf16IsAccepted) {
  EditableModel model(golden_dir("flash-bf16"));
  model.retype("norm.weight", DType::kF32, {128});
  EXPECT_EQ(model.load()->final_norm.format, Format::kF32);
}

// ---- the 4-bit formats

// The same packing under two labels: I8 goes with scale, U8 with weight_scale.
TEST(Bind, MixedUpLabelsOfFourBitExpertsAreRefused) {
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

TEST(Bind, LeftOverScaleOfAnotherFormatIsUnknown) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.add("layers.0.ffn.experts.3.w1.scale", DType::kE8M0, {128, 4});
  expect_refused(model, ErrorCode::kBadCheckpoint, {"unknown", "layers.0.ffn.experts.3.w1.scale"});
}

TEST(Bind, Nvfp4ExpertThatLacksOneKeyIsNamed) {
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

TEST(Bind, Nvfp4WithoutAnyInputScaleIsWeightOnly) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.remove_suffix(".input_scale");
  const auto weights = model.load();
  EXPECT_FALSE(weights->layers[0].experts.gate_up_input_scales[0].has_value());
  EXPECT_FALSE(weights->layers[3].experts.down_input_scales[5].has_value());
}

TEST(Bind, GlobalAndInputScalesMustBeFiniteAndPositive) {
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

TEST(Bind, ScalarsMayHaveShapeOne) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.retype("layers.0.ffn.experts.0.w1.weight_scale_2", DType::kF32, {1});
  EXPECT_NO_THROW(model.load());
  for (const Shape& shape : {Shape{2}, Shape{1, 1}}) {
    model.retype("layers.0.ffn.experts.0.w1.weight_scale_2", DType::kF32, shape);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {"layers.0.ffn.experts.0.w1.weight_scale_2", shape.to_string()});
  }
}

TEST(Bind, GateAndUpMustShareTheirInputScale) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.tensor("layers.2.ffn.experts.1.w3.input_scale").set<float>(0, 0.125f);
  expect_refused(model, ErrorCode::kBadCheckpoint, {"layers.2.ffn.experts.1", "w1", "w3", "0.125"});
}

// Each matrix decodes with its own global scale, so differing ones are right, if unusual.
TEST(Bind, GateAndUpMayDifferInTheirGlobalScale) {
  EditableModel model(golden_dir("flash-nvfp4"));
  model.tensor("layers.2.ffn.experts.1.w3.weight_scale_2").set<float>(0, 0.125f);
  const auto weights = model.load();
  EXPECT_EQ(*weights->layers[2].experts.up[1].global_scales, 0.125f);
  EXPECT_NE(*weights->layers[2].experts.gate[1].global_scales, 0.125f);
}

// Attention in NVFP4, as some community models have it.
TEST(Bind, FormatIsDecidedForEachMatrix) {
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

TEST(Bind, InputsThatDoNotFillQuantBlocksAreRefused) {
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

TEST(Bind, ForeignSchemesAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"model.layers.0.self_attn.q_a_proj.weight", "transformers"},
      {"layers.0.ffn.experts.0.w1.weight_packed", "compressed-tensors"},
      {"layers.0.attn.wq_a.weight_scale_inv", "weight_scale_inv"},
      {"vision.blocks.0.norm1.weight", "Vision"},
      {"layers.3.ffn.gate.bias_vl", "Vision"},
      {"engram.embed.weight", "V4.1"}};
  for (const auto& [name, says] : cases) {
    EditableModel model(golden_dir("flash-bf16"));
    model.add(name, DType::kU8, {4});
    expect_refused(model, ErrorCode::kUnsupported, {name, says});
  }
}

TEST(Bind, WhatIsNotAModelDirectory) {
  const TempDir dir;
  const auto load = [](const std::filesystem::path& path) { load_checkpoint(path); };
  expect_error(ErrorCode::kNotFound, {"nowhere"}, [&] { load(dir / "nowhere"); });
  expect_error(ErrorCode::kNotFound, {"config.json"}, [&] { load(dir.path()); });
  put_file(dir / "model.gguf", "GGUF");
  expect_error(ErrorCode::kUnsupported, {"GGUF"}, [&] { load(dir / "model.gguf"); });
  expect_error(ErrorCode::kUnsupported, {"GGUF"}, [&] { load(dir.path()); });
  put_file(dir / "model.txt", "");
  expect_error(ErrorCode::kBadRequest, {"directory"}, [&] { load(dir / "model.txt"); });
  put_file(dir / "config.json", get_file(golden_dir("flash-bf16") / "config.json"));
  expect_error(ErrorCode::kNotFound, {dir.path().string()}, [&] { load(dir.path()); });
}

TEST(Bind, EosOfGenerationConfigMustBeInTheVocabulary) {
  EditableModel model(golden_dir("flash-bf16"));
  put_file(model.dir() / "generation_config.json", R"({"eos_token_id": 255, "top_p": 0.5})");
  EXPECT_EQ(model.load()->generation.top_p, 0.5);
  put_file(model.dir() / "generation_config.json", R"({"eos_token_id": 256})");
  expect_refused(model, ErrorCode::kBadCheckpoint, {"generation_config.json", "256", "255"});
}

}  // namespace
}  // namespace dsv4
