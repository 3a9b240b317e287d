// Which linears may take quantised activations: a wrong yes loses bits silently, a wrong no costs
// the speed that was asked for.
#include "model/precision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backends.h"
#include "checkpoint/bind.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

TEST(ExpertActivation, OneMatrixThatDoesNotFoldDecidesForAll) {
  const std::uint8_t good[] = {0x38};  // 1
  const std::uint8_t bad[] = {0x39};   // 1.125
  const auto nvfp4 = [](const std::uint8_t* scales) {
    MatrixView m;
    m.format = Format::kNvfp4;
    m.rows = 1;
    m.cols = 16;
    m.block_cols = 16;
    m.scale_stride = 1;
    m.block_scales = scales;
    return m;
  };
  MatrixView mxfp4;
  mxfp4.format = Format::kMxfp4;
  MatrixView bf16;
  bf16.format = Format::kBf16;
  const auto a8 = [](std::vector<MatrixView> all) {
    return expert_activation(all, Activations::kA8);
  };
  EXPECT_EQ(a8({nvfp4(good), mxfp4, nvfp4(good)}), Format::kE4m3);
  EXPECT_EQ(a8({nvfp4(good), mxfp4, nvfp4(bad)}), std::nullopt);
  EXPECT_EQ(a8({mxfp4, bf16}), std::nullopt);
  const auto a4 = [](std::vector<MatrixView> all) {
    return expert_activation(all, Activations::kA4);
  };
  EXPECT_EQ(a4({nvfp4(bad), nvfp4(good)}), Format::kNvfp4);
  EXPECT_EQ(a4({nvfp4(bad), mxfp4}), std::nullopt);
  EXPECT_EQ(dense_activation(nvfp4(good), Activations::kA4), std::nullopt);
}

struct Expected {
  const char* model;
  Activations activations;
  ActivationFormat dense, experts;
};

// Layer 1 has an indexer.
TEST(PlanPrecision, OfTheGoldenModels) {
  const ActivationFormat none, fp8 = Format::kE4m3, nvfp4 = Format::kNvfp4;
  for (const Expected& e : {
           Expected{"flash-bf16", Activations::kA16, none, none},
           Expected{"flash-bf16", Activations::kA8, none, none},
           Expected{"flash-bf16", Activations::kAuto, none, none},
           Expected{"flash-bf16", Activations::kA4, none, none},
           Expected{"flash-official", Activations::kA16, none, none},
           Expected{"flash-official", Activations::kA8, fp8, fp8},
           Expected{"flash-official", Activations::kAuto, fp8, fp8},
           Expected{"flash-official", Activations::kA4, none, none},
           Expected{"flash-nvfp4", Activations::kA16, none, none},
           Expected{"flash-nvfp4", Activations::kA8, fp8, none},  // scales are no powers of two
           Expected{"flash-nvfp4", Activations::kAuto, fp8, none},
           Expected{"flash-nvfp4", Activations::kA4, none, nvfp4},
       }) {
    SCOPED_TRACE(std::string(e.model) + " " + std::to_string(static_cast<int>(e.activations)));
    const auto weights = load_checkpoint(golden_dir(e.model));
    const auto backend = open_backend("reference");
    std::vector<LayerPrecision> plans;
    plans.push_back(plan_precision(weights->layers[1], e.activations, *backend));
    const LayerPrecision& plan = plans[0];
    for (const ActivationFormat& format : {plan.q_a, plan.q_b, plan.kv, plan.o_b, plan.index_q_b,
                                           plan.shared_gate_up, plan.shared_down}) {
      EXPECT_EQ(format, e.dense);
    }
    EXPECT_EQ(plan.expert_gate_up, e.experts);
    EXPECT_EQ(plan.expert_down, e.experts);
    EXPECT_EQ(plan.quantizes(), e.dense.has_value() || e.experts.has_value());
    const bool is_static = e.experts == nvfp4;
    const auto scale_bytes =
        static_cast<std::int64_t>(weights->layers[1].experts.gate.size() * sizeof(float));
    EXPECT_EQ(plan.gate_up_input_scales.size_bytes(), is_static ? scale_bytes : 0);
    EXPECT_EQ(plan.down_input_scales.size_bytes(), is_static ? scale_bytes : 0);
  }
}

// `change`, if not null, is made to each layer first.
std::string note(const char* model, Activations activations,
                 void (*change)(LayerWeights& layer) = nullptr, bool has_nvfp4_head = false) {
  ModelWeights weights =
      bind_weights(load_model_config(golden_dir(model)),
                   std::make_shared<TensorStore>(TensorStore::open(golden_dir(model))));
  const auto backend = open_backend("reference");
  std::vector<LayerPrecision> plans;
  for (LayerWeights& layer : weights.layers) {
    if (change != nullptr) change(layer);
    plans.push_back(plan_precision(layer, activations, *backend));
  }
  if (has_nvfp4_head) weights.head.format = Format::kNvfp4;
  return describe_precision(weights, plans, activations);
}

TEST(DescribePrecision, SaysWhatAUserWouldNotExpect) {
  using testing::HasSubstr;
  EXPECT_EQ(note("flash-official", Activations::kAuto), "");
  EXPECT_EQ(note("flash-official", Activations::kA8), "");
  EXPECT_EQ(note("flash-bf16", Activations::kAuto), "");
  EXPECT_EQ(note("flash-nvfp4", Activations::kA16), "");
  EXPECT_EQ(note("flash-nvfp4", Activations::kA4), "");
  EXPECT_THAT(note("flash-nvfp4", Activations::kAuto), HasSubstr("do not fold into FP8"));
  EXPECT_THAT(note("flash-bf16", Activations::kA8), HasSubstr("a16"));
  EXPECT_THAT(note("flash-official", Activations::kA4), HasSubstr("NVFP4"));
  const auto drop_input_scales = [](LayerWeights& layer) {
    for (auto* scales : {&layer.experts.gate_up_input_scales, &layer.experts.down_input_scales})
      std::fill(scales->begin(), scales->end(), std::nullopt);
  };
  EXPECT_THAT(note("flash-nvfp4", Activations::kA4, drop_input_scales), HasSubstr("dynamic"));
}

// Experts were once the only ones that were named, and the others fell to a16 in silence.
TEST(DescribePrecision, NamesEveryGroupOfMatrices) {
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::Not;
  // The experts' weights, whose scales do not fold, stand for any.
  const auto attention = [](LayerWeights& layer) { layer.kv = layer.experts.down[0]; };
  const auto indexer = [](LayerWeights& layer) {
    if (layer.indexer) layer.indexer->q_b = layer.experts.down[0];
  };
  const auto shared = [](LayerWeights& layer) { layer.shared_expert.up = layer.experts.down[0]; };
  for (const Activations a8 : {Activations::kA8, Activations::kAuto}) {
    const std::string fp8 = note("flash-nvfp4", a8);
    EXPECT_THAT(fp8, AllOf(HasSubstr("the experts of"), HasSubstr("do not fold")));
    EXPECT_THAT(fp8, AllOf(Not(HasSubstr("attention")), Not(HasSubstr("shared"))));
    EXPECT_THAT(fp8, Not(HasSubstr("head")));
    EXPECT_THAT(note("flash-nvfp4", a8, attention), HasSubstr("attention of"));
    EXPECT_THAT(note("flash-nvfp4", a8, indexer), HasSubstr("attention of"));
    EXPECT_THAT(note("flash-nvfp4", a8, shared), HasSubstr("the shared experts of"));
    EXPECT_THAT(note("flash-nvfp4", a8, nullptr, true), HasSubstr("the head (NVFP4)"));
  }
  const std::string a4_attention = note("flash-nvfp4", Activations::kA4, attention);
  EXPECT_THAT(a4_attention, AllOf(HasSubstr("attention of"), HasSubstr("a4 is for the experts")));
  EXPECT_THAT(a4_attention, Not(HasSubstr("do not come in NVFP4")));
  EXPECT_THAT(note("flash-nvfp4", Activations::kA4, shared), HasSubstr("the shared experts of"));
  EXPECT_EQ(note("flash-nvfp4", Activations::kA16, attention, true), "");
}

}  // namespace
}  // namespace dsv4
