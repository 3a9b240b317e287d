// Every op that the README's table gives to CUDA is there, in all its formats. Without this a lost
// one would only make its tests skip themselves. Needs a GPU, no memory of it: `supports` looks at
// shapes and formats.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "cuda/cuda_test.h"
#include "numerics/fp8_block.h"
#include "testing/test_matrix.h"

namespace dsv4::cuda {
namespace {

using testing::HostMatrix;
using testing::MatrixSpec;

class CudaOpsTest : public CudaTest {
 protected:
  template <class Params>
  void expect_supported(const Params& params) {
    check(params);
    const Support support = backend().supports(params);
    EXPECT_TRUE(support.ok) << Params::kOpName << ": " << support.reason;
  }
};

// Expects `params` to every format: NVFP4 with dynamic and static global scales, MXFP4, FP8; in
// both roundings, and with the number of rows on the device.
template <class Params, class Expect>
void for_each_output(Params params, const Expect& expect) {
  const float global_scale = 1;
  const std::int32_t zero = 0;
  struct Output {
    MatrixSpec spec;
    bool is_static = false;
  };
  for (const Output& output :
       {Output{testing::nvfp4_spec(true)}, Output{testing::nvfp4_spec(true), true},
        Output{testing::nvfp4_spec(), true}, Output{testing::mxfp4_spec()},
        Output{testing::fp8_spec(1, kActivationQuantBlock, DType::kE8M0)}}) {
    SCOPED_TRACE("to " + output.spec.name + (output.is_static ? ", static" : ""));
    HostMatrix out(output.spec, 1, 160);
    params.out = out.mutable_view();
    params.static_global_scales = output.is_static ? &global_scale : nullptr;
    const bool by_row = output.is_static && output.spec.row_global_scales;
    params.global_scale_idx = by_row ? &zero : nullptr;
    for (const E2m1Rounding rounding : {E2m1Rounding::kNearestEven, E2m1Rounding::kHalfStep}) {
      params.rounding = rounding;
      params.row_count = nullptr;
      expect(params);
      params.row_count = &zero;
      expect(params);
    }
  }
}

TEST_F(CudaOpsTest, QuantizeAndSwigluQuantize) {
  const std::int32_t zero = 0;
  for (const MatrixSpec& spec : {testing::f32_spec(), testing::bf16_spec()}) {
    SCOPED_TRACE("from " + spec.name);
    const HostMatrix x(spec, 1, 160);
    QuantizeParams quantize;
    quantize.x = x.view();
    quantize.row_idx = &zero;
    for_each_output(quantize, [&](const QuantizeParams& p) { expect_supported(p); });
    SwigluQuantizeParams swiglu;
    swiglu.gate = swiglu.up = x.view();
    for_each_output(swiglu, [&](const SwigluQuantizeParams& p) { expect_supported(p); });
  }
}

TEST_F(CudaOpsTest, ExpertPackGateUpAndDown) {
  constexpr std::int64_t kRows = 5, kIn = 160, kOut = 96;
  const std::int32_t zero = 0;
  const float global_scale = 1;
  std::byte packed_bytes{};
  for (const MatrixSpec& weights :
       {testing::nvfp4_spec(), testing::nvfp4_spec(true), testing::mxfp4_spec()}) {
    SCOPED_TRACE(weights.name);
    const HostMatrix matrix(weights, kOut, kIn);
    const MatrixView view = matrix.view();
    ExpertPackParams pack;
    pack.weights = &view;
    pack.num_experts = 1;
    pack.out = &packed_bytes;
    expect_supported(pack);
    pack.up_weights = &view;
    expect_supported(pack);
    EXPECT_GT(backend().packed_bytes(pack), 0);

    const HostMatrix x(testing::bf16_spec(), kRows, kIn);
    const PackedExperts packed = {&packed_bytes, weights.format, kOut, kIn};
    for (const MatrixSpec& spec :
         {testing::bf16_spec(), testing::f32_spec(), testing::nvfp4_spec(true)}) {
      SCOPED_TRACE("out " + spec.name);
      HostMatrix out(spec, kRows, kOut);
      ExpertGateUpParams gate_up;
      gate_up.x = x.view();
      gate_up.packed = packed;
      gate_up.num_experts = 1;
      gate_up.expert_offsets = &zero;
      gate_up.out = out.mutable_view();
      if (spec.format == Format::kNvfp4) gate_up.out_global_scales = &global_scale;
      expect_supported(gate_up);
      gate_up.row_tokens = &zero;
      gate_up.row_weights = &global_scale;
      expect_supported(gate_up);
      if (spec.format == Format::kNvfp4) continue;
      ExpertDownParams down;
      down.x = x.view();
      down.packed = packed;
      down.num_experts = 1;
      down.expert_offsets = &zero;
      down.out = out.mutable_view();
      expect_supported(down);
    }
  }
}

}  // namespace
}  // namespace dsv4::cuda
