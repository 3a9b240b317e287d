// The exponential of the CPU backend over every argument that softmax can give it, and its bits on
// every instruction set; squares and scaled rows against FP64.
#include "cpu/row_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu/cpu_test_backends.h"
#include "cpu/targets.h"
#include "testing/comparator.h"
#include "testing/generators.h"

namespace dsv4::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Kernels of every instruction set of this build and machine, the best first.
std::vector<const RowKernels*> all_kernels() {
  std::vector<const RowKernels*> kernels;
  const std::int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_BASELINE_SCALAR;
  for (std::int64_t rest = usable; rest != 0; rest &= rest - 1) {
    kernels.push_back(&row_kernels(rest & -rest));
  }
  return kernels;
}

std::vector<float> exp_of(const RowKernels& kernels, const std::vector<float>& x) {
  std::vector<float> out(x.size());
  kernels.exp_nonpositive(x.data(), static_cast<std::int64_t>(x.size()), out.data());
  return out;
}

// The arguments whose magnitude has the bits [begin, end), `stride` apart.
std::vector<float> negatives(std::uint32_t begin, std::uint32_t end, std::uint32_t stride) {
  std::vector<float> x;
  for (std::uint32_t bits = begin; bits < end; bits += stride) {
    x.push_back(f32_from_bits(bits | kF32SignMask));
  }
  return x;
}

// Error in units of the last place of the exact value.
double ulps(float got, float x) {
  const double want = std::exp(static_cast<double>(x));
  const int exponent = std::ilogb(want);
  return std::fabs(got - want) / std::ldexp(1.0, exponent - 23);
}

// All of -87 .. -2^-26: below 2^-26 the result must be 1, which the next test sees.
TEST(ExpNonpositive, KeepsItsDocumentedErrorEverywhere) {
  const RowKernels& kernels = *all_kernels().front();
  const std::uint32_t last = f32_bits(87.0f) + 1;
  double largest = 0;
  for (std::uint32_t begin = f32_bits(0x1p-26f); begin < last; begin += 1 << 20) {
    const std::vector<float> x = negatives(begin, std::min(begin + (1 << 20), last), 1);
    const std::vector<float> got = exp_of(kernels, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double error = ulps(got[i], x[i]);
      if (!(error <= largest)) largest = error;
    }
  }
  EXPECT_LE(largest, 1.011);  // lane_math-inl.h says so
}

TEST(ExpNonpositive, IsExactAtItsEnds) {
  for (const RowKernels* kernels : all_kernels()) {
    EXPECT_EQ(exp_of(*kernels, {0.0f, -0.0f, -0x1p-26f, -1e-45f}), std::vector<float>(4, 1.0f));
    EXPECT_EQ(exp_of(*kernels, {std::nextafter(-87.0f, -88.0f), -104.0f, -3e38f, -kInf}),
              std::vector<float>(4, 0.0f));
    EXPECT_GT(exp_of(*kernels, {-87.0f})[0], 0x1p-126f);
    EXPECT_TRUE(std::isnan(exp_of(*kernels, {std::nanf("")})[0]));
  }
}

TEST(ExpNonpositive, HasTheSameBitsOnEveryInstructionSet) {
  const std::vector<float> x = negatives(0, kF32InfinityBits + 1, 997);
  const std::vector<const RowKernels*> kernels = all_kernels();
  const std::vector<float> want = exp_of(*kernels.back(), x);
  for (const RowKernels* other : kernels) EXPECT_SAME_BITS(exp_of(*other, x), want);
}

TEST(RowMath, SquaresAndScaledRowsHaveTheSameBitsOnEveryInstructionSet) {
  for (const std::int64_t n : {1, 15, 16, 17, 31, 32, 33, 4096, 4099}) {
    SCOPED_TRACE(n);
    const std::vector<float> x = testing::normal_values(1, n);
    const std::vector<float> weight = testing::normal_values(2, n);
    double want = 0;
    for (float value : x) want += double{value} * value;
    const double first = row_kernels(HWY_BASELINE_SCALAR).square_sum(x.data(), n);
    // Each term passes through n / 16 + 4 sums at most, and a product.
    EXPECT_NEAR(first, want, want * static_cast<double>(2 * n + 6) * 0x1p-53);
    for (const RowKernels* kernels : all_kernels()) {
      EXPECT_EQ(kernels->square_sum(x.data(), n), first);
      std::vector<float> got(x.size());
      kernels->scale_row(x.data(), 0.3, weight.data(), n, got.data());
      for (std::size_t k = 0; k < x.size(); ++k) {
        EXPECT_EQ(got[k], static_cast<float>(x[k] * 0.3 * weight[k])) << k;
      }
      kernels->scale_row(x.data(), 0.3, nullptr, n, got.data());
      for (std::size_t k = 0; k < x.size(); ++k) {
        EXPECT_EQ(got[k], static_cast<float>(x[k] * 0.3)) << k;
      }
    }
  }
}

TEST(ConversionGrain, IsNeverNothingAndLongInLargeMatrices) {
  EXPECT_EQ(conversion_grain(0, 4096), 1);
  EXPECT_EQ(conversion_grain(1, 1 << 20), 1);
  EXPECT_EQ(conversion_grain(255, 4096), 1);
  EXPECT_EQ(conversion_grain(256, 4096), 2);
  EXPECT_EQ(conversion_grain(4096, 4096), 32);
  EXPECT_EQ(conversion_grain(100, 16), 256);
  EXPECT_EQ(conversion_grain(100, 4096, 16384), 4);
}

}  // namespace
}  // namespace dsv4::cpu
