// MXFP4 and E4M3 blocks: the smallest sufficient power of two, exact division, hard blocks.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"

namespace dsv4 {
namespace {

using Mxfp4Input = std::array<float, kMxfp4QuantBlock>;
using Mxfp4Codes = std::array<std::uint8_t, kMxfp4BlockBytes>;

static_assert(decode_mxfp4(0xF, 127) == -6.0f && decode_mxfp4(0x1, 0) == 0x1p-128f);
static_assert(decode_e4m3_scaled(0x7E, 128) == 896.0f);

// Values of every magnitude, signs mixed, largest first so that amax is known.
std::vector<float> spread_values(int n, float largest, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> x = {largest};
  while (static_cast<int>(x.size()) < n) {
    const auto word = static_cast<std::uint32_t>(generator());
    const float fraction = static_cast<float>(word >> 8) * 0x1p-24f;
    const int shift = static_cast<int>(word & 15u);
    x.push_back(std::ldexp((word & 128u) != 0 ? -fraction : fraction, -shift) * largest);
  }
  return x;
}

TEST(Mxfp4, ZeroBlockHasTheSmallestScaleAndKeepsSigns) {
  Mxfp4Input x{};
  x[5] = -0.0f;
  Mxfp4Codes codes{};
  EXPECT_EQ(encode_mxfp4_block(x.data(), codes.data()), 1) << "2^-126";
  for (int i = 0; i < kMxfp4QuantBlock; ++i) {
    EXPECT_EQ(unpack_e2m1(codes.data(), i), i == 5 ? 8 : 0) << i;
  }
}

TEST(Mxfp4, OneUlpAboveSixTimesAPowerDoublesTheScale) {
  for (int k = -125; k <= 124; ++k) {
    Mxfp4Input x{};
    Mxfp4Codes codes{};
    x[31] = std::ldexp(-6.0f, k);
    ASSERT_EQ(encode_mxfp4_block(x.data(), codes.data()), 127 + k);
    ASSERT_EQ(unpack_e2m1(codes.data(), 31), 15);
    x[31] = std::nextafter(x[31], -std::numeric_limits<float>::infinity());
    ASSERT_EQ(encode_mxfp4_block(x.data(), codes.data()), 128 + k);
    ASSERT_EQ(unpack_e2m1(codes.data(), 31), 8 | 5) << "3.0000002";
  }
}

TEST(Mxfp4, TiesGoToEvenAndSubnormalsToZero) {
  Mxfp4Input x{};
  const std::array<float, 9> values = {6.0f,  0.25f, 0.75f, 1.25f, 1.75f,
                                       -2.5f, -3.5f, -5.0f, 1e-42f};
  const std::array<int, 9> want = {7, 0, 2, 2, 4, 8 | 4, 8 | 6, 8 | 6, 0};
  std::copy(values.begin(), values.end(), x.begin());
  Mxfp4Codes codes{};
  EXPECT_EQ(encode_mxfp4_block(x.data(), codes.data()), 127);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(unpack_e2m1(codes.data(), i), want[i]) << values[i];
}

TEST(Mxfp4, SubnormalBlockKeepsWhatItsSmallestScaleCanHold) {
  Mxfp4Input x{};
  x[0] = 0x1p-127f;   // half of 2^-126
  x[1] = -0x1p-129f;  // an eighth, below the tie at a quarter
  Mxfp4Codes codes{};
  const std::uint8_t scale = encode_mxfp4_block(x.data(), codes.data());
  EXPECT_EQ(scale, 1);
  EXPECT_EQ(decode_mxfp4(unpack_e2m1(codes.data(), 0), scale), x[0]);
  EXPECT_EQ(unpack_e2m1(codes.data(), 1), 8);
}

TEST(Mxfp4, EveryCodeUnderEveryScaleOfTheRuleSurvives) {
  for (int scale = 1; scale <= 253; ++scale) {
    const auto block_scale = static_cast<std::uint8_t>(scale);
    for (std::uint8_t code = 0; code < 16; ++code) {
      const float value = decode_mxfp4(code, block_scale);
      if (!std::isfinite(value)) continue;  // 6 * 2^126 leaves FP32
      ASSERT_EQ(encode_mxfp4(value, block_scale), code) << scale;
    }
  }
}

TEST(Mxfp4, RandomBlocksNeverErrByMoreThanHalfTheGap) {
  for (int i = 0; i < 2000; ++i) {
    const float largest = std::ldexp(1.0f + static_cast<float>(i % 97) / 97.0f, i % 200 - 100);
    const std::vector<float> x = spread_values(kMxfp4QuantBlock, largest, i);
    Mxfp4Codes codes{};
    const std::uint8_t scale = encode_mxfp4_block(x.data(), codes.data());
    for (int j = 0; j < kMxfp4QuantBlock; ++j) {
      const float got = decode_mxfp4(unpack_e2m1(codes.data(), j), scale);
      // Nothing saturates, so the widest gap is from 4 to 6 in units of the scale.
      ASSERT_LE(std::fabs(got - x[j]), decode_e8m0(scale)) << i << " " << j;
    }
  }
}

TEST(E4m3Block, ZeroBlockUsesTheAmaxFloor) {
  for (const int n : {1, kCacheRowQuantBlock, kActivationQuantBlock}) {
    std::vector<float> x(n, 0.0f);
    x[0] = -0.0f;
    std::vector<std::uint8_t> codes(n, 0xAA);
    EXPECT_EQ(encode_e4m3_block(x.data(), n, codes.data()), 127 - 22);
    EXPECT_EQ(codes[0], 0x80);
    for (int i = 1; i < n; ++i) EXPECT_EQ(codes[i], 0);
  }
  EXPECT_EQ(encode_e4m3_block(nullptr, 0, nullptr), 127 - 22) << "no elements, nothing written";
}

TEST(E4m3Block, OneUlpAboveTheLargestCodeDoublesTheScale) {
  for (int k = -22; k <= 119; ++k) {
    std::array<float, kCacheRowQuantBlock> x{};
    std::array<std::uint8_t, kCacheRowQuantBlock> codes{};
    x[63] = std::ldexp(448.0f, k);
    ASSERT_EQ(encode_e4m3_block(x.data(), kCacheRowQuantBlock, codes.data()), 127 + k);
    ASSERT_EQ(codes[63], 0x7E);
    x[63] = std::nextafter(x[63], std::numeric_limits<float>::infinity());
    ASSERT_EQ(encode_e4m3_block(x.data(), kCacheRowQuantBlock, codes.data()), 128 + k);
    ASSERT_EQ(codes[63], 0x76) << "224 under the doubled scale";
  }
}

TEST(E4m3Block, AHugeOutlierLeavesSmallValuesToSubnormalsAndZero) {
  std::array<float, 4> x = {448.0f * 1024.0f, 1024.0f * 0x1p-9f, 1.0f, -1e-30f};
  std::array<std::uint8_t, 4> codes{};
  EXPECT_EQ(encode_e4m3_block(x.data(), 4, codes.data()), 137);
  EXPECT_EQ(codes, (std::array<std::uint8_t, 4>{0x7E, 0x01, 0x00, 0x80}))
      << "1 / 1024 is the tie between 0 and 2^-9";
}

TEST(E4m3Block, DecodedValuesAreExactInBf16AndEncodeToThemselves) {
  for (int i = 0; i < 500; ++i) {
    const float largest = std::ldexp(1.0f + static_cast<float>(i % 89) / 89.0f, i % 120 - 40);
    const std::vector<float> x = spread_values(kActivationQuantBlock, largest, 7000 + i);
    std::array<std::uint8_t, kActivationQuantBlock> codes{};
    std::array<float, kActivationQuantBlock> once{}, twice{};
    std::uint8_t scale = encode_e4m3_block(x.data(), kActivationQuantBlock, codes.data());
    decode_e4m3_block(codes.data(), kActivationQuantBlock, scale, once.data());
    // The second scale may be half the first (amax rounded down to 224 steps); the values agree.
    scale = encode_e4m3_block(once.data(), kActivationQuantBlock, codes.data());
    decode_e4m3_block(codes.data(), kActivationQuantBlock, scale, twice.data());
    for (int j = 0; j < kActivationQuantBlock; ++j) {
      ASSERT_EQ(f32_bits(round_bf16(once[j])), f32_bits(once[j])) << i << " " << j;
      ASSERT_EQ(f32_bits(twice[j]), f32_bits(once[j])) << i << " " << j;
    }
  }
}

TEST(E4m3Block, RandomBlocksErrByAtMostHalfAStep) {
  for (int i = 0; i < 500; ++i) {
    const float largest = std::ldexp(1.0f + static_cast<float>(i % 89) / 89.0f, i % 120 - 10);
    const std::vector<float> x = spread_values(kActivationQuantBlock, largest, 9000 + i);
    std::array<std::uint8_t, kActivationQuantBlock> codes{};
    const std::uint8_t scale = encode_e4m3_block(x.data(), kActivationQuantBlock, codes.data());
    for (int j = 0; j < kActivationQuantBlock; ++j) {
      const double error = std::fabs(double{decode_e4m3_scaled(codes[j], scale)} - double{x[j]});
      // 2^-4 of a normal value, 2^-10 steps among the subnormals.
      const double bound =
          std::fmax(std::fabs(x[j]) * 0x1p-4, double{decode_e8m0(scale)} * 0x1p-10);
      ASSERT_LE(error, bound) << i << " " << j;
    }
  }
}

TEST(E4m3Block, BadInputStaysDefined) {
  // Callers refuse NaN and infinity; if one slips through it must not be undefined behaviour.
  std::array<float, 2> x = {std::numeric_limits<float>::quiet_NaN(), 1.0f};
  std::array<std::uint8_t, 2> codes{};
  encode_e4m3_block(x.data(), 2, codes.data());
  EXPECT_EQ(codes[0], 0x7F) << "NaN stays NaN";
  x[0] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_e4m3_block(x.data(), 2, codes.data()), 247);
  EXPECT_EQ(codes[0], 0xFE);
}

}  // namespace
}  // namespace dsv4
