// SiLU against long double, at the edges of its range and over a dense sample; SwiGLU's steps.
#include "numerics/silu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "numerics/amax.h"

namespace dsv4 {
namespace {

constexpr float kLow = -0x1.5d589ep+6f;  // -126 ln 2
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// |got - x / (1 + e^-x)| in units of the last place of the exact value.
double error_in_ulps(float x, float got) {
  const long double exact = x / (1 + std::exp(-static_cast<long double>(x)));
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int last_place = std::max(exponent - 24, -149);
  return static_cast<double>(std::ldexp(std::fabs(got - exact), -last_place));
}

void expect_within_the_bound(float x) {
  const float got = silu(x);
  // 3 units is the bound that the header states.
  ASSERT_LE(error_in_ulps(x, got), 3.0) << std::hexfloat << x << " gives " << got;
}

TEST(Silu, StaysWithinThreeUlpsOfLongDouble) {
  std::mt19937_64 generator(3);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(generator());
    // Any bits, and evenly over where it bends.
    const float any = f32_from_bits(bits);
    if (is_finite(any) && any > kLow) expect_within_the_bound(any);
    expect_within_the_bound(static_cast<float>(bits) * 0x1p-32f * 40.0f - 24.0f);
  }
}

TEST(Silu, EdgesOfTheRange) {
  for (const float edge : {-87.0f, kSiluHigh, 0.0f}) {
    expect_within_the_bound(edge);
    expect_within_the_bound(std::nextafter(edge, 100.0f));
    expect_within_the_bound(std::nextafter(edge, -100.0f));
  }
  // Where the integer part of x log2(e) steps.
  for (int n = -125; n <= 125; ++n) {
    const float step = (static_cast<float>(n) + 0.5f) * 0x1.62e43p-1f;
    for (const float x : {std::nextafter(step, -kInfinity), step, std::nextafter(step, kInfinity)})
      expect_within_the_bound(x);
  }
}

TEST(Silu, BelowItsRangeItIsMinusZero) {
  EXPECT_GT(silu(-87.33f), -1.1e-36f);
  for (const float x : {-87.35f, kSiluLow, std::nextafter(kSiluLow, -100.0f), -1e30f,
                        -std::numeric_limits<float>::max()}) {
    EXPECT_EQ(f32_bits(silu(x)), kF32SignMask) << x;
  }
}

TEST(Silu, AboveItsRangeItIsItsArgument) {
  for (const float x :
       {std::nextafter(kSiluHigh, 100.0f), 1e30f, std::numeric_limits<float>::max(), kInfinity}) {
    EXPECT_EQ(silu(x), x);
  }
}

TEST(Silu, ZerosKeepTheirSignAndSubnormalsAreHalved) {
  EXPECT_EQ(f32_bits(silu(0.0f)), 0u);
  EXPECT_EQ(f32_bits(silu(-0.0f)), kF32SignMask);
  EXPECT_EQ(f32_bits(silu(f32_from_bits(0x00000100u))), 0x00000080u);
  EXPECT_EQ(f32_bits(silu(f32_from_bits(0x80000100u))), 0x80000080u);
}

TEST(Silu, NanAndMinusInfinityGiveNan) {
  for (const std::uint32_t bits : {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu}) {
    EXPECT_TRUE(std::isnan(silu(f32_from_bits(bits)))) << std::hex << bits;
  }
  EXPECT_TRUE(std::isnan(silu(-kInfinity)));  // infinity over infinity
}

// A few bits written down, so that a build that contracts or reorders shows.
TEST(Silu, BitsAreTheSameOnEveryHost) {
  EXPECT_EQ(f32_bits(silu(1.0f)), 0x3F3B26A8u);
  EXPECT_EQ(f32_bits(silu(-1.0f)), 0xBE89B2B0u);
  EXPECT_EQ(f32_bits(silu(-16.7025f)), 0xB579EE05u);
  EXPECT_EQ(f32_bits(silu(10.0f)), 0x411FFE24u);
  // Of all results of a million arguments, by one multiplier.
  std::uint32_t hash = 0;
  for (int i = -500'000; i < 500'000; ++i) {
    hash = hash * 31 + f32_bits(silu(static_cast<float>(i) * 0x1p-12f));
  }
  EXPECT_EQ(hash, 0x90A45449u);
}

TEST(Swiglu, ClampsBeforeTheActivation) {
  EXPECT_EQ(swiglu(9, 1, 2, 1), silu(2.0f));
  EXPECT_EQ(swiglu(-9, 1, 2, 1), silu(-9.0f));
  EXPECT_EQ(swiglu(1, 9, 2, 1), silu(1.0f) * 2);
  EXPECT_EQ(swiglu(1, -9, 2, 1), silu(1.0f) * -2);
  EXPECT_EQ(swiglu(9, -9, 0, 1), silu(9.0f) * -9);
}

TEST(Swiglu, RoundsAfterEachProduct) {
  EXPECT_EQ(swiglu(1, 0.1f, 0, 0.7f), (silu(1.0f) * 0.1f) * 0.7f);
  EXPECT_NE(swiglu(1, 0.1f, 0, 0.7f), silu(1.0f) * (0.1f * 0.7f));
}

TEST(Swiglu, NanStaysNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(swiglu(nan, 1, 2, 1)));
  EXPECT_TRUE(std::isnan(swiglu(1, nan, 2, 1)));
}

}  // namespace
}  // namespace dsv4
