// What the op quantize lacks on CUDA; needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace dsv4::testing
