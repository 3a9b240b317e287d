// BF16: every pattern, every rounding case, NaN.
#include "numerics/bf16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing/codec_oracle.h"

namespace dsv4 {
namespace {

static_assert(encode_bf16(1.0f) == 0x3F80 && decode_bf16(Bf16{0xC000}) == -2.0f);
static_assert(encode_bf16(0x1.01p0f) == 0x3F80 && encode_bf16(0x1.03p0f) == 0x3F82);

TEST(Bf16, EveryPatternSurvivesAndNanBecomesQuiet) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = decode_bf16(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(f32_bits(value), bits << 16);
    const bool is_nan = (bits & 0x7FFFu) > 0x7F80u;
    ASSERT_EQ(encode_bf16(value), is_nan ? (bits | 0x40u) : bits);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (const std::uint32_t bits : hard_f32_patterns()) {
    const float x = f32_from_bits(bits);
    if (!std::isfinite(x)) continue;
    // Neighbours in double; past the largest BF16 comes what would be 2^128 with a wider exponent.
    const std::uint32_t below = bits >> 16;
    const double sign = std::signbit(x) ? -1.0 : 1.0;
    const double low = decode_bf16(static_cast<std::uint16_t>(below));
    const bool to_infinity = (below & 0x7FFFu) == 0x7F7Fu;
    const double high =
        to_infinity ? sign * 0x1p128 : double{decode_bf16(static_cast<std::uint16_t>(below + 1))};
    const double to_low = std::fabs(double{x} - low);
    const double to_high = std::fabs(high - double{x});
    const bool up = to_high < to_low || (to_high == to_low && below % 2 == 1);
    ASSERT_EQ(encode_bf16(x), up ? below + 1 : below) << std::hexfloat << x;
    ASSERT_EQ(f32_bits(round_bf16(x)), (up ? below + 1 : below) << 16);
  }
}

TEST(Bf16, NanNeverBecomesInfinityOrZero) {
  for (const std::uint32_t sign : {0u, kF32SignMask}) {
    for (const std::uint32_t payload : {1u, 0x7FFFu, 0x8000u, 0xFFFFu, 0x400000u, 0x7FFFFFu}) {
      const float x = f32_from_bits(sign | kF32InfinityBits | payload);
      EXPECT_TRUE(std::isnan(round_bf16(x))) << payload;
      EXPECT_EQ(encode_bf16(x) >> 15, sign >> 31);
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_bf16(infinity), 0x7F80);
  EXPECT_EQ(encode_bf16(-infinity), 0xFF80);
  EXPECT_EQ(encode_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

}  // namespace
}  // namespace dsv4
