// Cache rows byte by byte against the rules written out again: scales by search, codes by distance.
#include "tensor/kv_row_codec.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

#include "testing/row_oracle.h"

namespace dsv4 {
namespace {

std::vector<float> random_row(std::int64_t width, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> x(static_cast<std::size_t>(width));
  for (float& value : x) {
    const auto word = static_cast<std::uint32_t>(generator());
    const float fraction = static_cast<float>(word >> 8) * 0x1p-24f;
    value = std::ldexp((word & 128u) != 0 ? -fraction : fraction, static_cast<int>(word & 7u) - 4);
  }
  return x;
}

// Data and scales of one row, side by side, with guard bytes behind that must stay.
std::vector<std::uint8_t> encoded(const RowLayout& layout, const std::vector<float>& x) {
  constexpr std::size_t kGuard = 16;
  const auto row_bytes = static_cast<std::size_t>(layout.row_bytes());
  std::vector<std::uint8_t> bytes(row_bytes + kGuard, 0xFF);
  auto* const data = reinterpret_cast<std::byte*>(bytes.data());
  encode_kv_row(layout, x.data(), data, data + layout.data_bytes());
  for (std::size_t i = row_bytes; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], 0xFF) << i;
  bytes.resize(row_bytes);
  return bytes;
}

RowBytes split(const RowLayout& layout, const std::vector<std::uint8_t>& bytes) {
  const auto scales = bytes.begin() + layout.data_bytes();
  return {{bytes.begin(), scales}, {scales, bytes.end()}};
}

std::vector<float> decoded(const RowLayout& layout, const std::vector<std::uint8_t>& bytes) {
  std::vector<float> x(static_cast<std::size_t>(layout.width));
  const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
  decode_kv_row(layout, data, data + layout.data_bytes(), x.data());
  return x;
}

TEST(KvRowCodec, AttentionRowOf584BytesIsByteExact) {
  const RowLayout layout{RowKind::kAttentionFp8, 512, 64};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_row(512, seed);
    const std::vector<std::uint8_t> bytes = encoded(layout, x);
    ASSERT_EQ(bytes.size(), 584u);
    ASSERT_EQ(split(layout, bytes), expected_attention_row(x, 64)) << "seed " << seed;
    ASSERT_EQ(bytes.back(), 0) << "the pad";
  }
}

TEST(KvRowCodec, AttentionRowsOfOtherWidthsHaveAShortLastBlock) {
  for (const std::int64_t nope : {0, 1, 63, 64, 65, 127, 513}) {
    for (const std::int64_t rope : {0, 2, 64}) {
      if (nope + rope == 0) continue;
      const RowLayout layout{RowKind::kAttentionFp8, nope + rope, rope};
      const std::vector<float> x = random_row(nope + rope, 7);
      ASSERT_EQ(split(layout, encoded(layout, x)), expected_attention_row(x, rope))
          << nope << " + " << rope;
    }
  }
}

// 448 * 2^k keeps the scale, one ulp more doubles it: an FP32 logarithm rounds the ulp away.
TEST(KvRowCodec, AttentionScaleTurnsOneUlpAbove448TimesAPower) {
  const RowLayout layout{RowKind::kAttentionFp8, 64, 0};
  for (int k = -20; k <= 100; ++k) {
    std::vector<float> x(64);
    x[63] = std::ldexp(448.0f, k);
    std::vector<std::uint8_t> bytes = encoded(layout, x);
    ASSERT_EQ(bytes[64], 127 + k);
    ASSERT_EQ(bytes[63], 0x7E);
    x[63] = std::nextafter(x[63], std::numeric_limits<float>::infinity());
    bytes = encoded(layout, x);
    ASSERT_EQ(bytes[64], 128 + k);
    ASSERT_EQ(bytes[63], 0x76) << "224";
  }
}

TEST(KvRowCodec, ZeroRowsDecodeToZero) {
  for (const RowLayout& layout :
       {RowLayout{RowKind::kF32, 64}, RowLayout{RowKind::kBf16, 64},
        RowLayout{RowKind::kAttentionFp8, 128, 64}, RowLayout{RowKind::kIndexerFp8, 64},
        RowLayout{RowKind::kIndexerFp4, 64}}) {
    for (float value : decoded(layout, encoded(layout, std::vector<float>(layout.width)))) {
      EXPECT_EQ(value, 0.0f);
    }
  }
}

TEST(KvRowCodec, IndexerFp4RowIsByteExact) {
  const RowLayout layout{RowKind::kIndexerFp4, 128};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_row(128, seed);
    ASSERT_EQ(split(layout, encoded(layout, x)), expected_fp4_row(x)) << "seed " << seed;
  }
}

TEST(KvRowCodec, IndexerFp8RowHasOneScaleOfAmaxOver448) {
  const RowLayout layout{RowKind::kIndexerFp8, 128};
  std::vector<float> x = random_row(128, 3);
  x[77] = -9.5f;
  std::vector<std::uint8_t> bytes = encoded(layout, x);
  float row_scale = 0;
  std::memcpy(&row_scale, bytes.data() + 128, 4);
  EXPECT_EQ(row_scale, 9.5f / 448.0f);
  EXPECT_EQ(bytes[77], 0xFE) << "the largest value takes the largest code";
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(bytes[i], nearest_code(x[i] / row_scale, e4m3_magnitudes()) | (x[i] < 0 ? 0x80 : 0));
  }
  bytes = encoded(layout, std::vector<float>(128, 1e-6f));
  std::memcpy(&row_scale, bytes.data() + 128, 4);
  EXPECT_EQ(row_scale, 1e-4f / 448.0f) << "the floor of amax";
}

TEST(KvRowCodec, PlainRowsKeepTheirValues) {
  const std::vector<float> x = random_row(96, 11);
  EXPECT_EQ(decoded({RowKind::kF32, 96}, encoded({RowKind::kF32, 96}, x)), x);
  const std::vector<float> rounded =
      decoded({RowKind::kBf16, 96}, encoded({RowKind::kBf16, 96}, x));
  for (int i = 0; i < 96; ++i) {
    EXPECT_EQ(__builtin_bit_cast(std::uint32_t, rounded[i]),
              static_cast<std::uint32_t>(nearest_bf16(x[i])) << 16);
  }
}

// Pad bytes and what lies behind a row are never data.
TEST(KvRowCodec, DecodingIgnoresThePad) {
  const RowLayout layout{RowKind::kAttentionFp8, 192, 64};
  const std::vector<float> x = random_row(192, 5);
  std::vector<std::uint8_t> bytes = encoded(layout, x);
  const std::vector<float> clean = decoded(layout, bytes);
  for (std::size_t i = bytes.size() - 6; i < bytes.size(); ++i) bytes[i] = 0xFF;
  EXPECT_EQ(decoded(layout, bytes), clean);
}

// Simulated rounding gives what a row of the simulated kind gives back, and is idempotent.
TEST(KvRowCodec, RoundingEqualsARoundTripThroughTheRow) {
  for (const std::int64_t width : {64, 128, 320, 512}) {
    const std::vector<float> x = random_row(width, 13);
    for (const bool attention : {true, false}) {
      const RowRounding rounding = attention ? RowRounding::kAttention : RowRounding::kIndexer;
      const RowLayout layout{attention ? RowKind::kAttentionFp8 : RowKind::kIndexerFp4, width,
                             attention ? 64 : 0};
      std::vector<float> rounded = x;
      round_kv_row(rounding, 64, width, rounded.data());
      EXPECT_EQ(rounded, decoded(layout, encoded(layout, x)));
      EXPECT_NE(rounded, x);
      std::vector<float> again = rounded;
      round_kv_row(rounding, 64, width, again.data());
      EXPECT_EQ(again, rounded);
    }
    std::vector<float> untouched = x;
    round_kv_row(RowRounding::kNone, 64, width, untouched.data());
    EXPECT_EQ(untouched, x);
  }
}

// So a BF16 cache holds the values of an FP8 cache.
TEST(KvRowCodec, AttentionRoundingIsExactInBf16) {
  std::vector<float> x = random_row(512, 17);
  round_kv_row(RowRounding::kAttention, 64, 512, x.data());
  EXPECT_EQ(decoded({RowKind::kBf16, 512}, encoded({RowKind::kBf16, 512}, x)), x);
}

}  // namespace
}  // namespace dsv4
