// The draft block at its door, and the formats that its two projections are fed in. What it
// computes is judged by tests/golden_test.cc and tests/invariance_test.cc.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/bind.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "model/model.h"
#include "testing/check_message.h"
#include "testing/golden_copy.h"
#include "testing/input_recorder.h"

namespace dsv4 {
namespace {

class DraftTest : public testing::Test {
 protected:
  void open(const char* name, Activations activations) {
    open(load_checkpoint(golden_dir(name), {.with_draft = true}), activations);
  }
  void open(std::shared_ptr<const ModelWeights> of_model, Activations activations) {
    weights = std::move(of_model);
    model = std::make_unique<Model>(weights, backend,
                                    ModelOptions{.activations = activations, .max_step_tokens = 8});
    cache = model->make_cache(64, 1);
    sequence.emplace(*cache);
  }
  void forward(std::int64_t num_tokens) {
    const StepSequence sequences[] = {{&*sequence, sequence->length(), num_tokens}};
    model->forward(*cache, {std::span(tokens).first(num_tokens), sequences, {}});
    length_before = sequence->length() - num_tokens;
  }
  void draft(std::int64_t num_tokens) {
    const StepSequence sequences[] = {{&*sequence, length_before, num_tokens}};
    model->forward_draft(*cache, {std::span(tokens).first(num_tokens), sequences, {}});
  }

  const CheckMessages messages;
  const std::vector<TokenId> tokens = std::vector<TokenId>(8, 7);
  InputRecorder backend;
  std::shared_ptr<const ModelWeights> weights;
  std::unique_ptr<Model> model;
  std::unique_ptr<KvCache> cache;
  std::optional<SequenceCache> sequence;
  std::int64_t length_before = 0;
};
using DraftDeathTest = DraftTest;

TEST_F(DraftTest, ProjectionsTakeTheirInputsAsTheActivationsSay) {
  struct Case {
    const char* model;
    Activations activations;
    Format e_proj, h_proj;
  };
  for (const Case& c : {Case{"flash-official", Activations::kA16, Format::kF32, Format::kF32},
                        Case{"flash-official", Activations::kA8, Format::kE4m3, Format::kE4m3},
                        Case{"flash-official", Activations::kA4, Format::kF32, Format::kF32},
                        Case{"flash-bf16", Activations::kA8, Format::kF32, Format::kF32}}) {
    SCOPED_TRACE(c.model);
    sequence.reset();
    open(c.model, c.activations);
    forward(3);
    draft(3);
    EXPECT_EQ(backend.input_of.at(weights->draft->e_proj.data), c.e_proj);
    EXPECT_EQ(backend.input_of.at(weights->draft->h_proj.data), c.h_proj);
    backend.input_of.clear();
  }
}

// A checkpoint may keep one of the two in BF16 and quantise the other.
TEST_F(DraftTest, EachProjectionIsFedByItsOwnFormat) {
  const std::filesystem::path dir = golden_dir("flash-official");
  std::vector<std::uint16_t> zeros;
  for (const bool e_is_plain : {true, false}) {
    SCOPED_TRACE(e_is_plain);
    sequence.reset();
    backend.input_of.clear();
    ModelWeights mixed =
        bind_weights(load_model_config(dir), std::make_shared<TensorStore>(TensorStore::open(dir)));
    MatrixView& plain = e_is_plain ? mixed.draft->e_proj : mixed.draft->h_proj;
    zeros.resize(static_cast<std::size_t>(plain.rows * plain.cols));
    MatrixView as_bf16;
    as_bf16.data = zeros.data();
    as_bf16.format = Format::kBf16;
    as_bf16.rows = plain.rows;
    as_bf16.cols = as_bf16.row_stride = plain.cols;
    plain = as_bf16;
    open(std::make_shared<const ModelWeights>(std::move(mixed)), Activations::kA8);
    forward(3);
    draft(3);
    EXPECT_EQ(backend.input_of.at(weights->draft->e_proj.data),
              e_is_plain ? Format::kF32 : Format::kE4m3);
    EXPECT_EQ(backend.input_of.at(weights->draft->h_proj.data),
              e_is_plain ? Format::kE4m3 : Format::kF32);
  }
}

TEST_F(DraftDeathTest, EachStepsStreamsServeOneDraft) {
  open("flash-bf16", Activations::kA16);
  EXPECT_DEATH(draft(1), "residuals");  // of no step
  forward(3);
  EXPECT_EQ(model->residuals().rows, 3);
  EXPECT_DEATH(draft(4), "residuals");
  draft(2);
  EXPECT_EQ(model->residuals().rows, 0);
  EXPECT_DEATH(draft(2), "residuals");
  draft(0);
  forward(2);
  draft(2);
}

}  // namespace
}  // namespace dsv4
