// fp4_cast_test.cc: MXFP4 and NVFP4 sources keep their bits in NVFP4 wherever the format can hold
// them, and what it cannot hold is encoded again and counted.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "numerics/e8m0.h"
#include "quantizer/encoder_fixtures.h"

namespace dsv4 {
namespace {

constexpr Format kMx = Format::kMxfp4;
constexpr Format kNv = Format::kNvfp4;

// Everything was cast: codes unchanged, every decoded bit the same, nothing counted as lost.
void expect_cast(const Fp4Matrix& source, const EncodedMatrix& encoded) {
  EXPECT_EQ(encoded.matrix.codes, source.codes);
  EXPECT_EQ(count_exact(source.view(), encoded.matrix.view()), source.rows * source.cols);
  ErrorTally plain = plain_tally("m", source.view(), encoded);
  plain.cast_blocks = plain.quant_blocks;
  expect_same_figures(encoded.tally, plain);
  EXPECT_EQ(encoded.tally.cast_blocks, encoded.tally.quant_blocks);
  EXPECT_EQ(encoded.tally.reencoded_blocks, 0);
  EXPECT_TRUE(encoded.tally.lossless());
  EXPECT_EQ(encoded.tally.error_squares, 0);
  EXPECT_EQ(encoded.tally.cosine(), 1);
}

// Released experts have exponent bytes around 119 to 122.
TEST(Fp4Cast, ExponentsOfReleasedExperts) {
  Fp4Matrix source(kMx, 5, 96);
  source.fill_codes();
  for (std::size_t i = 0; i < source.scales.size(); ++i) {
    source.scales[i] = static_cast<std::uint8_t>(119 + i * 3 % 4);
  }
  const EncodedMatrix encoded = encode_one(source.view());
  expect_cast(source, encoded);
  EXPECT_EQ(encoded.matrix.global_scale, std::ldexp(1.0f, 122 - 127 - 8));
  for (std::int64_t row = 0; row < source.rows; ++row) {
    for (std::int64_t block = 0; block < source.cols / 16; ++block) {
      const int k = source.scale(row, block / 2) - 122;
      EXPECT_EQ(encoded.matrix.scales[static_cast<std::size_t>(row * 6 + block)],
                encode_e4m3(std::ldexp(1.0f, k + 8)));
    }
  }
}

// E4M3 holds 2^-9 to 2^8: seventeen steps, not eighteen.
TEST(Fp4Cast, AnExponentSpanOfSeventeenIsHeldAndOneOfEighteenIsNot) {
  Fp4Matrix source(kMx, 1, 64);
  source.fill_codes();
  source.scale(0, 0) = 130;
  source.scale(0, 1) = 130 - 17;
  expect_cast(source, encode_one(source.view()));

  source.scale(0, 1) = 130 - 18;
  const EncodedMatrix encoded = encode_one(source.view());
  EXPECT_EQ(encoded.tally.cast_blocks, 2);
  EXPECT_EQ(encoded.tally.reencoded_blocks, 2);
  // Half of the smallest scale: codes go to half of their values. 6, 4, 3, 2 and 1 can, 1.5 and .5
  // cannot; of sixteen codes, four.
  EXPECT_EQ(encoded.matrix.scales[2], encode_e4m3(0x1p-9f));
  EXPECT_EQ(encoded.tally.exact_values, 32 + 32 - 2 * 4);
  EXPECT_EQ(encoded.tally.scales_too_small, 2);
  EXPECT_EQ(encoded.tally.zeroed_blocks, 0);
  EXPECT_EQ(encoded.tally.worst.quant_block, 2);
  ErrorTally plain = plain_tally("m", source.view(), encoded);
  expect_same_figures(encoded.tally, plain);
}

TEST(Fp4Cast, BothEndsOfE8m0) {
  for (const int code : {0, 1, 8, 253, 254}) {
    SCOPED_TRACE(code);
    Fp4Matrix source(kMx, 2, 32);
    // 4 and 6 are infinite under 2^126, 2 and more under 2^127.
    const int largest = code == 254 ? 3 : code == 253 ? 5 : 7;
    for (std::int64_t i = 0; i < 64; ++i) {
      source.set_code(i / 32, i % 32, static_cast<std::uint8_t>(i % (largest + 1) + 8 * (i % 2)));
    }
    source.scale(0, 0) = source.scale(1, 0) = static_cast<std::uint8_t>(code);
    const EncodedMatrix encoded = encode_one(source.view());
    expect_cast(source, encoded);
    EXPECT_EQ(encoded.matrix.global_scale, std::ldexp(1.0f, code - 127 - 8));
    EXPECT_TRUE(encoded.matrix.global_scale > 0);
  }
}

// The members of a group share k_max, and with it the global scale.
TEST(Fp4Cast, MembersShareTheLargestExponent) {
  Fp4Matrix gate(kMx, 1, 32), up(kMx, 3, 32);
  gate.fill_codes();
  up.fill_codes();
  gate.scale(0, 0) = 120;
  up.scale(2, 0) = 125;
  up.scale(0, 0) = up.scale(1, 0) = 110;
  const auto encoded = encode_group({{named("gate", gate.view()), named("up", up.view())}});
  for (const EncodedMatrix& matrix : encoded) {
    EXPECT_EQ(matrix.matrix.global_scale, std::ldexp(1.0f, 125 - 127 - 8));
    EXPECT_TRUE(matrix.tally.lossless());
    EXPECT_EQ(matrix.tally.reencoded_blocks, 0);
  }
  EXPECT_EQ(count_exact(gate.view(), encoded[0].matrix.view()), 32);
  EXPECT_EQ(count_exact(up.view(), encoded[1].matrix.view()), 96);
}

// Their scales say nothing: neither do they count for k_max, nor do they cost a sign of zero.
TEST(Fp4Cast, BlocksOfZerosNeverCount) {
  for (const std::uint8_t zero : {0, 8}) {
    for (const int code : {0, 100, 128, 254}) {
      SCOPED_TRACE(code);
      Fp4Matrix source(kMx, 1, 96);
      source.fill_codes();
      source.set_block_codes(0, 1, zero);
      source.set_code(0, 40, zero ^ 8);
      source.scale(0, 1) = static_cast<std::uint8_t>(code);
      const EncodedMatrix encoded = encode_one(source.view());
      expect_cast(source, encoded);
      EXPECT_EQ(encoded.matrix.global_scale, 0x1p-8f);
      // Powers of two, so that the matrix stays foldable.
      EXPECT_EQ(encoded.matrix.scales[2], code >= 127 ? encode_e4m3(256.0f) : 0);
    }
  }
}

TEST(Fp4Cast, AllZeros) {
  for (const Format format : {kMx, kNv}) {
    Fp4Matrix source(format, 2, 64);
    source.set_code(1, 5, 8);
    const EncodedMatrix encoded = encode_one(source.view());
    expect_cast(source, encoded);
    EXPECT_EQ(encoded.matrix.global_scale, 1.0f);
    EXPECT_EQ(encoded.tally.zeroed_blocks, 0);
  }
}

// Every scale byte that is a number and has no sign, zero included.
TEST(Fp4Cast, Nvfp4UnderItsOwnGlobalScaleKeepsItsBytes) {
  Fp4Matrix source(kNv, 127, 16);
  source.fill_codes();
  source.global_scale = 3.7e-5f;
  std::iota(source.scales.begin(), source.scales.end(), std::uint8_t{0});
  const EncodedMatrix encoded = encode_one(source.view());
  expect_cast(source, encoded);
  EXPECT_EQ(encoded.matrix.scales, source.scales);
  EXPECT_EQ(encoded.matrix.global_scale, 3.7e-5f);
}

// Engines that read scales as unsigned would take -1 for 256 or NaN. Codes are all sixteen, so that
// zeros of both signs are there; between negative scales stand others.
TEST(Fp4Cast, NegativeScalesGiveTheirSignToTheCodes) {
  Fp4Matrix source(kNv, 127, 32);
  source.fill_codes();
  source.global_scale = 3.7e-5f;
  for (std::size_t row = 0; row < 127; ++row) {
    source.scales[2 * row] = static_cast<std::uint8_t>(0x80 + row);
    source.scales[2 * row + 1] = static_cast<std::uint8_t>(row);
  }
  source.set_block_codes(5, 0, 0);
  source.set_block_codes(6, 0, 8);
  const EncodedMatrix encoded = encode_one(source.view());
  EXPECT_EQ(count_exact(source.view(), encoded.matrix.view()), 127 * 32);
  for (std::size_t i = 0; i < source.scales.size(); ++i) {
    EXPECT_EQ(encoded.matrix.scales[i], source.scales[i] & 0x7F);
  }
  for (std::size_t i = 0; i < source.codes.size(); ++i) {
    const bool is_negative = i / kNvfp4BlockBytes % 2 == 0;
    EXPECT_EQ(encoded.matrix.codes[i], source.codes[i] ^ (is_negative ? 0x88 : 0));
  }
  ErrorTally plain = plain_tally("m", source.view(), encoded);
  plain.cast_blocks = plain.quant_blocks;
  expect_same_figures(encoded.tally, plain);
  EXPECT_TRUE(encoded.tally.lossless());
}

TEST(Fp4Cast, NegativeScalesThatLeaveE4m3AreEncodedAgain) {
  Fp4Matrix gate(kNv, 1, 64), up(kNv, 1, 64);
  gate.fill_codes();
  up.fill_codes();
  gate.global_scale = 1.0f;
  up.global_scale = 0x1p-4f;
  for (const std::int64_t block : {0, 1, 2, 3}) up.scale(0, block) = 0x80 | encode_e4m3(0x1p-2f);
  up.scale(0, 1) = 0x80 | encode_e4m3(3 * 0x1p-6f);  // 3 * 2^-10 is no E4M3 number
  up.scale(0, 2) = 0x80;                             // -0
  const auto encoded = encode_group({{named("gate", gate.view()), named("up", up.view())}});
  const EncodedMatrix& result = encoded[1];
  EXPECT_EQ(result.tally.cast_blocks, 3);
  EXPECT_EQ(result.tally.reencoded_blocks, 1);
  for (const std::uint8_t scale : result.matrix.scales) EXPECT_LT(scale, 0x80);
  expect_same_figures(result.tally, plain_tally("up", up.view(), result));
  EXPECT_LT(result.tally.relative_error(), 0.2);
}

TEST(Fp4Cast, Nvfp4MembersAPowerOfTwoApart) {
  Fp4Matrix gate(kNv, 4, 32), up(kNv, 4, 32);
  gate.fill_codes();
  up.fill_codes();
  gate.global_scale = 0.3f;
  up.global_scale = 0.3f / 16;
  for (std::size_t i = 0; i < up.scales.size(); ++i) {
    up.scales[i] = encode_e4m3(static_cast<float>(i + 9) * 16);
  }
  const auto encoded = encode_group({{named("gate", gate.view()), named("up", up.view())}});
  for (std::size_t i = 0; i < 2; ++i) {
    const Fp4Matrix& source = i == 0 ? gate : up;
    EXPECT_EQ(encoded[i].matrix.global_scale, 0.3f);
    EXPECT_EQ(encoded[i].matrix.codes, source.codes);
    EXPECT_EQ(count_exact(source.view(), encoded[i].matrix.view()), 4 * 32);
    EXPECT_EQ(encoded[i].tally.cast_blocks, 8);
  }
}

// Scales so small that they fall between the subnormals of E4M3.
TEST(Fp4Cast, Nvfp4ScalesThatLeaveE4m3AreEncodedAgain) {
  Fp4Matrix gate(kNv, 1, 64), up(kNv, 1, 64);
  gate.fill_codes();
  up.fill_codes();
  gate.global_scale = 1.0f;
  up.global_scale = 0x1p-4f;
  up.scale(0, 0) = encode_e4m3(0x1p-5f);      // 2^-9 is there
  up.scale(0, 1) = encode_e4m3(3 * 0x1p-6f);  // 3 * 2^-10 is not
  up.scale(0, 2) = encode_e4m3(0x1p-9f);      // 2^-13: of all codes 6 is left, as .5 * 2^-9
  up.scale(0, 3) = encode_e4m3(0x1p-9f);      // of 3 nothing is left
  up.set_block_codes(0, 3, 5);
  const auto encoded = encode_group({{named("gate", gate.view()), named("up", up.view())}});
  EXPECT_EQ(encoded[0].tally.reencoded_blocks, 0);
  const EncodedMatrix& result = encoded[1];
  EXPECT_EQ(result.tally.cast_blocks, 1);
  EXPECT_EQ(result.tally.reencoded_blocks, 3);
  EXPECT_EQ(result.tally.zeroed_blocks, 1);
  EXPECT_EQ(result.tally.scales_too_small, 2);
  EXPECT_EQ(result.matrix.scales, (std::vector<std::uint8_t>{1, 2, 1, 1}));
  expect_same_figures(result.tally, plain_tally("up", up.view(), result));
}

TEST(Fp4Cast, Nvfp4MembersNotAPowerOfTwoApart) {
  Fp4Matrix gate(kNv, 3, 64), up(kNv, 3, 64);
  gate.fill_codes();
  up.fill_codes();
  gate.global_scale = 0.011f;
  up.global_scale = 0.03f;
  gate.set_block_codes(1, 2, 8);  // without a nonzero code, so not encoded again
  for (std::size_t i = 0; i < gate.scales.size(); ++i) {
    gate.scales[i] = encode_e4m3(static_cast<float>(i + 8));
  }
  gate.scales[3] = 0;  // multiplier 0 is a number of every scale
  const MatrixGroup group{{named("gate", gate.view()), named("up", up.view())}};
  for (const E2m1Rounding rounding : {E2m1Rounding::kNearestEven, E2m1Rounding::kHalfStep}) {
    const auto encoded = encode_group(group, {rounding, false});
    EXPECT_TRUE(encoded[1].tally.lossless());
    const EncodedMatrix& result = encoded[0];
    EXPECT_EQ(result.matrix.global_scale, 0.03f);
    EXPECT_EQ(result.tally.cast_blocks, 2);
    EXPECT_EQ(result.tally.reencoded_blocks, 10);
    expect_same_figures(result.tally, plain_tally("gate", gate.view(), result));
    const std::vector<float> values = decoded_values(gate.view());
    for (std::size_t b = 0; b < 12; ++b) {
      if (b == 3 || b == 6) continue;
      std::uint8_t codes[kNvfp4BlockBytes];
      EXPECT_EQ(encode_nvfp4_block(values.data() + 16 * b, 0.03f, codes, rounding),
                result.matrix.scales[b]);
      EXPECT_TRUE(std::equal(
          codes, codes + 8,
          result.matrix.codes.begin() + std::ssize(codes) * static_cast<std::ptrdiff_t>(b)));
    }
  }
}

// Rounding and four over six are choices for values; FP4 sources are cast all the same.
TEST(Fp4Cast, OptionsForValuesDoNotTouchCasts) {
  for (const Format format : {kMx, kNv}) {
    Fp4Matrix source(format, 2, 64);
    source.fill_codes();
    const EncodedMatrix plain = encode_one(source.view());
    const EncodedMatrix other = encode_one(source.view(), {E2m1Rounding::kHalfStep, true});
    expect_cast(source, other);
    EXPECT_EQ(other.matrix.scales, plain.matrix.scales);
    EXPECT_EQ(other.matrix.global_scale, plain.matrix.global_scale);
  }
}

// The last scale of a row covers what is left of it.
TEST(Fp4Cast, ARowThatEndsInHalfAnMxfp4Block) {
  Fp4Matrix source(kMx, 2, 48);
  source.fill_codes();
  source.scale(0, 1) = 125;
  source.scale(1, 1) = 126;
  expect_cast(source, encode_one(source.view()));
}

TEST(Fp4Cast, NoRowsAndNoColumns) {
  for (const Format format : {kMx, kNv}) {
    EXPECT_EQ(encode_one(Fp4Matrix(format, 0, 32).view()).tally, ErrorTally());
    EXPECT_EQ(encode_one(Fp4Matrix(format, 3, 0).view()).tally, ErrorTally());
  }
}

}  // namespace
}  // namespace dsv4
