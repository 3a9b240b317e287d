// Decoding and the largest magnitude: every backend against values found without numerics/.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/quantize.h"
#include "testing/cases/dequantize_cases.h"
#include "testing/quantize_oracle.h"

namespace dsv4::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float e4m3_value(std::uint8_t code) {
  if ((code & 0x7F) == 0x7F) return kNan;
  const float magnitude = e4m3_values()[code & 0x7F];
  return code >= 0x80 ? -magnitude : magnitude;
}

float block_scale_value(const HostMatrix& m, std::int64_t row, std::int64_t col) {
  const auto idx =
      static_cast<std::size_t>(row / m.spec.block_rows * m.scale_stride + col / m.spec.block_cols);
  if (m.spec.format == Format::kNvfp4) return e4m3_value(m.block_scales[idx]);
  if (m.spec.scale_dtype == DType::kE8M0) {
    return m.block_scales[idx] == 0xFF ? kNan : std::ldexp(1.0f, m.block_scales[idx] - 127);
  }
  float scale;
  std::memcpy(&scale, &m.block_scales[4 * idx], sizeof(scale));
  return scale;
}

float value_ref(const HostMatrix& m, std::int64_t row, std::int64_t col) {
  const float scale = block_scale_value(m, row, col);
  const std::int64_t at = row * m.row_stride + col;
  if (m.spec.format == Format::kE4m3)
    return e4m3_value(m.data[static_cast<std::size_t>(at)]) * scale;
  const int code = m.data[static_cast<std::size_t>(at / 2)] >> (col % 2 == 0 ? 0 : 4) & 15;
  const float magnitude = kE2m1Values[static_cast<std::size_t>(code & 7)];
  const float value = (code >= 8 ? -magnitude : magnitude) * scale;
  if (m.spec.format == Format::kMxfp4) return value;
  return value * m.global_scales[m.global_scales.size() == 1 ? 0 : static_cast<std::size_t>(row)];
}

// To BF16 by whole multiples of the last place; past the largest BF16 that is 2^128, infinity.
float bf16_ref(float x) {
  if (!std::isfinite(x) || x == 0) return x;
  const double last_place = std::ldexp(1.0, std::max(std::ilogb(x), -126) - 7);
  return static_cast<float>(std::nearbyint(x / last_place) * last_place);
}

HostMatrix dequantize_ref(const HostMatrix& m, const MatrixSpec& out) {
  std::vector<float> values;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    for (std::int64_t col = 0; col < m.cols; ++col) {
      const float value = value_ref(m, row, col);
      values.push_back(std::isnan(value) ? kNan
                                         : (out.format == Format::kBf16 ? bf16_ref(value) : value));
    }
  }
  return HostMatrix(out, m.rows, m.cols, values);
}

TEST_EACH_BACKEND(Dequantize, MatchesTheRulesBitForBit) {
  for (const DequantizeCase& c : dequantize_cases()) {
    const HostMatrix x = dequantize_input(c);
    for (const MatrixSpec& out : {f32_spec(), bf16_spec(), bf16_spec().padded(5)}) {
      SCOPED_TRACE(c.name + " to " + out.name);
      EXPECT_SAME_BITS(run_dequantize(backend, x, out).data, dequantize_ref(x, out).data);
    }
  }
}

// Every E4M3 code, every E2M1 code under every block scale, under global scales to both ends.
TEST_EACH_BACKEND(Dequantize, EveryCodeUnderEveryScale) {
  HostMatrix mxfp4(mxfp4_spec(), 256, 32);
  HostMatrix nvfp4(nvfp4_spec(), 256, 16);
  HostMatrix fp8(fp8_spec(1, 128, DType::kE8M0), 256, 256);
  for (std::size_t row = 0; row < 256; ++row) {
    for (std::size_t i = 0; i < 256; ++i) {
      fp8.data[row * 256 + i] = static_cast<std::uint8_t>(i);
      fp8.block_scales[2 * row + i / 128] = static_cast<std::uint8_t>(row);
      if (i < 16) mxfp4.data[row * 16 + i] = static_cast<std::uint8_t>(2 * i % 16 * 17 + 16);
      if (i < 8) nvfp4.data[row * 8 + i] = static_cast<std::uint8_t>(2 * i * 17 + 16);
    }
    mxfp4.block_scales[row] = nvfp4.block_scales[row] = static_cast<std::uint8_t>(row);
  }
  for (const MatrixSpec& out : {f32_spec(), bf16_spec()}) {
    EXPECT_SAME_BITS(run_dequantize(backend, mxfp4, out).data, dequantize_ref(mxfp4, out).data);
    EXPECT_SAME_BITS(run_dequantize(backend, fp8, out).data, dequantize_ref(fp8, out).data);
    for (const float g : {1.0f, 0.3f, 1e-44f, 1.1e-40f, 2.5e35f, 3e38f, 0.0f}) {
      SCOPED_TRACE(g);
      nvfp4.global_scales = {g};
      EXPECT_SAME_BITS(run_dequantize(backend, nvfp4, out).data, dequantize_ref(nvfp4, out).data);
    }
  }
}

TEST_EACH_BACKEND(Dequantize, ZeroRowsAndZeroColumns) {
  for (const MatrixSpec& x : {mxfp4_spec(), nvfp4_spec(), fp8_spec(128, 128, DType::kE8M0)}) {
    EXPECT_TRUE(run_dequantize(backend, HostMatrix(x, 0, 32), bf16_spec()).data.empty());
    EXPECT_TRUE(run_dequantize(backend, HostMatrix(x, 2, 0), bf16_spec()).data.empty());
  }
}

float amax_ref(const HostMatrix& m) {
  float largest = 0;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    for (std::int64_t col = 0; col < m.cols; ++col) {
      const float value = std::fabs(value_ref(m, row, col));
      if (std::isnan(value)) return kNan;
      largest = std::fmax(largest, value);
    }
  }
  return largest;
}

TEST_EACH_BACKEND(Amax, OfEveryQuantisedFormat) {
  for (const DequantizeCase& c : dequantize_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix x = dequantize_input(c);
    EXPECT_SAME_BITS(std::vector{run_amax(backend, x)}, std::vector{amax_ref(x)});
  }
}

// At every place of a row, of either sign, above zeros and with padding behind.
TEST_EACH_BACKEND(Amax, FindsTheLargestWhereverItIs) {
  for (const MatrixSpec& spec : {f32_spec().padded(3), bf16_spec().padded(3)}) {
    for (const std::int64_t cols : {1, 31, 32, 33, 67}) {
      for (std::int64_t at = 0; at < 2 * cols; ++at) {
        std::vector<float> values(static_cast<std::size_t>(2 * cols), -0.0f);
        values[static_cast<std::size_t>(at)] = at % 2 == 0 ? 0x1p-120f : -0x1p-120f;
        EXPECT_EQ(run_amax(backend, HostMatrix(spec, 2, cols, values)), 0x1p-120f) << at;
      }
    }
    EXPECT_SAME_BITS(std::vector{run_amax(backend, HostMatrix(spec, 1, 2, {-0.0f, 0.0f}))},
                     std::vector{0.0f});
  }
}

TEST_EACH_BACKEND(Amax, ANanIsAboveInfinityAndComesOutAsTheQuietOne) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec()}) {
    std::vector<float> values(3 * 50, 1.0f);
    values[77] = -kInfinity;
    EXPECT_EQ(run_amax(backend, HostMatrix(spec, 3, 50, values)), kInfinity);
    values[0] = f32_from_bits(0xFF900000u);
    EXPECT_SAME_BITS(std::vector{run_amax(backend, HostMatrix(spec, 3, 50, values))},
                     std::vector{kNan});
  }
}

TEST_EACH_BACKEND(Amax, ZeroOfAnEmptyMatrix) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec(), nvfp4_spec()}) {
    EXPECT_SAME_BITS(std::vector{run_amax(backend, HostMatrix(spec, 0, 32))}, std::vector{0.0f});
    EXPECT_SAME_BITS(std::vector{run_amax(backend, HostMatrix(spec, 2, 0))}, std::vector{0.0f});
  }
}

}  // namespace
}  // namespace dsv4::testing
