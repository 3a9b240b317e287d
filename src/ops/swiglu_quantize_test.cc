// SwiGLU and quantisation in one op: every backend against the two steps one after the other, byte
// for byte. The steps themselves: numerics/silu_test.cc, quantize_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "numerics/silu.h"
#include "ops/quantize.h"
#include "testing/cases/quantize_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

// The rows that the op quantises, [rows, cols], from gate and up as they are stored.
HostMatrix activated(const SwigluQuantizeCase& c, const SwigluValues& values) {
  const QuantizeCase& q = c.quantize;
  const std::vector<float> gate = HostMatrix(q.x, q.rows, q.cols, values.gate).values();
  const std::vector<float> up = HostMatrix(q.x, q.rows, q.cols, values.up).values();
  std::vector<float> result;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(q.cols);
    result.push_back(
        swiglu(gate[i], up[i], c.swiglu_limit, c.row_weights.empty() ? 1.0f : c.row_weights[row]));
  }
  return HostMatrix(f32_spec(), q.rows, q.cols, result);
}

void expect_same_matrix(const HostMatrix& got, const HostMatrix& want) {
  EXPECT_SAME_BITS(got.data, want.data);
  EXPECT_SAME_BITS(got.block_scales, want.block_scales);
  EXPECT_SAME_BITS(got.global_scales, want.global_scales);
}

TEST_EACH_BACKEND(SwigluQuantize, EqualsSwigluThenQuantize) {
  for (const SwigluQuantizeCase& c : swiglu_quantize_cases()) {
    SCOPED_TRACE(c.quantize.name);
    const SwigluValues values(c);
    const HostMatrix got = run_swiglu_quantize(backend, c, values);
    expect_same_matrix(got, run_quantize(reference_backend(), c.quantize, activated(c, values)));
  }
}

SwigluQuantizeCase nvfp4_case(std::int64_t rows, std::int64_t cols) {
  return {{"nvfp4", rows, cols, f32_spec(), nvfp4_spec(true)}};
}

TEST_EACH_BACKEND(SwigluQuantize, ClampsGateFromAboveOnlyAndUpBothWays) {
  SwigluQuantizeCase c = nvfp4_case(4, 16);
  c.swiglu_limit = 2;
  SwigluValues values(c);
  const std::pair<float, float> clamped[] = {{2, 1}, {-3, 1}, {1, 2}, {1, -2}};
  const std::pair<float, float> given[] = {{9, 1}, {-3, 1}, {1, 9}, {1, -9}};
  for (std::size_t i = 0; i < 64; ++i) {
    values.gate[i] = given[i / 16].first;
    values.up[i] = given[i / 16].second;
  }
  const HostMatrix got = run_swiglu_quantize(backend, c, values);
  for (std::size_t row = 0; row < 4; ++row) {
    // Of a constant row all codes are the largest, with the sign of the value.
    const float h = silu(clamped[row].first) * clamped[row].second;
    EXPECT_EQ(got.data[row * 8], h < 0 ? 0xFF : 0x77);
    EXPECT_EQ(got.global_scales[row], std::fabs(h) / 2688.0f);
  }
}

TEST_EACH_BACKEND(SwigluQuantize, ANanOrInfinityStaysInItsRow) {
  for (const MatrixSpec& out : {fp8_spec(1, 128, DType::kE8M0), mxfp4_spec(), nvfp4_spec(true)}) {
    SCOPED_TRACE(out.name);
    const SwigluQuantizeCase c{{"nan", 3, 128, f32_spec(), out}, 10};
    const HostMatrix clean = run_swiglu_quantize(backend, c, SwigluValues(c));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (std::vector<float> SwigluValues::*half : {&SwigluValues::gate, &SwigluValues::up}) {
        SwigluValues values(c);
        (values.*half)[128 + 7] = bad;
        const HostMatrix got = run_swiglu_quantize(backend, c, values);
        expect_same_matrix(got.row(0), clean.row(0));
        expect_same_matrix(got.row(2), clean.row(2));
      }
    }
  }
}

TEST_EACH_BACKEND(SwigluQuantize, InactiveRowsAreNeitherReadNorWritten) {
  for (const std::int32_t active : {0, 1, 2, 3}) {
    SCOPED_TRACE(active);
    SwigluQuantizeCase c = nvfp4_case(3, 64);
    c.row_weights = {1, 2, 3};
    c.quantize.row_count = active;
    SwigluValues values(c);
    for (std::size_t i = static_cast<std::size_t>(active) * 64; i < values.gate.size(); ++i) {
      values.gate[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const HostMatrix got = run_swiglu_quantize(backend, c, values);
    expect_same_matrix(got, run_quantize(reference_backend(), c.quantize, activated(c, values)));
  }
}

TEST_EACH_BACKEND(SwigluQuantize, ZeroRowsAndZeroColumns) {
  for (const auto& [rows, cols] : {std::pair{0, 32}, std::pair{2, 0}}) {
    const SwigluQuantizeCase c = nvfp4_case(rows, cols);
    EXPECT_TRUE(run_swiglu_quantize(backend, c, SwigluValues(c)).data.empty());
  }
}

}  // namespace
}  // namespace dsv4::testing
