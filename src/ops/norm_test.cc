// Root-mean-square norm: every backend against the formula in long double.
#include "ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing/cases/norm_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

// x / hypot-like root, one quotient a value, where the op multiplies by a reciprocal root.
std::vector<double> norm_ref(const NormCase& c, const NormInputs& in) {
  const std::vector<float> x = in.x.values();
  std::vector<float> weight(static_cast<std::size_t>(c.cols), 1.0f);
  if (in.weight) weight = in.weight->values();
  std::vector<double> out;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const float* row_x = x.data() + row * c.cols;
    long double squares = 0;
    for (std::int64_t k = 0; k < c.cols; ++k) {
      squares += static_cast<long double>(row_x[k]) * row_x[k];
    }
    const long double root =
        std::sqrt(squares / static_cast<long double>(c.cols) + static_cast<long double>(c.eps));
    for (std::int64_t k = 0; k < c.cols; ++k) {
      out.push_back(static_cast<double>(row_x[k] / root * weight[static_cast<std::size_t>(k)]));
    }
  }
  return out;
}

// The sum of squares has no cancellation: its relative error is the accumulation bound, of which
// the root takes half. Then: mean, eps, root, reciprocal and two products.
Tolerance norm_tolerance(const NormCase& c) {
  Tolerance tolerance = rounding_tolerance(6, c.out.format);
  tolerance.relative += accumulation_bound(c.cols) / 2;
  return tolerance;
}

TEST_EACH_BACKEND(Norm, MatchesTheFormula) {
  for (const NormCase& c : norm_cases()) {
    SCOPED_TRACE(c.name);
    const NormInputs in = make_inputs(c);
    EXPECT_CLOSE(run_norm(backend, c, in).values(), norm_ref(c, in), norm_tolerance(c));
  }
}

TEST_EACH_BACKEND(Norm, ByHand) {
  // mean(3^2, 4^2, 0, 0) = 6.25, root 2.5.
  NormCase c{"by_hand", 1, 4};
  c.eps = 0;
  const NormInputs in{HostMatrix(f32_spec(), 1, 4, {3, -4, 0, 0}),
                      HostMatrix(f32_spec(), 1, 4, {1, 2, 3, 4})};
  EXPECT_CLOSE(run_norm(backend, c, in).values(), (std::vector<double>{1.2, -3.2, 0, 0}),
               norm_tolerance(c));
}

TEST_EACH_BACKEND(Norm, AZeroRowStaysZero) {
  const NormCase c{"zero", 2, 64};
  NormInputs in = make_inputs(c);
  in.x = HostMatrix(c.x, 2, 64, std::vector<float>(128));
  EXPECT_SAME_BITS(run_norm(backend, c, in).values(), std::vector<float>(128));
}

TEST_EACH_BACKEND(Norm, EpsDecidesForTinyRows) {
  // mean(x^2) = 1e-12 is a millionth of eps: the result is x / sqrt(eps), not 1.
  const NormCase c{"tiny", 1, 64, f32_spec(), std::nullopt};
  const NormInputs in{HostMatrix(c.x, 1, 64, std::vector<float>(64, 1e-6f)), {}};
  EXPECT_CLOSE(run_norm(backend, c, in).values(), norm_ref(c, in), norm_tolerance(c));
  EXPECT_LT(run_norm(backend, c, in).values()[0], 1.1e-3f);
}

TEST_EACH_BACKEND(Norm, OutMayBeX) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec()}) {
    const NormCase c{"in_place", 3, 512, spec, f32_spec(), spec};
    const NormInputs in = make_inputs(c);
    const DeviceMatrix x(backend, in.x);
    const DeviceMatrix weight(backend, *in.weight);
    RmsNormParams params;
    params.x = x.view();
    params.weight = weight.view();
    params.eps = c.eps;
    params.out = x.mutable_view();
    run_op(backend, params);
    EXPECT_SAME_BITS(x.values(), run_norm(backend, c, in).values());
  }
}

TEST_EACH_BACKEND(Norm, ARowAloneHasTheBitsItHasInABatch) {
  NormCase c{"batch", 33, 1537};
  const NormInputs in = make_inputs(c);
  const HostMatrix batch = run_norm(backend, c, in);
  for (const std::int64_t row : {0, 16, 32}) {
    EXPECT_SAME_BITS(run_norm(backend, c, {in.x.row(row), in.weight}).values(),
                     batch.row(row).values());
  }
}

TEST_EACH_BACKEND(Norm, InactiveRowsAreNeitherReadNorWritten) {
  for (const std::int32_t active : {-1, 0, 1, 2, 3, 4}) {
    SCOPED_TRACE(active);
    NormCase c{"inactive", 3, 16};
    const NormInputs in = make_inputs(c);
    const HostMatrix all = run_norm(backend, c, in);
    c.row_count = active;
    const HostMatrix got = run_norm(backend, c, in);
    const auto written =
        static_cast<std::ptrdiff_t>(std::clamp(active, 0, 3)) * 16 * std::ptrdiff_t{sizeof(float)};
    std::vector<std::uint8_t> want(all.data.size(), kPoisonByte);
    std::copy(all.data.begin(), all.data.begin() + written, want.begin());
    EXPECT_SAME_BITS(got.data, want);
  }
}

TEST_EACH_BACKEND(Norm, ANanStaysInItsRow) {
  const NormCase c{"nan", 3, 64};
  NormInputs in = make_inputs(c);
  const HostMatrix clean = run_norm(backend, c, in);
  std::vector<float> x = in.x.values();
  x[64 + 3] = std::numeric_limits<float>::quiet_NaN();
  in.x = HostMatrix(c.x, 3, 64, x);
  const HostMatrix got = run_norm(backend, c, in);
  EXPECT_SAME_BITS(got.row(0).values(), clean.row(0).values());
  EXPECT_SAME_BITS(got.row(2).values(), clean.row(2).values());
  for (const float value : got.row(1).values()) EXPECT_TRUE(std::isnan(value));
}

TEST_EACH_BACKEND(Norm, NoRows) {
  const NormCase c{"empty", 0, 64};
  EXPECT_TRUE(run_norm(backend, c, make_inputs(c)).data.empty());
}

struct NormCall {
  HostMatrix x{bf16_spec(), 3, 64};
  HostMatrix weight{bf16_spec(), 1, 64};
  HostMatrix out{f32_spec(), 3, 64};
  RmsNormParams params;
  NormCall() {
    params.x = x.view();
    params.weight = weight.view();
    params.out = out.mutable_view();
    params.eps = 1e-6f;
    check(params);
  }
};

TEST(NormRefuses, WhatItCannotFollow) {
  NormCall call;
  call.params.out.rows = 2;
  expect_refused(call.params, {"RmsNormParams.out.rows", "2", "x.rows = 3"});
  call = {};
  call.params.out.cols = 63;
  expect_refused(call.params, {"RmsNormParams.out.cols", "63", "x.cols = 64"});
  call = {};
  call.params.weight.cols = 32;
  expect_refused(call.params, {"RmsNormParams.weight.cols", "32", "x.cols = 64"});
  call = {};
  call.params.weight.rows = 2;
  expect_refused(call.params, {"RmsNormParams.weight.rows", "2", "one row"});
  call = {};
  call.params.x.format = Format::kE4m3;
  expect_refused(call.params, {"RmsNormParams.x.format", "FP8", "F32, BF16"});
  for (const float eps :
       {-1e-6f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    call = {};
    call.params.eps = eps;
    expect_refused(call.params, {"RmsNormParams.eps", "finite and at least 0"});
  }
}

TEST(NormCost, CountsBytesOnce) {
  const NormCall call;
  EXPECT_EQ(cost(call.params).bytes_read, 3 * 64 * 2 + 64 * 2);
  EXPECT_EQ(cost(call.params).bytes_written, 3 * 64 * 4);
}

}  // namespace
}  // namespace dsv4::testing
