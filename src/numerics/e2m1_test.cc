// E2M1: both roundings against their definitions, the edges, and packing.
#include "numerics/e2m1.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "numerics/bf16.h"
#include "numerics/pack.h"
#include "testing/codec_oracle.h"

namespace dsv4 {
namespace {

constexpr E2m1Rounding kNearestEven = E2m1Rounding::kNearestEven;
constexpr E2m1Rounding kHalfStep = E2m1Rounding::kHalfStep;

static_assert(decode_e2m1(0x7) == 6.0f && decode_e2m1(0xF) == -6.0f && decode_e2m1(0x1) == 0.5f);
static_assert(encode_e2m1(5.0f) == 6 && encode_e2m1(-5.25f) == 0xF);
static_assert(encode_e2m1(5.25f, kHalfStep) == 6 && encode_e2m1(2.6f, kHalfStep) == 4);

std::vector<float> magnitudes() {
  std::vector<float> result;
  for (int code = 0; code < 8; ++code)
    result.push_back(decode_e2m1(static_cast<std::uint8_t>(code)));
  return result;
}

TEST(E2m1, DecodesTheSixteenValuesAndIgnoresTheUpperBits) {
  EXPECT_EQ(magnitudes(), (std::vector<float>{0, 0.5f, 1, 1.5f, 2, 3, 4, 6}));
  for (int byte = 0; byte < 256; ++byte) {
    const float value = decode_e2m1(static_cast<std::uint8_t>(byte));
    const float magnitude = magnitudes()[byte & 7];
    EXPECT_EQ(f32_bits(value), f32_bits((byte & 8) != 0 ? -magnitude : magnitude)) << byte;
  }
}

TEST(E2m1, EveryCodeSurvivesBothRoundings) {
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(encode_e2m1(decode_e2m1(code), kNearestEven), code);
    EXPECT_EQ(encode_e2m1(decode_e2m1(code), kHalfStep), code);
  }
}

TEST(E2m1, NearestEvenIsTheNearestValueWithTiesToTheEvenCode) {
  const std::vector<float> values = magnitudes();
  for (const std::uint32_t bits : hard_f32_patterns()) {
    const float x = f32_from_bits(bits);
    if (std::isnan(x)) continue;
    const int want = nearest_code(x, values) | (std::signbit(x) ? 8 : 0);
    ASSERT_EQ(encode_e2m1(x), want) << std::hexfloat << x;
  }
}

TEST(E2m1, HalfStepRoundsTwiceAsDefined) {
  constexpr int kCodes[13] = {0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6, 7, 7};
  for (const std::uint32_t bits : hard_f32_patterns()) {
    const float x = f32_from_bits(bits);
    if (std::isnan(x)) continue;
    const double half_steps = std::nearbyint(std::fmin(std::fabs(double{x}), 6.0) * 2.0);
    const int want = kCodes[static_cast<int>(half_steps)] | (std::signbit(x) ? 8 : 0);
    ASSERT_EQ(encode_e2m1(x, kHalfStep), want) << std::hexfloat << x;
  }
}

TEST(E2m1, TheRoundingsDifferOnThreeIntervalsOnly) {
  for (const std::uint32_t bits : hard_f32_patterns()) {
    const float x = f32_from_bits(bits);
    if (std::isnan(x)) continue;
    const float a = std::fabs(x);
    const bool between =
        (a > 2.5f && a < 2.75f) || (a > 3.25f && a < 3.5f) || (a > 5 && a <= 5.25f);
    ASSERT_EQ(encode_e2m1(x, kNearestEven) != encode_e2m1(x, kHalfStep), between)
        << std::hexfloat << x;
  }
}

TEST(E2m1, TiesGoToTheEvenCode) {
  const std::vector<std::pair<float, int>> ties = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4},
                                                   {2.5f, 4},  {3.5f, 6},  {5.0f, 6}};
  for (const auto& tie : ties) {
    EXPECT_EQ(encode_e2m1(tie.first), tie.second) << tie.first;
    EXPECT_EQ(encode_e2m1(-tie.first), tie.second | 8) << tie.first;
  }
}

TEST(E2m1, ZeroSubnormalInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const E2m1Rounding rounding : {kNearestEven, kHalfStep}) {
    EXPECT_EQ(encode_e2m1(0.0f, rounding), 0);
    EXPECT_EQ(encode_e2m1(-0.0f, rounding), 8);
    EXPECT_EQ(encode_e2m1(std::numeric_limits<float>::denorm_min(), rounding), 0);
    EXPECT_EQ(encode_e2m1(-std::numeric_limits<float>::denorm_min(), rounding), 8);
    EXPECT_EQ(encode_e2m1(std::numeric_limits<float>::max(), rounding), 7);
    EXPECT_EQ(encode_e2m1(infinity, rounding), 7);
    EXPECT_EQ(encode_e2m1(-infinity, rounding), 15);
    for (const std::uint32_t payload : {1u, 0x400000u, 0x7FFFFFu}) {
      EXPECT_EQ(encode_e2m1(f32_from_bits(kF32InfinityBits | payload), rounding), 8);
      EXPECT_EQ(encode_e2m1(f32_from_bits(0xFF800000u | payload), rounding), 0);
    }
  }
}

TEST(E2m1, BothRoundingsAreMonotonic) {
  for (const E2m1Rounding rounding : {kNearestEven, kHalfStep}) {
    float previous = 0.0f;
    for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
      const float value =
          decode_e2m1(encode_e2m1(decode_bf16(static_cast<std::uint16_t>(bits)), rounding));
      ASSERT_GE(value, previous) << bits;
      previous = value;
    }
    EXPECT_EQ(previous, kE2m1Max);
  }
}

TEST(PackE2m1, FirstElementInTheLowNibble) {
  for (std::uint8_t low = 0; low < 16; ++low) {
    for (std::uint8_t high = 0; high < 16; ++high) {
      const std::uint8_t packed = pack_e2m1(low, high);
      ASSERT_EQ(packed, low + 16 * high);
      ASSERT_EQ(unpack_e2m1_low(packed), low);
      ASSERT_EQ(unpack_e2m1_high(packed), high);
      ASSERT_EQ(pack_e2m1(low | 0xF0u, high | 0xA0u), packed) << "upper bits leaked";
    }
  }
  const std::uint8_t row[2] = {0x21, 0x43};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(unpack_e2m1(row, i), i + 1);
}

}  // namespace
}  // namespace dsv4
