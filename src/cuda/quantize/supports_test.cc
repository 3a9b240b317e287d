// What the op quantize lacks on CUDA; needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "cuda/quantize/quantize.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {
namespace {

TEST(CudaSupportsQuantize, AllButFourOverSix) {
  const HostMatrix x(bf16_spec(), 2, 64);
  HostMatrix out(nvfp4_spec(true), 2, 64);
  const float global_scale = 1;
  QuantizeParams params{x.view(), out.mutable_view()};
  params.static_global_scales = &global_scale;
  EXPECT_TRUE(cuda::supports_quantize(params).ok);
  params.four_over_six = true;
  EXPECT_THAT(cuda::supports_quantize(params).reason, ::testing::HasSubstr("four over six"));
}

// Kernels count rows and strides in 32 bits.
TEST(CudaSupportsQuantize, RowsAndStridesBelow2To31) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const HostMatrix x(bf16_spec(), 2, 64);
  HostMatrix out(nvfp4_spec(true), 2, 64);
  const QuantizeParams quantize{x.view(), out.mutable_view()};
  SwigluQuantizeParams swiglu;
  swiglu.gate = swiglu.up = x.view();
  swiglu.out = out.mutable_view();
  for (const std::int64_t size : {kMost, kMost + 1}) {
    const auto expect = [&](auto params, const auto& supports, const auto& change) {
      change(params);
      const Support support = supports(params);
      EXPECT_EQ(support.ok, size == kMost) << size;
      if (!support) {
        EXPECT_THAT(support.reason, ::testing::HasSubstr("must be at most 2147483647"));
      }
    };
    const auto expect_both = [&](const auto& change) {
      expect(quantize, cuda::supports_quantize, change);
      expect(swiglu, cuda::supports_swiglu_quantize, change);
    };
    expect_both([&](auto& p) { p.out.rows = size; });
    expect_both([&](auto& p) { p.out.row_stride = size; });
    expect_both([&](auto& p) { p.out.scale_stride = size; });
    expect(quantize, cuda::supports_quantize, [&](auto& p) { p.x.rows = size; });
    expect(quantize, cuda::supports_quantize, [&](auto& p) { p.x.row_stride = size; });
    expect(swiglu, cuda::supports_swiglu_quantize, [&](auto& p) { p.gate.row_stride = size; });
    expect(swiglu, cuda::supports_swiglu_quantize, [&](auto& p) { p.up.row_stride = size; });
  }
}

}  // namespace
}  // namespace dsv4::testing
