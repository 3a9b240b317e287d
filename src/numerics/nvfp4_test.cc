// NVFP4 blocks: the rules of scale and order, and the blocks that broke others.
#include "numerics/nvfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "numerics/bf16.h"

namespace dsv4 {
namespace {

constexpr E2m1Rounding kNearestEven = E2m1Rounding::kNearestEven;
constexpr E2m1Rounding kHalfStep = E2m1Rounding::kHalfStep;

static_assert(nvfp4_global_scale(2688.0f) == 1.0f && nvfp4_global_scale(0.0f) == 1.0f);
static_assert(nvfp4_block_scale(2688.0f, 1.0f) == 0x7E && nvfp4_block_scale(6.0f, 1.0f) == 0x38);
static_assert(decode_nvfp4(0xF, 0x7E, 1.0f) == -2688.0f);

struct Block {
  std::array<std::uint8_t, kNvfp4BlockBytes> codes;
  std::uint8_t scale;

  int code(int i) const { return unpack_e2m1(codes.data(), i); }
};

Block encode(const std::array<float, kNvfp4QuantBlock>& x, float global_scale,
             E2m1Rounding rounding = kNearestEven) {
  Block block{};
  block.scale = encode_nvfp4_block(x.data(), global_scale, block.codes.data(), rounding);
  return block;
}

TEST(Nvfp4, WorksAtCompileTime) {
  constexpr std::uint8_t kScale = [] {
    float x[kNvfp4QuantBlock] = {6.0f, -3.0f};
    std::uint8_t codes[kNvfp4BlockBytes] = {};
    return encode_nvfp4_block(x, 1.0f, codes);
  }();
  static_assert(kScale == 0x38);
}

TEST(Nvfp4, ZeroBlockGivesZeroScaleAndUnsignedZeroCodes) {
  std::array<float, kNvfp4QuantBlock> x{};
  x[3] = -0.0f;
  for (const float global_scale : {1.0f, 1e-3f / 2688.0f, 1e30f, 0.0f}) {
    const Block block = encode(x, global_scale);
    EXPECT_EQ(block.scale, 0) << global_scale;
    for (const std::uint8_t byte : block.codes) EXPECT_EQ(byte, 0);
  }
}

TEST(Nvfp4, BlockScaleUnderflowDropsTheSignToo) {
  // amax / (6 g) below 2^-10 rounds to a zero block scale although the block is not zero.
  std::array<float, kNvfp4QuantBlock> x{};
  x[0] = -6.0f * 0x1p-11f;
  const Block block = encode(x, 1.0f);
  EXPECT_EQ(block.scale, 0);
  EXPECT_EQ(block.code(0), 0);
  x[0] = -6.0f * 0x1p-10f;  // the tie goes to zero, one ulp above to the smallest scale
  EXPECT_EQ(encode(x, 1.0f).scale, 0);
  x[0] = std::nextafter(x[0], -1.0f);
  EXPECT_EQ(encode(x, 1.0f).scale, 1);
  EXPECT_EQ(encode(x, 1.0f).code(0), 8 | 5) << "3.0000002 in units of 2^-9";
}

TEST(Nvfp4, MinusZeroKeepsItsSignInABlockThatIsNotZero) {
  std::array<float, kNvfp4QuantBlock> x{};
  x[0] = 6.0f;
  x[1] = -0.0f;
  x[2] = -1e-30f;
  for (const E2m1Rounding rounding : {kNearestEven, kHalfStep}) {
    const Block block = encode(x, 1.0f, rounding);
    EXPECT_EQ(block.code(0), 7);
    EXPECT_EQ(block.code(1), 8);
    EXPECT_EQ(block.code(2), 8);
    EXPECT_EQ(block.code(3), 0);
  }
}

TEST(Nvfp4, TheTensorsLargestValueGetsTheLargestScaleAndCode) {
  // From the smallest amax whose global scale is normal to the largest FP32.
  for (float tensor_amax = 0x1.8p-114f; std::isfinite(tensor_amax); tensor_amax *= 1.37f) {
    std::array<float, kNvfp4QuantBlock> x{};
    x[15] = -tensor_amax;
    const float global_scale = nvfp4_global_scale(tensor_amax);
    const Block block = encode(x, global_scale);
    ASSERT_EQ(block.scale, 0x7E) << tensor_amax;
    ASSERT_EQ(block.code(15), 15) << tensor_amax;
    ASSERT_NEAR(decode_nvfp4(15, block.scale, global_scale) / -tensor_amax, 1.0, 0x1p-22);
  }
}

TEST(Nvfp4, AHugeOutlierSilencesItsBlockOnly) {
  std::array<float, kNvfp4QuantBlock> ones;
  ones.fill(1.0f);
  std::array<float, kNvfp4QuantBlock> outlier = ones;
  outlier[7] = 2688.0f;
  const float global_scale = nvfp4_global_scale(2688.0f);
  const Block with = encode(outlier, global_scale);
  const Block without = encode(ones, global_scale);
  for (int i = 0; i < kNvfp4QuantBlock; ++i) {
    EXPECT_EQ(with.code(i), i == 7 ? 7 : 0) << i;
    // 1/6 rounds to the E4M3 value 0.171875: 1 / 0.171875 = 5.82 is code 7.
    EXPECT_EQ(decode_nvfp4(static_cast<std::uint8_t>(without.code(i)), without.scale, global_scale),
              6.0f * 0.171875f);
  }
}

TEST(Nvfp4, BlockScaleSaturatesWhenTheGlobalScaleIsTooSmall) {
  // A calibrated input scale below the data's own: clipped, never NaN.
  std::array<float, kNvfp4QuantBlock> x{};
  x[0] = 1e6f;
  x[1] = -1e6f;
  for (const float global_scale : {1.0f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
    const Block block = encode(x, global_scale);
    EXPECT_EQ(block.scale, 0x7E);
    EXPECT_EQ(block.code(0), 7);
    EXPECT_EQ(block.code(1), 15);
  }
  const Block zero_global = encode(x, 0.0f);
  EXPECT_EQ(zero_global.scale, 0x7E);
  EXPECT_EQ(zero_global.code(1), 0) << "p is 0";
}

TEST(Nvfp4, SubnormalGlobalScaleStillEncodes) {
  std::array<float, kNvfp4QuantBlock> x{};
  x[0] = std::numeric_limits<float>::denorm_min() * 4096.0f;
  x[1] = -x[0];
  const float global_scale = nvfp4_global_scale(x[0]);
  ASSERT_GT(global_scale, 0.0f);
  const Block block = encode(x, global_scale);
  EXPECT_EQ(block.code(0), 7);
  EXPECT_EQ(block.code(1), 15);
  EXPECT_EQ(nvfp4_global_scale(1e-43f), 0.0f) << "documented underflow";
}

TEST(Nvfp4, DividesByThePrecomputedProduct) {
  // A value for which each other order of the same arithmetic lands on the other side of a tie.
  int reciprocal_differs = 0;
  int other_order_differs = 0;
  for (std::uint32_t bits = f32_bits(0.25f); bits < f32_bits(8.0f); bits += 997) {
    const float global_scale = f32_from_bits(bits) * 1e-3f;
    const std::uint8_t block_scale = 0x4B;
    const float divisor = nvfp4_divisor(block_scale, global_scale);
    for (const float tie : {0.25f, 1.25f, 2.5f, 5.0f}) {
      for (const float x : {tie * divisor, std::nextafter(tie * divisor, 10.0f)}) {
        const int code = encode_nvfp4(x, divisor);
        ASSERT_EQ(code, encode_e2m1(static_cast<float>(double{x} / double{divisor})));
        if (encode_e2m1(x * (1.0f / divisor)) != code) ++reciprocal_differs;
        if (encode_e2m1((x / global_scale) / decode_e4m3(block_scale)) != code)
          ++other_order_differs;
      }
    }
  }
  EXPECT_GT(reciprocal_differs, 0);
  EXPECT_GT(other_order_differs, 0);
}

TEST(Nvfp4, DecodingRoundsOnce) {
  for (const float global_scale : {1.0f, 0.013950892724096775f, 1e-20f, 3.3e30f, 0x1.234p-140f}) {
    for (int scale = 0; scale < 0x7F; ++scale) {
      for (std::uint8_t code = 0; code < 16; ++code) {
        const auto block_scale = static_cast<std::uint8_t>(scale);
        // 30 significant bits: exact in double, so the conversion is the only rounding.
        const double exact =
            double{decode_e2m1(code)} * double{decode_e4m3(block_scale)} * double{global_scale};
        ASSERT_EQ(f32_bits(decode_nvfp4(code, block_scale, global_scale)),
                  f32_bits(static_cast<float>(exact)))
            << int{code} << " " << scale << " " << global_scale;
      }
    }
  }
  EXPECT_TRUE(std::isnan(decode_nvfp4(1, 0x7F, 1.0f))) << "a NaN block scale stays visible";
}

struct FourOverSix {
  std::uint8_t scale;
  std::array<std::uint8_t, kNvfp4BlockBytes> codes;
};
FourOverSix encode_four_over_six(std::initializer_list<float> first, float global_scale) {
  std::array<float, kNvfp4QuantBlock> x{};
  std::copy(first.begin(), first.end(), x.begin());
  FourOverSix block{};
  block.scale = encode_nvfp4_block_four_over_six(x.data(), global_scale, block.codes.data());
  return block;
}

TEST(Nvfp4FourOverSix, TakesFourWhereItsCodesLieCloser) {
  // Scaled to six, 10 20 30 40 become 9.75 19.5 26 39; scaled to four they are codes of 10.
  const FourOverSix four = encode_four_over_six({10, 20, 30, -40}, 1);
  EXPECT_EQ(four.scale, encode_e4m3(10));
  EXPECT_EQ(four.codes[0], 0x42);
  EXPECT_EQ(four.codes[1], 0xE5);
  // 6 and 0.5 are codes of scale 1; of scale 1.5, 0.5 would become 0.75.
  const FourOverSix six = encode_four_over_six({6, 0.5f}, 1);
  EXPECT_EQ(six.scale, encode_e4m3(1));
  EXPECT_EQ(six.codes[0], 0x17);
}

TEST(Nvfp4FourOverSix, ATieGoesToSix) {
  // Both are exact: 6 3 1.5 of scale 1, 4 2 1 of scale 1.5.
  const FourOverSix tie = encode_four_over_six({6, 3, 1.5f}, 1);
  EXPECT_EQ(tie.scale, encode_e4m3(1));
  EXPECT_EQ(tie.codes[0], 0x57);
  EXPECT_EQ(tie.codes[1], 0x03);
  EXPECT_EQ(encode_four_over_six({}, 1).scale, 0);
}

TEST(Nvfp4FourOverSix, BothCandidatesEndAtTheLargestBlockScale) {
  // 3072 / 6 = 512 is past 448 for either; 2000 / 6 only for four.
  EXPECT_EQ(encode_four_over_six({3072}, 1).scale, encode_e4m3(448));
  EXPECT_EQ(encode_four_over_six({2000}, 1).scale, encode_e4m3(2000 / 6.0f));
  EXPECT_EQ(encode_four_over_six({1792, 896, 448}, 1).scale, encode_e4m3(448)) << "4 2 1 of 448";
}

TEST(Nvfp4FourOverSix, SmallBlocksLiveLonger) {
  // 0.9 * 2^-10 rounds to scale 0, 1.35 * 2^-10 to 2^-9: a block that six would zero.
  const FourOverSix block = encode_four_over_six({6 * 0.9f * 0x1p-10f}, 1);
  EXPECT_EQ(block.scale, 1);
  EXPECT_EQ(block.codes[0], 5) << "2.7 in units of 2^-9";
}

TEST(Nvfp4FourOverSix, TheLargestValueHasRoomForEitherScale) {
  EXPECT_EQ(nvfp4_four_over_six_global_scale(1536), 1);
  EXPECT_EQ(nvfp4_four_over_six_global_scale(0), 1);
  EXPECT_EQ(encode_four_over_six({1536, 256}, 1).scale, encode_e4m3(256));
  EXPECT_EQ(encode_four_over_six({1536, 1152}, 1).scale, encode_e4m3(384));
}

TEST(Amax, IgnoresSignsAndShowsNanAndInfinity) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(f32_bits(amax(nullptr, 0)), 0u);
  EXPECT_TRUE(all_finite(nullptr, 0));
  const std::array<float, 3> finite = {-3.0f, 2.0f, -0.0f};
  EXPECT_EQ(amax(finite.data(), 3), 3.0f);
  EXPECT_EQ(amax(finite.data() + 1, 1), 2.0f);
  EXPECT_TRUE(all_finite(finite.data(), 3));
  for (int i = 0; i < 3; ++i) {
    for (const float bad : {infinity, -infinity, nan, -nan}) {
      std::array<float, 3> x = finite;
      x[i] = bad;
      EXPECT_FALSE(all_finite(x.data(), 3)) << i << " " << bad;
      EXPECT_EQ(std::isnan(amax(x.data(), 3)), std::isnan(bad));
    }
  }
  const std::array<float, 2> largest = {std::numeric_limits<float>::max(),
                                        std::numeric_limits<float>::lowest()};
  EXPECT_TRUE(all_finite(largest.data(), 2));
}

}  // namespace
}  // namespace dsv4
