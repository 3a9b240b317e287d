// bind_nvfp4_test.cc: every linear may come in NVFP4, in either publisher's form; tables may not.
#include <gtest/gtest.h>

#include "checkpoint/bind.h"
#include "checkpoint/checkpoint_variants.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"

namespace dsv4 {
namespace {

struct Linear {
  std::string name;
  std::function<const MatrixView&(const ModelWeights&)> view;
};

TEST(BindNvfp4, EveryLinearMayBeNvfp4) {
  const std::vector<Linear> linears{
      {"head", [](const ModelWeights& w) -> const MatrixView& { return w.head; }},
      {"layers.1.attn.wq_a",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].q_a; }},
      {"layers.1.attn.wq_b",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].q_b; }},
      {"layers.1.attn.wkv",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].kv; }},
      {"layers.1.attn.wo_a",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].o_a; }},
      {"layers.1.attn.wo_b",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].o_b; }},
      {"layers.1.attn.compressor.wkv",
       [](const ModelWeights& w) -> const MatrixView& {
         return w.layers[1].compressor->value_proj;
       }},
      {"layers.1.attn.compressor.wgate",
       [](const ModelWeights& w) -> const MatrixView& {
         return w.layers[1].compressor->score_proj;
       }},
      {"layers.1.attn.indexer.wq_b",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].indexer->q_b; }},
      {"layers.1.attn.indexer.weights_proj",
       [](const ModelWeights& w) -> const MatrixView& {
         return w.layers[1].indexer->head_weights_proj;
       }},
      {"layers.1.ffn.shared_experts.w1",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].shared_expert.gate; }},
      {"layers.1.ffn.shared_experts.w2",
       [](const ModelWeights& w) -> const MatrixView& { return w.layers[1].shared_expert.down; }},
      {"mtp.0.e_proj", [](const ModelWeights& w) -> const MatrixView& { return w.draft->e_proj; }}};
  const auto before = load_checkpoint(golden_dir("flash-nvfp4"));
  for (const Nvfp4Names& names : {kModelOptNames, kCompressedTensorsNames}) {
    EditableModel model(golden_dir("flash-nvfp4"));
    for (const Linear& linear : linears) {
      const MatrixView& view = linear.view(*before);
      put_nvfp4(model, linear.name, {view.rows, view.cols}, names, 0x1p-9f);
    }
    const auto weights = model.load();
    EXPECT_EQ(weights->report.layers[1].linear_formats, "FP8+NVFP4");  // w3 was left
    EXPECT_EQ(weights->report.layers[0].linear_formats, "FP8");
    for (const Linear& linear : linears) {
      SCOPED_TRACE(linear.name);
      const MatrixView& view = linear.view(*weights);
      ASSERT_EQ(view.format, Format::kNvfp4);
      const std::int64_t row = view.rows - 1;
      const auto values = decoded_row(view, row);
      for (std::int64_t k = 0; k < view.cols; ++k) {
        const auto byte_idx = static_cast<std::size_t>((row * view.cols + k) / 2);
        const auto scale_idx = static_cast<std::size_t>((row * view.cols + k) / 16);
        const auto byte = static_cast<std::uint8_t>((byte_idx * 37 + byte_idx / 64) & 255);
        const int code = k % 2 == 0 ? byte & 15 : byte >> 4;
        const float scale = decode_e4m3(static_cast<std::uint8_t>(0x28 + scale_idx % 24));
        EXPECT_EQ(values[static_cast<std::size_t>(k)],
                  decode_e2m1(static_cast<std::uint8_t>(code)) * scale * 0x1p-9f);
      }
    }
  }
}

// The embedding is a table that rows are copied from, the router decides: neither is quantised.
TEST(BindNvfp4, EmbeddingAndRouterAreNotQuantised) {
  for (const char* name : {"embed", "layers.2.ffn.gate"}) {
    EditableModel model(golden_dir("flash-nvfp4"));
    const Shape shape = model.tensor(std::string(name) + ".weight").shape;
    put_nvfp4(model, name, shape, kModelOptNames, 1.0f);
    expect_refused(model, ErrorCode::kBadCheckpoint,
                   {std::string(name) + ".weight", "U8", "BF16 or F32"});
  }
}

}  // namespace
}  // namespace dsv4
