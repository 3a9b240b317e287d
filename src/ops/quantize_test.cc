// Quantisation of rows: every backend against the rules of the model, byte for byte.
//
// The oracle below searches decoded values in double; it shares no bit arithmetic with numerics/.
#include "ops/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/nvfp4.h"
#include "testing/cases/quantize_cases.h"
#include "testing/codec_oracle.h"
#include "testing/comparator.h"
#include "testing/golden_codecs.h"

namespace dsv4::testing {
namespace {

const std::vector<float> kE2m1Values = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

std::vector<float> e4m3_values() {
  std::vector<float> values;
  for (int code = 0; code < 0x7F; ++code) {
    const int exponent = code >> 3;
    const int mantissa = code & 7;
    values.push_back(exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
  }
  return values;
}

int signed_code(double x, const std::vector<float>& magnitudes, int sign_bit) {
  return nearest_code(x, magnitudes) | (std::signbit(x) ? sign_bit : 0);
}

// E2M1 by rounding to whole half steps first, then by the table of MODEL's compatibility rounding.
int half_step_code(double x) {
  const int half_steps = static_cast<int>(std::nearbyint(std::fmin(std::fabs(x), 6.0) * 2));
  const int codes[] = {0, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6, 7, 7};
  return codes[half_steps] | (std::signbit(x) ? 8 : 0);
}

// The exponent k of the smallest 2^k with largest * 2^k >= max(amax, floor).
int smallest_exponent(double amax_value, double floor, double largest) {
  int k = -126;
  while (std::ldexp(largest, k) < std::fmax(amax_value, floor)) ++k;
  return k;
}

double largest_magnitude(const float* x, std::int64_t n) {
  double largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::fmax(largest, std::fabs(double{x[i]}));
  return largest;
}

void set_code(HostMatrix& m, std::int64_t row, std::int64_t col, int code) {
  const std::int64_t byte =
      row * data_bytes(m.spec.format, m.row_stride) + (is_packed(m.spec.format) ? col / 2 : col);
  std::uint8_t& target = m.data[static_cast<std::size_t>(byte)];
  if (!is_packed(m.spec.format)) {
    target = static_cast<std::uint8_t>(code);
  } else if (col % 2 == 0) {
    target = static_cast<std::uint8_t>(code);
  } else {
    target = static_cast<std::uint8_t>(target | code << 4);
  }
}

void quantize_block_ref(const QuantizeCase& c, HostMatrix& out, std::int64_t row,
                        std::int64_t begin, const float* x, std::int64_t n) {
  const auto scale_idx =
      static_cast<std::size_t>(row * out.scale_stride + begin / out.spec.block_cols);
  const double block_amax = largest_magnitude(x, n);
  if (c.out.format != Format::kNvfp4) {
    const bool fp8 = c.out.format == Format::kE4m3;
    const int k = fp8 ? smallest_exponent(block_amax, double{1e-4f}, 448)
                      : smallest_exponent(block_amax, std::ldexp(6.0, -126), 6);
    out.block_scales[scale_idx] = static_cast<std::uint8_t>(k + 127);
    for (std::int64_t i = 0; i < n; ++i) {
      const double quotient = std::ldexp(double{x[i]}, -k);
      set_code(
          out, row, begin + i,
          fp8 ? signed_code(quotient, e4m3_values(), 0x80) : signed_code(quotient, kE2m1Values, 8));
    }
    return;
  }
  const float g = out.global_scales[static_cast<std::size_t>(row)];
  const float ratio = static_cast<float>(block_amax) / (6.0f * g);
  const int scale_code = block_amax == 0 ? 0 : nearest_code(ratio, e4m3_values());
  const float p = e4m3_values()[static_cast<std::size_t>(scale_code)] * g;
  out.block_scales[scale_idx] = static_cast<std::uint8_t>(scale_code);
  for (std::int64_t i = 0; i < n; ++i) {
    int code = 0;
    if (p != 0) {
      const float quotient = x[i] / p;
      code = c.rounding == E2m1Rounding::kHalfStep ? half_step_code(quotient)
                                                   : signed_code(quotient, kE2m1Values, 8);
    }
    set_code(out, row, begin + i, code);
  }
}

HostMatrix quantize_ref(const QuantizeCase& c, const HostMatrix& x) {
  HostMatrix out(c.out, c.out_rows(x), x.cols);
  const std::vector<float> values = x.values();
  for (std::int64_t row = 0; row < c.row_count.value_or(static_cast<std::int32_t>(out.rows));
       ++row) {
    const auto r = static_cast<std::size_t>(row);
    const float* row_x = values.data() + (c.row_idx.empty() ? row : c.row_idx[r]) * x.cols;
    if (c.out.format == Format::kNvfp4) {
      const double row_amax = largest_magnitude(row_x, x.cols);
      float g = row_amax > 0 ? static_cast<float>(row_amax) / 2688.0f : 1.0f;
      if (!c.static_global_scales.empty()) {
        const std::int32_t idx = c.global_scale_idx.empty() ? 0 : c.global_scale_idx[r];
        g = c.static_global_scales[static_cast<std::size_t>(idx)];
      }
      out.global_scales[r] = g;
    }
    for (std::int64_t begin = 0; begin < x.cols; begin += c.out.block_cols) {
      quantize_block_ref(c, out, row, begin, row_x + begin,
                         std::min(c.out.block_cols, x.cols - begin));
    }
  }
  return out;
}

void expect_same_matrix(const HostMatrix& got, const HostMatrix& want) {
  EXPECT_SAME_BITS(got.data, want.data);
  EXPECT_SAME_BITS(got.block_scales, want.block_scales);
  EXPECT_SAME_BITS(got.global_scales, want.global_scales);
}

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
    const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, c.rows, c.cols, values));
    EXPECT_SAME_BITS(got.data, golden.values<std::uint8_t>(name + ".codes", "U8"));
    EXPECT_SAME_BITS(got.block_scales,
                     golden.values<std::uint8_t>(name + ".block_scales", "F8_E4M3"));
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
