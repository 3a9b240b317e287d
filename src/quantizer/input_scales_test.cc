// input_scales_test.cc: no expert is left with a scale of 0 or infinity, whatever calibration saw,
// and every scale that is not its expert's own is listed.
#include "quantizer/input_scales.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

TEST(InputScales, AreAmaxOver2688) {
  const InputScales scales = make_input_scales(
      {.layers = {{{.gate_up = 2688, .down = 1, .tokens = 3}, {.gate_up = 3, .down = 5376}}},
       .tokens = 7});
  EXPECT_EQ(scales.layers[0][0].gate_up, 1.0f);
  EXPECT_EQ(scales.layers[0][0].down, 1.0f / 2688.0f);
  EXPECT_EQ(scales.layers[0][1].gate_up, 3.0f / 2688.0f);
  EXPECT_EQ(scales.layers[0][1].down, 2.0f);
  EXPECT_TRUE(scales.filled.empty());
  EXPECT_EQ(scales.calibration_tokens, 7);
}

TEST(InputScales, AnExpertWithoutTokensTakesTheLargestOfItsLayer) {
  const InputScales scales =
      make_input_scales({.layers = {{
                                        {.gate_up = 1, .down = 8, .tokens = 1},
                                        {},
                                        {.gate_up = 4, .down = 2, .tokens = 1},
                                    },
                                    {{.gate_up = 64, .down = 64, .tokens = 1}}}});
  EXPECT_EQ(scales.layers[0][1].gate_up, 4.0f / 2688.0f);
  EXPECT_EQ(scales.layers[0][1].down, 8.0f / 2688.0f);
  const std::vector<FilledInputScale> filled = {{.layer = 0, .expert = 1, .is_down = false},
                                                {.layer = 0, .expert = 1, .is_down = true}};
  EXPECT_EQ(scales.filled, filled);
}

// SwiGLU gave 0 for all of the expert's tokens: its gate_up is its own, its down is not.
TEST(InputScales, OnlyTheInputThatIsZeroIsFilled) {
  const InputScales scales =
      make_input_scales({.layers = {{{.gate_up = 1, .down = 0, .tokens = 9},
                                     {.gate_up = 2, .down = 3, .tokens = 1}}}});
  EXPECT_EQ(scales.layers[0][0].gate_up, 1.0f / 2688.0f);
  EXPECT_EQ(scales.layers[0][0].down, 3.0f / 2688.0f);
  const std::vector<FilledInputScale> filled = {
      {.layer = 0, .expert = 0, .is_down = true, .tokens = 9}};
  EXPECT_EQ(scales.filled, filled);
}

TEST(InputScales, ALayerWithoutAnyTakesTheLargestOfTheModel) {
  const InputScales scales =
      make_input_scales({.layers = {{{.gate_up = 1, .down = 2, .tokens = 1}},
                                    {{}, {.tokens = 4}},
                                    {{.gate_up = 7, .down = 1, .tokens = 1}}}});
  for (const ExpertInputScales& expert : scales.layers[1]) {
    EXPECT_EQ(expert.gate_up, 7.0f / 2688.0f);
    EXPECT_EQ(expert.down, 2.0f / 2688.0f);
  }
  EXPECT_EQ(scales.filled.size(), 4u);
  EXPECT_EQ(scales.filled[2], (FilledInputScale{.layer = 1, .expert = 1, .tokens = 4}));
}

// amax / 2688 is 0 in FP32: as good as no amax.
TEST(InputScales, AnAmaxWhoseScaleUnderflowsIsNone) {
  constexpr float kSmallest = 0x1p-149f;
  const InputScales scales =
      make_input_scales({.layers = {{{.gate_up = kSmallest, .down = kSmallest, .tokens = 1},
                                     {.gate_up = 1, .down = 0x1p-136f, .tokens = 1}}}});
  EXPECT_EQ(scales.layers[0][0].gate_up, 1.0f / 2688.0f);
  EXPECT_GT(scales.layers[0][1].down, 0.0f);  // 2^-136 / 2688 rounds to 3 steps above 0
  EXPECT_EQ(scales.layers[0][0].down, scales.layers[0][1].down);
  EXPECT_EQ(scales.filled.size(), 2u);
}

TEST(InputScales, NothingSeenIsRefusedAndNeverAZeroScale) {
  using Layers = std::vector<std::vector<ExpertAmaxes>>;
  for (const Layers& layers :
       {Layers{{{}}}, Layers{{{.gate_up = 1, .tokens = 1}}}, Layers{{{.down = 1, .tokens = 1}}}}) {
    expect_error(ErrorCode::kBadRequest, {"calibration", "zeros"},
                 [&] { make_input_scales({.layers = layers}); });
  }
}

TEST(InputScales, DescribeCountsWhatWasFilled) {
  InputAmaxes amaxes{.layers = {{{.gate_up = 1, .down = 1, .tokens = 9}, {}}}, .tokens = 10};
  const std::string text = describe(make_input_scales(amaxes));
  EXPECT_EQ(text.substr(0, 25), "2 of 4 input scales are n");
  EXPECT_NE(text.find("(10 tokens)"), std::string::npos);
  amaxes.layers[0].pop_back();
  EXPECT_EQ(describe(make_input_scales(amaxes)), "");
}

TEST(InputScales, JsonListsWhatWasFilled) {
  const InputScales scales = make_input_scales(
      {.layers = {{{.gate_up = 1, .down = 0, .tokens = 9}, {.gate_up = 2, .down = 3, .tokens = 1}}},
       .tokens = 10});
  EXPECT_EQ(to_json(scales).dump(),
            R"({"tokens":10,"filled":[{"layer":0,"expert":0,"input":"down","tokens":9}]})");
}

}  // namespace
}  // namespace dsv4
