// matrix_list_test.cc: the list names every quantised matrix of a checkpoint once, with the view
// that was bound.
#include "checkpoint/matrix_list.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/layout.h"
#include "checkpoint/published_configs.h"

namespace dsv4 {
namespace {

std::map<std::string, NamedMatrix> by_name(const ModelWeights& weights) {
  std::map<std::string, NamedMatrix> result;
  for (const NamedMatrix& matrix : list_matrices(weights)) {
    EXPECT_TRUE(result.emplace(matrix.name, matrix).second) << matrix.name << " twice";
  }
  return result;
}

// Every tensor of two dimensions that has a scale beside it, and the head, is a listed matrix; its
// view starts where the tensor's bytes do.
TEST(MatrixList, HoldsEveryQuantisedMatrix) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"));
  const auto matrices = by_name(*weights);
  int quantised = 0;
  for (const StoredTensor& tensor : weights->store->tensors()) {
    const std::string& name = tensor.info->name;
    if (!name.ends_with(".weight")) continue;
    const std::string matrix = name.substr(0, name.size() - 7);
    const bool has_scale = weights->store->find(matrix + ".scale").has_value() ||
                           weights->store->find(matrix + ".weight_scale").has_value();
    if (!has_scale) continue;
    ++quantised;
    ASSERT_TRUE(matrices.contains(matrix)) << matrix;
    EXPECT_TRUE(is_quantized(matrices.at(matrix).view.format)) << matrix;
    if (!tensor.aligned()) continue;
    EXPECT_EQ(matrices.at(matrix).view.data, tensor.bytes.data()) << matrix;
  }
  std::set<std::string> plain;
  for (const auto& [name, matrix] : matrices) {
    if (!is_quantized(matrix.view.format)) plain.insert(name);
  }
  EXPECT_EQ(quantised + std::ssize(plain), std::ssize(matrices));
  EXPECT_EQ(plain,
            (std::set<std::string>{
                "head", "layers.1.attn.compressor.wkv", "layers.1.attn.compressor.wgate",
                "layers.1.attn.indexer.weights_proj", "layers.1.attn.indexer.compressor.wkv",
                "layers.1.attn.indexer.compressor.wgate", "layers.2.attn.compressor.wkv",
                "layers.2.attn.compressor.wgate", "layers.3.attn.compressor.wkv",
                "layers.3.attn.compressor.wgate", "layers.3.attn.indexer.weights_proj",
                "layers.3.attn.indexer.compressor.wkv", "layers.3.attn.indexer.compressor.wgate"}));
}

TEST(MatrixList, SaysWhatAMatrixIs) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"));
  const auto matrices = by_name(*weights);
  const auto expect = [&](const std::string& name, MatrixKind kind, bool is_draft, int layer,
                          int expert) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(matrices.contains(name));
    EXPECT_EQ(matrices.at(name).kind, kind);
    EXPECT_EQ(matrices.at(name).is_draft, is_draft);
    EXPECT_EQ(matrices.at(name).layer, layer);
    EXPECT_EQ(matrices.at(name).expert, expert);
  };
  expect("head", MatrixKind::kHead, false, -1, -1);
  expect("layers.0.attn.wo_b", MatrixKind::kAttention, false, 0, -1);
  expect("layers.1.attn.indexer.wq_b", MatrixKind::kAttention, false, 1, -1);
  expect("layers.1.attn.indexer.weights_proj", MatrixKind::kCompressor, false, 1, -1);
  expect("layers.3.ffn.experts.5.w1", MatrixKind::kExpertGate, false, 3, 5);
  expect("layers.3.ffn.experts.5.w3", MatrixKind::kExpertUp, false, 3, 5);
  expect("layers.3.ffn.experts.0.w2", MatrixKind::kExpertDown, false, 3, 0);
  expect("layers.2.ffn.shared_experts.w2", MatrixKind::kSharedExpert, false, 2, -1);
  expect("mtp.0.e_proj", MatrixKind::kDraftInput, true, -1, -1);
  expect("mtp.0.ffn.experts.1.w2", MatrixKind::kExpertDown, true, -1, 1);

  const LayerWeights& layer = weights->layers[3];
  for (const char* name : {"layers.3.ffn.experts.5.w1", "layers.3.ffn.experts.5.w3"}) {
    ASSERT_TRUE(layer.experts.gate_up_input_scales[5].has_value());
    EXPECT_EQ(matrices.at(name).input_scale, layer.experts.gate_up_input_scales[5]);
  }
  EXPECT_EQ(matrices.at("layers.3.ffn.experts.5.w2").input_scale,
            layer.experts.down_input_scales[5]);
  EXPECT_EQ(matrices.at("mtp.0.ffn.experts.1.w2").input_scale, std::nullopt);
}

TEST(MatrixList, WithoutTheDraftBlock) {
  const auto weights = load_checkpoint(golden_dir("flash-nvfp4"), {.with_draft = false});
  for (const NamedMatrix& matrix : list_matrices(*weights)) EXPECT_FALSE(matrix.is_draft);
}

}  // namespace
}  // namespace dsv4
