// Quantisation of rows: every backend against the rules of the model, byte for byte.
#include "ops/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/nvfp4.h"
#include "testing/golden_codecs.h"
#include "testing/quantize_oracle.h"

namespace dsv4::testing {
namespace {

QuantizeCase nvfp4_case(std::int64_t rows, std::int64_t cols) {
  return {"nvfp4", rows, cols, f32_spec(), nvfp4_spec(true)};
}

TEST_EACH_BACKEND(Quantize, MatchesTheRulesByteForByte) {
  for (const QuantizeCase& c : quantize_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix x(c.x, c.rows, c.cols, quantize_values(c));
    expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
  }
}

// Whole tensors with hard blocks, encoded by an independent program; one global scale a tensor.
TEST_EACH_BACKEND(Quantize, MatchesGoldenTensors) {
  const GoldenTensors golden(DSV4_SOURCE_DIR "/tests/data/golden/codecs/nvfp4.safetensors");
  for (const std::string name : {"normal", "heavy", "ties", "wide", "zeros_tiny_outliers"}) {
    SCOPED_TRACE(name);
    const std::vector<std::int64_t> shape = golden.shape(name + ".x");
    QuantizeCase c = nvfp4_case(shape[0], shape[1]);
    c.static_global_scales = golden.values<float>(name + ".global_scale", "F32");
    std::vector<float> values;
    for (const std::uint16_t bits : golden.values<std::uint16_t>(name + ".x", "BF16")) {
      values.push_back(decode_bf16(bits));
    }
    for (const MatrixSpec& x : {f32_spec(), bf16_spec()}) {
      SCOPED_TRACE(x.name);
      const HostMatrix got = run_quantize(backend, c, HostMatrix(x, c.rows, c.cols, values));
      EXPECT_SAME_BITS(got.data, golden.values<std::uint8_t>(name + ".codes", "U8"));
      EXPECT_SAME_BITS(got.block_scales,
                       golden.values<std::uint8_t>(name + ".block_scales", "F8_E4M3"));
    }
  }
}

// Every finite BF16, in blocks of like magnitude and, read down the columns, of all magnitudes.
TEST_EACH_BACKEND(Quantize, EveryBf16Value) {
  std::vector<float> neighbours, strangers;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float value = decode_bf16(static_cast<std::uint16_t>(i));
    neighbours.push_back(std::isfinite(value) ? value : 0);
  }
  for (std::size_t i = 0; i < 65536; ++i) strangers.push_back(neighbours[i % 256 * 256 + i / 256]);
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    QuantizeCase c{"bf16", 512, 128, bf16_spec(), out};
    for (const std::vector<float>& values : {neighbours, strangers}) {
      const HostMatrix x(c.x, c.rows, c.cols, values);
      expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
    }
    if (out.format != Format::kNvfp4) continue;
    c.static_global_scales = {1e-3f};
    const HostMatrix x(c.x, c.rows, c.cols, neighbours);
    expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
  }
}

TEST_EACH_BACKEND(Quantize, ScaleAtThePowerOfTwoBoundary) {
  // 448 * 2^k is the last amax under scale 2^k; the next FP32 above needs 2^(k+1).
  const float last = 448.0f * 0x1p-3f;
  const QuantizeCase c{"boundary", 3, 128, f32_spec(), fp8_spec(1, 128, DType::kE8M0)};
  std::vector<float> values(3 * 128);
  values[5] = last;
  values[128 + 5] = std::nextafter(last, 1e9f);
  values[2 * 128 + 5] = std::nextafter(last, 0.0f);
  const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 3, 128, values));
  EXPECT_EQ(got.block_scales, (std::vector<std::uint8_t>{124, 125, 124}));
  EXPECT_EQ(got.data[5], 0x7E);
}

TEST_EACH_BACKEND(Quantize, AllZeroRowsAreUsable) {
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    const QuantizeCase c{"zero", 2, 128, f32_spec(), out};
    const HostMatrix got =
        run_quantize(backend, c, HostMatrix(c.x, 2, 128, std::vector<float>(256)));
    EXPECT_SAME_BITS(got.values(), std::vector<float>(256));
    if (out.format == Format::kNvfp4) {
      EXPECT_SAME_BITS(got.global_scales, (std::vector<float>{1, 1}));
      EXPECT_SAME_BITS(got.block_scales, std::vector<std::uint8_t>(16));
    }
  }
}

TEST_EACH_BACKEND(Quantize, AnAllZeroBlockInASmallTensorHasAScaleOfZero) {
  const QuantizeCase c = nvfp4_case(1, 32);
  std::vector<float> values(32);
  for (std::size_t i = 0; i < 16; ++i) values[i] = 1e-3f;
  const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 1, 32, values));
  EXPECT_EQ(got.block_scales, (std::vector<std::uint8_t>{0x7E, 0}));
  EXPECT_SAME_BITS(std::vector<std::uint8_t>(got.data.begin() + 8, got.data.end()),
                   std::vector<std::uint8_t>(8));
}

TEST_EACH_BACKEND(Quantize, RowsWithTinyScalesStayFinite) {
  // "Dead" experts: inputs around 1e-23, 1e-38 and subnormal.
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    const QuantizeCase c{"tiny", 3, 128, f32_spec(), out};
    std::vector<float> values = normal_values(4, 3 * 128);
    const float factors[] = {1e-23f, 1e-38f, 1e-43f};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / 128];
    const HostMatrix x(c.x, 3, 128, values);
    const HostMatrix got = run_quantize(backend, c, x);
    expect_same_matrix(got, quantize_ref(c, x));
    for (const float value : got.values()) EXPECT_TRUE(std::isfinite(value));
  }
}

TEST_EACH_BACKEND(Quantize, MinusZeroKeepsItsSignUnlessTheBlockIsZero) {
  const QuantizeCase c = nvfp4_case(1, 32);
  std::vector<float> values(32, -0.0f);
  values[16] = 6;  // the second block has something to scale by
  const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 1, 32, values));
  EXPECT_EQ(got.data[0], 0x00);
  EXPECT_EQ(got.data[8], 0x87);
  EXPECT_EQ(got.data[9], 0x88);
}

TEST_EACH_BACKEND(Quantize, HalfStepRoundsTwice) {
  QuantizeCase c = nvfp4_case(1, 16);
  c.static_global_scales = {1};
  std::vector<float> values(16);
  values[0] = 6;  // block scale 1, so that the values are the quotients
  values[1] = 5.25f;
  values[2] = 2.6f;
  const HostMatrix x(c.x, 1, 16, values);
  EXPECT_EQ(run_quantize(backend, c, x).values()[1], 6);
  EXPECT_EQ(run_quantize(backend, c, x).values()[2], 3);
  c.rounding = E2m1Rounding::kHalfStep;
  EXPECT_EQ(run_quantize(backend, c, x).values()[1], 4);
  EXPECT_EQ(run_quantize(backend, c, x).values()[2], 2);
}

TEST_EACH_BACKEND(Quantize, ARowDoesNotDependOnTheOthers) {
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    const QuantizeCase c{"rows", 5, 256, f32_spec(), out};
    const HostMatrix x(c.x, 5, 256, heavy_tailed_values(9, 5 * 256));
    const HostMatrix batch = run_quantize(backend, c, x);
    for (std::int64_t row = 0; row < 5; ++row) {
      expect_same_matrix(run_quantize(backend, c, x.row(row)), batch.row(row));
    }
  }
}

// A backend may take many rows in another way than few. Some blocks are zero, some tiny.
TEST_EACH_BACKEND(Quantize, ManyRowsGiveTheSameBytesAsFew) {
  for (const bool is_static : {false, true}) {
    QuantizeCase c = nvfp4_case(1030, 2048 + 32);
    c.x = bf16_spec();
    if (is_static) c.static_global_scales = {0.01f};
    std::vector<float> values = quantize_values(c);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i / 16 % 11 == 3) values[i] = 0;
      if (i / 16 % 13 == 5) values[i] *= 1e-6f;
    }
    const HostMatrix x(c.x, c.rows, c.cols, values);
    const HostMatrix got = run_quantize(backend, c, x);
    expect_same_matrix(got, run_quantize(reference_backend(), c, x));
    for (const std::int64_t row : {0, 1, 1029}) {
      expect_same_matrix(run_quantize(backend, c, x.row(row)), got.row(row));
    }
  }
}

TEST_EACH_BACKEND(Quantize, ANanOrInfinityStaysInItsRow) {
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    const QuantizeCase c{"nan", 3, 128, f32_spec(), out};
    std::vector<float> values = normal_values(8, 3 * 128);
    const HostMatrix clean = run_quantize(backend, c, HostMatrix(c.x, 3, 128, values));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      values[128 + 7] = bad;
      const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 3, 128, values));
      expect_same_matrix(got.row(0), clean.row(0));
      expect_same_matrix(got.row(2), clean.row(2));
    }
  }
}

TEST_EACH_BACKEND(Quantize, InactiveRowsAreNotWritten) {
  for (const std::int32_t active : {0, 1, 2, 3}) {
    SCOPED_TRACE(active);
    for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
      QuantizeCase c{"inactive", 3, 128, f32_spec(), out};
      c.row_count = active;
      // Inactive rows hold NaN, as rows nobody wrote do.
      std::vector<float> values = normal_values(8, 3 * 128);
      for (std::size_t i = static_cast<std::size_t>(active) * 128; i < values.size(); ++i) {
        values[i] = std::numeric_limits<float>::quiet_NaN();
      }
      const HostMatrix x(c.x, 3, 128, values);
      expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
    }
  }
}

TEST_EACH_BACKEND(Quantize, ZeroRowsAndZeroColumns) {
  const QuantizeCase c = nvfp4_case(0, 32);
  EXPECT_TRUE(run_quantize(backend, c, HostMatrix(c.x, 0, 32)).data.empty());
  EXPECT_TRUE(run_quantize(backend, c, HostMatrix(c.x, 2, 0)).data.empty());
}

TEST_EACH_BACKEND(Quantize, StaticScaleWithoutOneARowIsNotCopied) {
  QuantizeCase c = nvfp4_case(2, 16);
  c.out = nvfp4_spec(false);
  c.static_global_scales = {0.5f};
  const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 2, 16, normal_values(1, 32)));
  EXPECT_TRUE(std::isnan(got.global_scales[0]));
}

}  // namespace
}  // namespace dsv4::testing
