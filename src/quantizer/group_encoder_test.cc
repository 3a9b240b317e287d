// group_encoder_test.cc: values of every format to NVFP4: the bytes are those of numerics/, the
// figures those of a plain FP64 computation, neither depends on threads, pieces or backend, and
// values that no code can hold are refused by name and place.
#include "quantizer/group_encoder.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "io/io_test_files.h"
#include "numerics/amax.h"
#include "quantizer/encoder_fixtures.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4 {
namespace {

using testing::HostMatrix;
using testing::MatrixSpec;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<MatrixSpec> value_specs() {
  return {testing::f32_spec(), testing::bf16_spec(), testing::fp8_spec(128, 128, DType::kE8M0),
          testing::fp8_spec(128, 128, DType::kF32)};
}

// Values with outliers, so that some blocks fall under E4M3's range and out of the codes.
std::vector<float> hard_values(std::uint64_t seed, std::int64_t count) {
  std::vector<float> values = testing::heavy_tailed_values(seed, count);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / 16 % 5 == 1) values[i] *= 1e-6f;
    if (i / 16 % 7 == 2) values[i] = 0;
    if (i % 37 == 0) values[i] = -0.0f;
  }
  return values;
}

// By numerics/ alone, from the decoded values.
Fp4Matrix expected_encoding(const MatrixView& source, float global_scale,
                            const EncodingOptions& options = {}) {
  Fp4Matrix expected(Format::kNvfp4, source.rows, source.cols);
  expected.global_scale = global_scale;
  const std::vector<float> values = decoded_values(source);
  const auto encode_block =
      options.four_over_six ? encode_nvfp4_block_four_over_six : encode_nvfp4_block;
  for (std::size_t b = 0; b < expected.scales.size(); ++b) {
    expected.scales[b] = encode_block(values.data() + 16 * b, global_scale,
                                      expected.codes.data() + 8 * b, options.rounding);
  }
  return expected;
}

TEST(GroupEncoder, BytesOfNumericsAndFiguresOfAPlainSum) {
  for (const MatrixSpec& spec : value_specs()) {
    for (const EncodingOptions& options :
         {EncodingOptions{}, EncodingOptions{E2m1Rounding::kHalfStep, false},
          EncodingOptions{E2m1Rounding::kNearestEven, true}}) {
      SCOPED_TRACE(spec.name);
      const HostMatrix source(spec, 200, 144, hard_values(3, 200 * 144));
      const std::vector<float> values = source.values();
      const float largest = amax(values.data(), std::ssize(values));
      const float global_scale = largest / (options.four_over_six ? 1536.0f : 2688.0f);
      const EncodedMatrix encoded = encode_one(source.view(), options);
      EXPECT_EQ(encoded.matrix.global_scale, global_scale);
      const Fp4Matrix expected = expected_encoding(source.view(), global_scale, options);
      EXPECT_EQ(encoded.matrix.codes, expected.codes);
      EXPECT_EQ(encoded.matrix.scales, expected.scales);
      const ErrorTally plain = plain_tally("m", source.view(), encoded);
      expect_same_figures(encoded.tally, plain);
      // FP8's own range ends before that of the block scales does.
      if (!is_quantized(spec.format)) {
        EXPECT_GT(plain.zeroed_blocks, 0);
      }
      EXPECT_GT(plain.error_squares, 0);
      EXPECT_EQ(encoded.tally.cast_blocks, 0);
      EXPECT_EQ(encoded.tally.reencoded_blocks, 0);
    }
  }
}

// Tiles that BF16 can hold and tiles that it cannot, down to FP32's subnormals.
TEST(GroupEncoder, Fp8UnderEveryPowerOfTwo) {
  HostMatrix source(testing::fp8_spec(128, 128, DType::kE8M0), 2, 256, std::vector<float>(512));
  for (std::size_t i = 0; i < source.data.size(); ++i) {
    source.data[i] = static_cast<std::uint8_t>(i % 127 + (i % 2) * 128);
  }
  for (const int scale : {0, 1, 2, 3, 4, 30, 127, 245}) {
    SCOPED_TRACE(scale);
    source.block_scales[0] = static_cast<std::uint8_t>(scale);
    source.block_scales[1] = static_cast<std::uint8_t>(std::max(scale - 1, 0));
    const EncodedMatrix encoded = encode_one(source.view(), {}, {"cpu", 2});
    const Fp4Matrix expected = expected_encoding(source.view(), encoded.matrix.global_scale);
    EXPECT_EQ(encoded.matrix.codes, expected.codes);
    EXPECT_EQ(encoded.matrix.scales, expected.scales);
    expect_same_figures(encoded.tally, plain_tally("m", source.view(), encoded));
  }
}

TEST(GroupEncoder, GateAndUpShareTheLargestAmax) {
  const HostMatrix gate(testing::bf16_spec(), 3, 32, testing::normal_values(1, 96));
  const HostMatrix up(testing::fp8_spec(128, 128, DType::kE8M0), 2, 32,
                      testing::normal_values(2, 64, 5.0));
  const auto encoded = encode_group({{named("gate", gate.view()), named("up", up.view())}});
  const std::vector<float> values = up.values();
  const float global_scale = nvfp4_global_scale(amax(values.data(), 64));
  EXPECT_EQ(encoded[0].matrix.global_scale, global_scale);
  EXPECT_EQ(encoded[0].matrix.codes, expected_encoding(gate.view(), global_scale).codes);
  EXPECT_EQ(encoded[1].matrix.scales, expected_encoding(up.view(), global_scale).scales);
}

// Members of other formats are encoded from values, FP4 or not, and that is counted.
TEST(GroupEncoder, MembersOfDifferentFormats) {
  Fp4Matrix mxfp4(Format::kMxfp4, 2, 32), nvfp4(Format::kNvfp4, 1, 32);
  mxfp4.fill_codes();
  nvfp4.fill_codes();
  const HostMatrix bf16(testing::bf16_spec(), 1, 32, testing::normal_values(1, 32));
  for (const MatrixView& other : {nvfp4.view(), bf16.view()}) {
    const auto encoded = encode_group({{named("a", mxfp4.view()), named("b", other)}});
    EXPECT_EQ(encoded[0].matrix.global_scale, nvfp4_global_scale(6.0f));
    EXPECT_EQ(encoded[0].tally.cast_blocks, 0);
    EXPECT_EQ(encoded[0].tally.reencoded_blocks, 4);
    EXPECT_EQ(encoded[1].tally.reencoded_blocks, is_packed(other.format) ? 2 : 0);
    expect_same_figures(encoded[0].tally, plain_tally("a", mxfp4.view(), encoded[0]));
    expect_same_figures(encoded[1].tally, plain_tally("b", other, encoded[1]));
  }
}

// Bytes, and every bit of the figures: whatever the threads, the pieces and the backend.
TEST(GroupEncoder, ThreadsPiecesAndBackendsDoNotShow) {
  Fp4Matrix gate(Format::kNvfp4, 150, 80), up(Format::kNvfp4, 150, 80);
  testing::Random random(5);
  for (Fp4Matrix* matrix : {&gate, &up}) {
    matrix->fill_codes();
    matrix->global_scale = matrix == &gate ? 0.011f : 0.03f;
    for (std::uint8_t& scale : matrix->scales) scale = static_cast<std::uint8_t>(random.index(127));
  }
  std::vector<MatrixGroup> groups = {{{named("gate", gate.view()), named("up", up.view())}}};
  // The largest exponent stands once, in the middle, above blocks of zeros that claim larger ones.
  Fp4Matrix mxfp4(Format::kMxfp4, 300, 96);
  mxfp4.fill_codes();
  for (std::uint8_t& scale : mxfp4.scales)
    scale = static_cast<std::uint8_t>(100 + random.index(25));
  mxfp4.scale(171, 1) = 130;
  for (std::int64_t row = 0; row < mxfp4.rows; row += 50) {
    mxfp4.set_block_codes(row, 2, 8);
    mxfp4.scale(row, 2) = 200;
  }
  groups.push_back({{named("mxfp4", mxfp4.view())}});
  EXPECT_EQ(encode_group(groups.back())[0].matrix.global_scale, 0x1p-5f);
  std::vector<HostMatrix> sources;
  for (const MatrixSpec& spec : value_specs()) {
    sources.emplace_back(spec, 300, 80, hard_values(7, 300 * 80));
  }
  for (const HostMatrix& source : sources)
    groups.push_back({{named(source.spec.name, source.view())}});
  for (const MatrixGroup& group : groups) {
    SCOPED_TRACE(group.members[0].name);
    const auto expected = encode_group(group);
    for (const EncoderSetup& setup :
         {EncoderSetup{"reference", 1, 1}, EncoderSetup{"reference", 3, 7},
          EncoderSetup{"cpu", 1, 129}, EncoderSetup{"cpu", 2, 1 << 30},
          EncoderSetup{"cpu", 4, 13}}) {
      SCOPED_TRACE(fmt::format("{} {} {}", setup.backend, setup.num_threads, setup.rows_per_call));
      const auto got = encode_group(group, {}, setup);
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].matrix.global_scale, expected[i].matrix.global_scale);
        EXPECT_EQ(got[i].matrix.codes, expected[i].matrix.codes);
        EXPECT_EQ(got[i].matrix.scales, expected[i].matrix.scales);
        EXPECT_EQ(got[i].tally, expected[i].tally);
      }
    }
  }
}

// More rows than one chunk holds, a row longer than a chunk, tiles cut anywhere.
TEST(GroupEncoder, ChunksOfItsOwnDoNotShow) {
  struct Case {
    MatrixSpec spec;
    std::int64_t rows, cols;
  };
  for (const Case& c : {Case{testing::bf16_spec(), 5000, 16},
                        Case{testing::fp8_spec(128, 128, DType::kE8M0), 400, 4096},
                        Case{testing::f32_spec(), 2, kEncoderChunkValues + 16}}) {
    SCOPED_TRACE(c.spec.name);
    const HostMatrix source(c.spec, c.rows, c.cols, testing::normal_values(1, c.rows * c.cols));
    const EncodedMatrix whole = encode_one(source.view(), {}, {"cpu", 2});
    const EncodedMatrix cut = encode_one(source.view(), {}, {"cpu", 2, c.rows / 2 + 3});
    const Fp4Matrix expected = expected_encoding(source.view(), whole.matrix.global_scale);
    EXPECT_EQ(whole.matrix.codes, expected.codes);
    EXPECT_EQ(cut.matrix.codes, expected.codes);
    EXPECT_EQ(cut.tally, whole.tally);
  }
}

// A fallback scale of 1 for zero blocks is NaN in E4M3 once it is divided by a small global scale.
TEST(GroupEncoder, AZeroBlockInATensorOfAmaxAThousandth) {
  std::vector<float> values = testing::uniform_values(1, 64, -1e-3, 1e-3);
  std::fill_n(values.begin() + 16, 16, 0.0f);
  const HostMatrix source(testing::f32_spec(), 1, 64, values);
  const EncodedMatrix encoded = encode_one(source.view());
  EXPECT_EQ(encoded.matrix.scales[1], 0);
  for (const std::uint8_t scale : encoded.matrix.scales) EXPECT_LE(scale, encode_e4m3(448.0f));
  EXPECT_EQ(encoded.tally.zeroed_blocks, 0);
  EXPECT_EQ(encoded.tally.scales_too_large, 0);
}

// Experts that training never reached: FP8 tiles with scales near the end of FP32 and past it.
TEST(GroupEncoder, DeadExperts) {
  for (const float tile_scale : {1e-23f, 1e-38f}) {
    SCOPED_TRACE(tile_scale);
    HostMatrix source(testing::fp8_spec(128, 128, DType::kF32), 2, 32,
                      testing::uniform_values(1, 64, 1, 448));
    std::memcpy(source.block_scales.data(), &tile_scale, sizeof(tile_scale));
    const EncodedMatrix encoded = encode_one(source.view());
    EXPECT_TRUE(encoded.matrix.global_scale > 0);
    for (const float value : decoded_values(encoded.matrix.view())) EXPECT_TRUE(is_finite(value));
    expect_same_figures(encoded.tally, plain_tally("m", source.view(), encoded));
    // A code is off by a quarter of the value at most, and a block scale by 1/16.
    EXPECT_LT(encoded.tally.relative_error(), 0.25 + 1.0 / 16);
    EXPECT_EQ(encoded.tally.zeroed_blocks, 0);
  }
}

// amax / 2688 is 0 in FP32: nothing can be kept, and 1 / 0 must not be made of it.
TEST(GroupEncoder, AnAmaxSoSmallThatTheGlobalScaleUnderflows) {
  const std::vector<float> values = {1e-42f, -1e-43f, 1e-45f, 0, 0, 0, 0, 0,
                                     0,      0,       0,      0, 0, 0, 0, 0};
  const EncodedMatrix encoded = encode_one(HostMatrix(testing::f32_spec(), 1, 16, values).view());
  EXPECT_EQ(encoded.matrix.global_scale, 1.0f);
  EXPECT_EQ(encoded.matrix.scales, std::vector<std::uint8_t>{0});
  EXPECT_EQ(encoded.matrix.codes, std::vector<std::uint8_t>(8));
  EXPECT_EQ(encoded.tally.zeroed_blocks, 1);
  EXPECT_EQ(encoded.tally.scales_too_small, 1);
  EXPECT_EQ(encoded.tally.exact_values, 13);
  EXPECT_EQ(encoded.tally.relative_error(), 1);
  EXPECT_EQ(encoded.tally.cosine(), 0);
}

TEST(GroupEncoder, AllZeros) {
  for (const bool four_over_six : {false, true}) {
    const EncodedMatrix encoded =
        encode_one(HostMatrix(testing::bf16_spec(), 2, 32, std::vector<float>(64)).view(),
                   {E2m1Rounding::kNearestEven, four_over_six});
    EXPECT_EQ(encoded.matrix.global_scale, 1.0f);
    EXPECT_EQ(encoded.matrix.scales, std::vector<std::uint8_t>(4));
    EXPECT_EQ(encoded.matrix.codes, std::vector<std::uint8_t>(32));
    EXPECT_TRUE(encoded.tally.lossless());
    EXPECT_EQ(encoded.tally.zeroed_blocks, 0);
  }
}

TEST(GroupEncoder, NoRowsAndNoColumns) {
  for (const MatrixSpec& spec : value_specs()) {
    EXPECT_EQ(encode_one(HostMatrix(spec, 0, 32, {}).view()).tally, ErrorTally());
    EXPECT_EQ(encode_one(HostMatrix(spec, 3, 0, {}).view()).tally, ErrorTally());
  }
}

void expect_refused(const MatrixView& view, const std::string& place, const std::string& value) {
  const HostMatrix good(testing::bf16_spec(), 1, view.cols,
                        std::vector<float>(static_cast<std::size_t>(view.cols), 1.0f));
  for (const int num_threads : {1, 3}) {
    expect_error(ErrorCode::kBadCheckpoint,
                 {"layers.7.ffn.experts.3.w1", place, "is " + value + ";"}, [&] {
                   encode_group({{named("other", view.format == Format::kBf16 ? good.view() : view),
                                  named("layers.7.ffn.experts.3.w1", view)}},
                                {}, {"cpu", num_threads});
                 });
  }
}

// The first in order of rows and columns is named, not the first that a thread meets.
TEST(GroupEncoder, NamesTheFirstValueThatIsNanOrInfinite) {
  for (const MatrixSpec& spec : {testing::f32_spec(), testing::bf16_spec()}) {
    for (const auto& [value, text] :
         {std::pair{kNan, "nan"}, std::pair{kInfinity, "inf"}, std::pair{-kInfinity, "-inf"}}) {
      std::vector<float> values(3000 * 16, 1.0f);
      values[2999 * 16 + 15] = value;
      const HostMatrix last(spec, 3000, 16, values);
      expect_error(ErrorCode::kBadCheckpoint,
                   {"matrix m:", "row 2999, column 15", std::string("is ") + text + ";"}, [&] {
                     encode_one(last.view(), {}, {"cpu", 2});
                   });
      values[1234 * 16 + 5] = value;
      const HostMatrix two(spec, 3000, 16, values);
      expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 1234, column 5"}, [&] {
        encode_one(two.view(), {}, {"cpu", 3});
      });
    }
  }
}

TEST(GroupEncoder, RefusesNanCodesAndScalesOfFp8) {
  for (const std::uint8_t code : {0x7F, 0xFF}) {
    HostMatrix source(testing::fp8_spec(128, 128, DType::kE8M0), 130, 256,
                      std::vector<float>(130 * 256, 1.0f));
    source.data[129 * 256 + 200] = code;
    expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 129, column 200", "nan"},
                 [&] { encode_one(source.view()); });
  }
  HostMatrix e8m0(testing::fp8_spec(128, 128, DType::kE8M0), 130, 256,
                  std::vector<float>(130 * 256));
  e8m0.block_scales[3] = kE8m0Nan;
  expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 128, column 128", "nan"},
               [&] { encode_one(e8m0.view()); });
  for (const float scale : {kNan, kInfinity}) {
    HostMatrix f32(testing::fp8_spec(128, 128, DType::kF32), 130, 256,
                   std::vector<float>(130 * 256, 1.0f));
    std::memcpy(f32.block_scales.data() + 4, &scale, sizeof(scale));
    expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 0, column 128"},
                 [&] { encode_one(f32.view()); });
  }
}

TEST(GroupEncoder, RefusesNanScalesAndInfiniteValuesOfFp4) {
  Fp4Matrix mxfp4(Format::kMxfp4, 300, 64);
  mxfp4.scale(299, 1) = kE8m0Nan;  // of zeros, even
  expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 299, column 32", "nan"}, [&] {
    encode_one(mxfp4.view(), {}, {"cpu", 2});
  });
  mxfp4.scale(299, 1) = kE8m0Max;
  EXPECT_TRUE(encode_one(mxfp4.view()).tally.lossless());
  mxfp4.set_code(299, 40, 12);  // -2 * 2^127
  expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 299, column 40", "-inf"},
               [&] { encode_one(mxfp4.view()); });
  for (const std::uint8_t scale : {0x7F, 0xFF}) {
    Fp4Matrix nvfp4(Format::kNvfp4, 3, 32);
    nvfp4.scale(2, 1) = scale;
    expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 2, column 16", "nan"},
                 [&] { encode_one(nvfp4.view()); });
  }
  Fp4Matrix large(Format::kNvfp4, 1, 16);
  large.global_scale = 1e36f;
  large.scale(0, 0) = encode_e4m3(448.0f);
  large.set_code(0, 3, 7);
  expect_error(ErrorCode::kBadCheckpoint, {"matrix m:", "row 0, column 3", "inf"},
               [&] { encode_one(large.view()); });
}

TEST(GroupEncoder, NamesTheMemberThatIsRefused) {
  std::vector<float> values(32, 1.0f);
  values[17] = kNan;
  expect_refused(HostMatrix(testing::bf16_spec(), 2, 16, values).view(), "row 1, column 1", "nan");
}

TEST(GroupEncoder, RefusesColumnsThatAreNoMultipleOfSixteen) {
  for (const std::int64_t cols : {1, 15, 17, 40}) {
    const HostMatrix source(testing::bf16_spec(), 1, cols,
                            std::vector<float>(static_cast<std::size_t>(cols), 1.0f));
    expect_error(ErrorCode::kUnsupported, {"matrix m ", std::to_string(cols), "multiple of 16"},
                 [&] { encode_one(source.view()); });
  }
}

// Whoever releases the pages of what was read hears of every row once, in order.
TEST(GroupEncoder, TellsWhichRowsWereRead) {
  const HostMatrix bf16(testing::bf16_spec(), 5000, 16, testing::normal_values(1, 5000 * 16));
  const Fp4Matrix mxfp4(Format::kMxfp4, 9000, 32);
  const auto backend = open_backend("reference");
  ThreadPool pool(2);
  for (const MatrixView& view : {bf16.view(), mxfp4.view()}) {
    std::vector<std::string> order;
    std::int64_t next = 0;
    const MatrixGroup group{{named("a", view), named("b", view)}};
    const GroupEncoder encoder(
        *backend, pool, group, {},
        [&](const NamedMatrix& matrix, std::int64_t begin, std::int64_t end) {
          if (begin == 0) {
            next = 0;
            order.push_back(matrix.name);
          }
          EXPECT_EQ(begin, next);
          EXPECT_GT(end, begin);
          next = end;
        });
    EXPECT_EQ(next, view.rows);
    EXPECT_EQ(order, (std::vector<std::string>{"a", "b"}));
  }
}

}  // namespace
}  // namespace dsv4
