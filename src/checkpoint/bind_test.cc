// bind_test.cc: the bundled models bind whole, in place and with the right values; the draft block.
// Damage: bind_damage_test.cc.
#include "checkpoint/bind.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_test_files.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"

namespace dsv4 {
namespace {

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

TEST(Bind, ProgressCountsAllFilesAndAllTensors) {
  std::vector<LoadProgress> calls;
  const auto record = [&calls](const LoadProgress& progress) { calls.push_back(progress); };
  const auto weights = load_checkpoint(nano_dir(), {.with_draft = false, .progress = record});
  ASSERT_GE(calls.size(), 4u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(calls[i].stage, LoadProgress::Stage::kFiles);
    EXPECT_EQ(calls[i].done, static_cast<std::int64_t>(i));
    EXPECT_EQ(calls[i].total, 1);
  }
  std::int64_t done = 0;
  for (std::size_t i = 2; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].stage, LoadProgress::Stage::kTensors);
    EXPECT_EQ(calls[i].total, std::ssize(weights->store->tensors()));
    EXPECT_GT(calls[i].done, done);
    done = calls[i].done;
  }
  EXPECT_EQ(done, calls.back().total);  // with the draft block's tensors, which are not bound
}

TEST(Bind, ProgressMayEndTheLoading) {
  struct GivenUp {};
  for (const auto stage : {LoadProgress::Stage::kFiles, LoadProgress::Stage::kTensors}) {
    const auto give_up = [stage](const LoadProgress& progress) {
      if (progress.stage == stage) throw GivenUp{};
    };
    EXPECT_THROW(load_checkpoint(nano_dir(), {.progress = give_up}), GivenUp);
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

}  // namespace
}  // namespace dsv4
