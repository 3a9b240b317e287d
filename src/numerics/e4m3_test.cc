// E4M3: both overflow behaviours against a search over the decoded values, and the edges.
#include "numerics/e4m3.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "numerics/bf16.h"
#include "testing/codec_oracle.h"

namespace dsv4 {
namespace {

static_assert(decode_e4m3(0x7E) == kE4m3Max && decode_e4m3(0x01) == 0x1p-9f);
static_assert(decode_e4m3(0x08) == 0x1p-6f && decode_e4m3(0xB8) == -1.0f);
static_assert(encode_e4m3(1.0f) == 0x38 && encode_e4m3(-1e9f) == 0xFE);
static_assert(encode_e4m3_nonsaturating(464.0f) == 0x7E &&
              encode_e4m3_nonsaturating(465.0f) == 0x7F);

std::vector<float> magnitudes() {
  std::vector<float> result;
  for (int code = 0; code < 0x7F; ++code) {
    result.push_back(decode_e4m3(static_cast<std::uint8_t>(code)));
  }
  return result;
}

TEST(E4m3, DecodesByTheDefinition) {
  for (int code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<std::uint8_t>(code));
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const int exponent = (code >> 3) & 15;
    const int mantissa = code & 7;
    const double want =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    EXPECT_EQ(std::fabs(value), want) << code;
  }
}

TEST(E4m3, EveryCodeSurvives) {
  for (int code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<std::uint8_t>(code));
    EXPECT_EQ(encode_e4m3(value), code == 0xFF ? 0x7F : code);
    EXPECT_EQ(encode_e4m3_nonsaturating(value), code);
  }
}

TEST(E4m3, RoundsToTheNearestValueWithTiesToTheEvenCode) {
  const std::vector<float> values = magnitudes();
  for (const std::uint32_t bits : hard_f32_patterns()) {
    const float x = f32_from_bits(bits);
    if (std::isnan(x)) continue;
    const int sign = std::signbit(x) ? 0x80 : 0;
    const int want = nearest_code(x, values);
    ASSERT_EQ(encode_e4m3(x), want | sign) << std::hexfloat << x;
    const bool overflows = std::fabs(x) > 464.0f;
    ASSERT_EQ(encode_e4m3_nonsaturating(x), (overflows ? 0x7F : want) | sign) << std::hexfloat << x;
  }
}

TEST(E4m3, OverflowStartsWhereItMust) {
  const float above_464 = std::nextafter(464.0f, 1e9f);
  EXPECT_EQ(encode_e4m3(above_464), 0x7E);
  EXPECT_EQ(encode_e4m3_nonsaturating(464.0f), 0x7E);
  EXPECT_EQ(encode_e4m3_nonsaturating(-464.0f), 0xFE);
  EXPECT_EQ(encode_e4m3_nonsaturating(above_464), 0x7F);
  EXPECT_EQ(encode_e4m3_nonsaturating(-above_464), 0xFF);
}

TEST(E4m3, ZeroSubnormalInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(encode_e4m3(0.0f), 0x00);
  EXPECT_EQ(encode_e4m3(-0.0f), 0x80);
  EXPECT_EQ(encode_e4m3(0x1p-10f), 0x00) << "a tie between 0 and the smallest subnormal";
  EXPECT_EQ(encode_e4m3(std::nextafter(0x1p-10f, 1.0f)), 0x01);
  EXPECT_EQ(encode_e4m3(0x1.8p-9f), 0x02) << "a tie between the two smallest subnormals";
  EXPECT_EQ(encode_e4m3(std::nextafter(0x1p-6f, 0.0f)), 0x08) << "a carry into the exponent";
  EXPECT_EQ(encode_e4m3(-std::numeric_limits<float>::denorm_min()), 0x80);
  EXPECT_EQ(encode_e4m3(infinity), 0x7E);
  EXPECT_EQ(encode_e4m3(-infinity), 0xFE);
  EXPECT_EQ(encode_e4m3_nonsaturating(infinity), 0x7F);
  EXPECT_EQ(encode_e4m3_nonsaturating(-infinity), 0xFF);
  for (const std::uint32_t payload : {1u, 0x400000u, 0x7FFFFFu}) {
    EXPECT_EQ(encode_e4m3(f32_from_bits(0x7F800000u | payload)), 0x7F);
    EXPECT_EQ(encode_e4m3(f32_from_bits(0xFF800000u | payload)), 0x7F);
    EXPECT_EQ(encode_e4m3_nonsaturating(f32_from_bits(0xFF800000u | payload)), 0xFF);
  }
}

TEST(E4m3, IsMonotonic) {
  float previous = 0.0f;
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float value = decode_e4m3(encode_e4m3(decode_bf16(static_cast<std::uint16_t>(bits))));
    ASSERT_GE(value, previous) << bits;
    previous = value;
  }
  EXPECT_EQ(previous, kE4m3Max);
}

}  // namespace
}  // namespace dsv4
