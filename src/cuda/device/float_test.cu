// Floating-point instructions against exact values.
#include <cmath>
#include <limits>

#include "cuda/device/apply_test.h"
#include "cuda/device/float.h"
#include "numerics/bits.h"

namespace dsv4::cuda {
namespace {

using DeviceFloat = CudaTest;

struct Reciprocal {
  using Input = float;
  using Output = float;
  __device__ float operator()(float x) const { return rcp_approx_ftz(x); }
};

// The ISA's bound.
void expect_reciprocal(float x, float got) {
  const double want = 1.0 / x;
  ASSERT_LE(std::abs(got - want), std::abs(want) * 0x1p-23) << std::hexfloat << x;
}

TEST_F(DeviceFloat, ReciprocalsOfEveryMantissa) {
  std::vector<float> in;
  for (std::uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
    in.push_back(f32_from_bits(127u << 23 | mantissa));
  }
  const std::vector<float> got = apply_on_device<Reciprocal>(backend(), in);
  for (std::size_t i = 0; i < in.size() && !HasFailure(); ++i) expect_reciprocal(in[i], got[i]);
}

// Subnormals count as zero, as inputs and as results.
TEST_F(DeviceFloat, ReciprocalsOfEveryExponent) {
  std::vector<float> in;
  for (std::uint32_t exponent = 0; exponent < 512; ++exponent) {  // with the sign
    for (const std::uint32_t mantissa : {0u, 0x400000u, 0x7FFFFFu}) {
      in.push_back(f32_from_bits(exponent << 23 | mantissa));
    }
  }
  const std::vector<float> got = apply_on_device<Reciprocal>(backend(), in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    SCOPED_TRACE(in[i]);
    if (std::isnan(in[i])) {
      EXPECT_TRUE(std::isnan(got[i]));
      continue;
    }
    EXPECT_EQ(std::signbit(got[i]), std::signbit(in[i]));
    if (std::abs(in[i]) < std::numeric_limits<float>::min()) {
      EXPECT_TRUE(std::isinf(got[i]));
    } else if (std::abs(in[i]) > 0x1p126f) {
      EXPECT_EQ(got[i], 0);
    } else {
      expect_reciprocal(in[i], got[i]);
    }
  }
}

}  // namespace
}  // namespace dsv4::cuda
