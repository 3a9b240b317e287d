// E8M0 and the two rules that choose a block's power of two: exact at every boundary.
#include "numerics/e8m0.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/bf16.h"

namespace dsv4 {
namespace {

static_assert(decode_e8m0(127) == 1.0f && decode_e8m0(0) == 0x1p-127f &&
              decode_e8m0(254) == 0x1p127f);
static_assert(e8m0_ceil(1.0f) == 127 && e8m0_ceil(1.0000001f) == 128);
static_assert(e4m3_block_exponent(448.0f) == 127 && e4m3_block_exponent(449.0f) == 128);
static_assert(mxfp4_block_exponent(6.0f) == 127 && mxfp4_block_exponent(0.0f) == 1);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The smallest E8M0 code in [0, 254] with largest_code * 2^k >= amax, by search in double.
int smallest_sufficient(double amax, double largest_code) {
  int code = 0;
  while (code < 254 && std::ldexp(largest_code, code - 127) < amax) ++code;
  return code;
}

TEST(E8m0, DecodesEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(decode_e8m0(static_cast<std::uint8_t>(code)), std::ldexp(1.0, code - 127)) << code;
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(kE8m0Nan)));
}

TEST(E8m0, CeilIsExactAroundEveryPowerOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float power = decode_e8m0(static_cast<std::uint8_t>(code));
    EXPECT_EQ(e8m0_ceil(power), code);
    EXPECT_EQ(e8m0_ceil(std::nextafter(power, 0.0f)), code) << "one ulp below";
    EXPECT_EQ(e8m0_ceil(std::nextafter(power, kInfinity)), std::min(code + 1, 254)) << "one above";
  }
}

TEST(E8m0, CeilAgreesWithSearchOnEveryBf16) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float x = decode_bf16(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(e8m0_ceil(x), smallest_sufficient(x, 1.0)) << std::hexfloat << x;
  }
}

TEST(E8m0, CeilClampsAtBothEnds) {
  EXPECT_EQ(e8m0_ceil(0.0f), 0);
  EXPECT_EQ(e8m0_ceil(-0.0f), 0);
  EXPECT_EQ(e8m0_ceil(-1.0f), 0);
  EXPECT_EQ(e8m0_ceil(-kInfinity), 0);
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::max()), kE8m0Max);
  EXPECT_EQ(e8m0_ceil(kInfinity), kE8m0Max);
  EXPECT_EQ(e8m0_ceil(std::numeric_limits<float>::quiet_NaN()), kE8m0Nan);
  EXPECT_EQ(e8m0_ceil(-std::numeric_limits<float>::quiet_NaN()), kE8m0Nan);
}

TEST(BlockExponent, E4m3IsExactOneUlpEitherSideOfEveryBoundary) {
  for (int k = -149; k <= 119; ++k) {
    const float boundary = std::ldexp(448.0f, k);
    for (const float amax :
         {std::nextafter(boundary, 0.0f), boundary, std::nextafter(boundary, kInfinity)}) {
      const float floored = std::fmax(amax, 1e-4f);
      ASSERT_EQ(e4m3_block_exponent(amax), smallest_sufficient(floored, 448.0))
          << std::hexfloat << amax;
    }
  }
  EXPECT_EQ(e4m3_block_exponent(0.0f), 127 - 22) << "2^-22 * 448 = 1.07e-4 is the first above 1e-4";
  EXPECT_EQ(e4m3_block_exponent(std::numeric_limits<float>::max()), 127 + 120);
}

TEST(BlockExponent, Mxfp4IsExactOneUlpEitherSideOfEveryBoundary) {
  for (int k = -149; k <= 125; ++k) {
    const float boundary = std::ldexp(6.0f, k);
    for (const float amax :
         {std::nextafter(boundary, 0.0f), boundary, std::nextafter(boundary, kInfinity)}) {
      const float floored = std::fmax(amax, 6.0f * 0x1p-126f);
      ASSERT_EQ(mxfp4_block_exponent(amax), smallest_sufficient(floored, 6.0))
          << std::hexfloat << amax;
    }
  }
  EXPECT_EQ(mxfp4_block_exponent(0.0f), 1);
  EXPECT_EQ(mxfp4_block_exponent(std::numeric_limits<float>::max()), 127 + 126);
}

TEST(BlockExponent, BothAgreeWithSearchOnEveryBf16) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float x = decode_bf16(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(e4m3_block_exponent(x), smallest_sufficient(std::fmax(x, 1e-4f), 448.0));
    ASSERT_EQ(mxfp4_block_exponent(x), smallest_sufficient(std::fmax(x, 6.0f * 0x1p-126f), 6.0));
  }
}

// DeepSeek's kernels form amax * FP32(1 / max) and take the ceiling from its exponent bits. That
// product is rounded; over a whole binade, hence over all of them, it never changes the result.
TEST(BlockExponent, EqualsCeilOfTheRoundedQuotientAndProduct) {
  constexpr float kE4m3Reciprocal = 1.0f / 448.0f;
  constexpr float kE2m1Reciprocal = 1.0f / 6.0f;
  for (std::uint32_t mantissa = 0; mantissa < (1u << 23); ++mantissa) {
    const float amax = f32_from_bits((130u << 23) | mantissa);
    ASSERT_EQ(e4m3_block_exponent(amax), e8m0_ceil(amax * kE4m3Reciprocal)) << mantissa;
    ASSERT_EQ(e4m3_block_exponent(amax), e8m0_ceil(amax / 448.0f)) << mantissa;
    ASSERT_EQ(mxfp4_block_exponent(amax), e8m0_ceil(amax * kE2m1Reciprocal)) << mantissa;
    ASSERT_EQ(mxfp4_block_exponent(amax), e8m0_ceil(amax / 6.0f)) << mantissa;
  }
}

// Why the bits: near 20 an FP32 logarithm cannot hold the one ulp by which amax exceeds 448 * 2^20.
TEST(BlockExponent, DiffersFromTheCeilOfAnFp32Logarithm) {
  const float amax = std::nextafter(std::ldexp(448.0f, 20), kInfinity);
  EXPECT_EQ(e4m3_block_exponent(amax), 127 + 21);
  EXPECT_EQ(std::ceil(std::log2(amax / 448.0f)), 20.0f);
}

}  // namespace
}  // namespace dsv4
