// Dispatch, combine and the door of the experts: rows in order, experts without rows never touched,
// refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>

#include "ops/moe.h"
#include "testing/cases/moe_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"

namespace dsv4::testing {
namespace {

TEST_EACH_BACKEND(MoeDispatch, RowsAreSortedByExpertThenToken) {
  for (MoeCase c : moe_cases()) {
    SCOPED_TRACE(c.name);
    const MoeInputs in(c);
    DeviceMoe device(backend, c, in);
    run_op(backend, device.dispatch);
    const MoeRows got = device.rows();
    MoeRows want;
    want.token_rows.assign(in.choices.size(), -1);
    for (std::int32_t e = 0; e < c.num_experts; ++e) {
      want.expert_offsets.push_back(static_cast<std::int32_t>(want.row_tokens.size()));
      for (std::size_t i = 0; i < in.choices.size(); ++i) {
        if (in.choices[i] != e) continue;
        want.token_rows[i] = static_cast<std::int32_t>(want.row_tokens.size());
        want.row_tokens.push_back(static_cast<std::int32_t>(i) / c.experts_per_token);
        want.row_experts.push_back(e);
        want.row_weights.push_back(in.choice_weights[i]);
      }
    }
    want.expert_offsets.push_back(static_cast<std::int32_t>(want.row_tokens.size()));
    // Rows behind the last are left as they were.
    want.row_tokens.resize(in.choices.size(), -1);
    want.row_experts.resize(in.choices.size(), -1);
    want.row_weights.resize(in.choices.size(), __builtin_bit_cast(float, 0xFFFFFFFFu));
    EXPECT_EQ(got.expert_offsets, want.expert_offsets);
    EXPECT_EQ(got.row_tokens, want.row_tokens);
    EXPECT_EQ(got.row_experts, want.row_experts);
    EXPECT_EQ(got.token_rows, want.token_rows);
    EXPECT_SAME_BITS(got.row_weights, want.row_weights);
  }
}

// The same expert twice for one token: two rows, in the order of the choices.
TEST_EACH_BACKEND(MoeDispatch, AnExpertChosenTwiceGetsTwoRows) {
  MoeCase c;
  c.tokens = 2;
  c.experts_per_token = 2;
  MoeInputs in(c);
  in.choices = {1, 1, 0, 1};
  DeviceMoe device(backend, c, in);
  run_op(backend, device.dispatch);
  const MoeRows got = device.rows();
  EXPECT_EQ(got.token_rows, (std::vector<std::int32_t>{1, 2, 0, 3}));
  EXPECT_EQ(got.row_tokens, (std::vector<std::int32_t>{1, 0, 0, 1}));
  EXPECT_EQ(got.row_weights, (std::vector<float>{in.choice_weights[2], in.choice_weights[0],
                                                 in.choice_weights[1], in.choice_weights[3]}));
}

// Weights of experts without rows lie in pages that fault when touched, or, where the device's
// memory is its own, are NaN.
TEST_EACH_BACKEND(MoeDispatch, ExpertsWithoutRowsAreNeverTouched) {
  for (const Routing routing :
       {Routing::kFirstEmpty, Routing::kMiddleEmpty, Routing::kLastEmpty, Routing::kNone}) {
    MoeCase c;
    c.routing = routing;
    const MoeInputs in(c);
    DeviceMoe want(backend, c, in);
    want.run(backend);
    DeviceMoe device(backend, c, in);
    const std::size_t bytes = static_cast<std::size_t>(c.hidden * c.inter) * sizeof(float);
    void* const forbidden = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(forbidden, MAP_FAILED);
    const DeviceArray<float> poison(backend, c.hidden * c.inter);
    for (int e = 0; e < c.num_experts; ++e) {
      if (std::count(in.choices.begin(), in.choices.end(), e) > 0) continue;
      const void* const data = backend.uses_host_memory() ? forbidden : poison.data();
      device.gate_views[e].data = device.up_views[e].data = device.down_views[e].data = data;
    }
    device.run(backend);
    EXPECT_SAME_BITS(device.out.values(), want.out.values());
    munmap(forbidden, bytes);
  }
}

// Ascending over the choices in FP32, the shared expert last: big values that cancel show it.
TEST_EACH_BACKEND(MoeCombine, AddsInTheOrderOfTheChoices) {
  MoeCase c;
  c.tokens = 3;
  c.hidden = 2;
  c.experts_per_token = 3;
  const MoeInputs in(c);
  DeviceMoe device(backend, c, in);
  const std::vector<float> parts = {1, 1, 0x1p24f, 0x1p24f, -0x1p24f, -0x1p24f};
  const DeviceMatrix expert_out(backend, HostMatrix(f32_spec(), 3, 2, parts));
  device.token_rows.write({0, 1, 2, 1, 2, 0, -1, -1, -1});
  device.combine.expert_out = expert_out.view();
  const DeviceMatrix shared(backend, HostMatrix(f32_spec(), 3, 2, {0.5f, 0, 0.5f, 0, 0.5f, 0}));
  device.combine.shared_out = shared.view();
  run_op(backend, device.combine);
  // (1 + 2^24) rounds to 2^24; a token without rows is the shared expert alone.
  EXPECT_EQ(device.out.values(), (std::vector<float>{0.5f, 0, 1.5f, 1, 0.5f, 0}));
  device.combine.shared_out = {};
  run_op(backend, device.combine);
  EXPECT_EQ(device.out.values(), (std::vector<float>{0, 0, 1, 1, 0, 0}));
}

template <class Params, class Change>
std::string refusal(Backend& backend, Params params, Change change) {
  change(params);
  return refusal_of([&] { run_op(backend, params); });
}

TEST_EACH_BACKEND(MoeDispatch, RefusalsNameTheField) {
  const MoeCase c;
  const MoeInputs in(c);
  DeviceMoe device(backend, c, in);
  device.run(backend);
  using ::testing::HasSubstr;
  const auto dispatch = [&](auto change) { return refusal(backend, device.dispatch, change); };
  using D = MoeDispatchParams;
  EXPECT_THAT(dispatch([](D& p) { p.num_experts = 0; }), HasSubstr("num_experts is 0"));
  EXPECT_THAT(dispatch([](D& p) { p.experts_per_token = 0; }), HasSubstr("experts_per_token is 0"));
  EXPECT_THAT(dispatch([](D& p) { p.tokens = -1; }), HasSubstr("tokens is -1"));
  EXPECT_THAT(dispatch([](D& p) { p.tokens = std::int64_t{1} << 30; }),
              HasSubstr("tokens is 1073741824"));
  EXPECT_THAT(dispatch([](D& p) { p.token_rows = nullptr; }), HasSubstr("token_rows is null"));

  std::vector<MatrixView> views = device.gate_views;
  const auto gate_up = [&](auto change) { return refusal(backend, device.gate_up, change); };
  using G = ExpertGateUpParams;
  EXPECT_THAT(gate_up([](G& p) { p.num_experts = -1; }), HasSubstr("num_experts is -1"));
  EXPECT_THAT(gate_up([](G& p) { p.up_weights = nullptr; }), HasSubstr("up_weights is null"));
  EXPECT_THAT(gate_up([](G& p) { p.x.cols = 95; }), HasSubstr("gate_weights[0].cols is 96"));
  EXPECT_THAT(gate_up([](G& p) { p.out.cols = 32; }), HasSubstr("gate_weights[0].rows is 64"));
  EXPECT_THAT(gate_up([](G& p) { p.swiglu_limit = -1; }), HasSubstr("swiglu_limit is -1"));
  EXPECT_THAT(gate_up([](G& p) { p.row_tokens = nullptr; }), HasSubstr("out.rows is 15"));
  EXPECT_THAT(gate_up([](G& p) { p.expert_offsets = nullptr; }),
              HasSubstr("expert_offsets is null"));
  EXPECT_THAT(gate_up([](G& p) { p.x.format = Format::kMxfp4; }), HasSubstr("x.format is MXFP4"));
  views[3].data = nullptr;
  EXPECT_THAT(gate_up([&](G& p) { p.gate_weights = views.data(); }),
              HasSubstr("gate_weights[3].data is null"));

  const auto down = [&](auto change) { return refusal(backend, device.down, change); };
  using W = ExpertDownParams;
  EXPECT_THAT(down([](W& p) { p.out.rows = 3; }), HasSubstr("out.rows is 3"));
  EXPECT_THAT(down([](W& p) { p.out.cols = 3; }), HasSubstr("down_weights[0].rows is 96"));
  EXPECT_THAT(down([&](W& p) { p.down_weights = views.data(); }),
              HasSubstr("down_weights[0].rows is 64"));

  const auto combine = [&](auto change) { return refusal(backend, device.combine, change); };
  using C = MoeCombineParams;
  EXPECT_THAT(combine([](C& p) { p.expert_out.cols = 5; }), HasSubstr("expert_out.cols is 5"));
  EXPECT_THAT(combine([](C& p) { p.shared_out.rows = 4; }), HasSubstr("shared_out.rows is 4"));
  EXPECT_THAT(combine([](C& p) { p.token_rows = nullptr; }), HasSubstr("token_rows is null"));
  EXPECT_THAT(combine([](C& p) { p.out.format = Format::kNvfp4; }),
              HasSubstr("out.format is NVFP4"));
}

TEST(MoeDispatch, CostCountsOnlyExpertsThatRowsCanReach) {
  MoeCase c;
  c.tokens = 1;
  c.num_experts = 5;
  c.experts_per_token = 2;
  const MoeInputs in(c);
  DeviceMoe device(reference_backend(), c, in);
  const Cost got = cost(device.down);
  EXPECT_EQ(got.flops, 2.0 * 2 * 96 * 64);
  EXPECT_EQ(got.bytes_read, 2 * 64 * 4 + 2 * (96 * 64 * 4) + 6 * 4);
  EXPECT_EQ(got.bytes_written, 2 * 96 * 4);
}

}  // namespace
}  // namespace dsv4::testing
