// Rotary embedding: every backend against complex multiplication in long double, and the frequency
// tables against their formula.
#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>

#include "testing/cases/rope_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

using Complex = std::complex<long double>;

// The FP32 product of the contract, then everything in long double.
std::vector<double> rope_ref(const RopeCase& c, const HostMatrix& in) {
  std::vector<double> out = to_doubles(in.values());
  const std::vector<float> frequencies = rope_frequencies(c.scaling, c.rope_dim);
  for (std::size_t token = 0; token < c.positions.size(); ++token) {
    if (c.positions[token] < 0) continue;
    for (int head = 0; head < c.num_heads; ++head) {
      const std::size_t head_end =
          (token * static_cast<std::size_t>(c.num_heads) + static_cast<std::size_t>(head) + 1) *
          static_cast<std::size_t>(c.head_dim);
      double* x = out.data() + head_end - c.rope_dim;
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const float angle = static_cast<float>(c.positions[token]) * frequencies[i];
        Complex turn = std::polar(1.0L, static_cast<long double>(angle));
        if (c.inverse) turn = std::conj(turn);
        const Complex rotated = Complex(x[2 * i], x[2 * i + 1]) * turn;
        x[2 * i] = static_cast<double>(rotated.real());
        x[2 * i + 1] = static_cast<double>(rotated.imag());
      }
    }
  }
  return out;
}

// A rotated value is a difference of two products: relative to |re| + |im| of its pair, the sine
// and cosine (2 roundoffs each for a good FP32 function), two products and the difference.
Tolerance rope_tolerance(const RopeCase& c, const HostMatrix& in) {
  Tolerance tolerance;
  tolerance.relative = one_ulp(c.x.format);
  tolerance.of_magnitude = 4 * unit_roundoff(Format::kF32);
  const std::vector<float> x = in.values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Pairs start at head_dim - rope_dim, which may be odd: both neighbours bound the partner.
    const double before = i > 0 ? std::fabs(x[i - 1]) : 0;
    const double after = i + 1 < x.size() ? std::fabs(x[i + 1]) : 0;
    tolerance.magnitudes.push_back(std::fabs(x[i]) + std::fmax(before, after));
  }
  return tolerance;
}

TEST_EACH_BACKEND(Rope, MatchesComplexMultiplication) {
  for (const RopeCase& c : rope_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix in = make_inputs(c);
    EXPECT_CLOSE(run_rope(backend, c, in).values(), rope_ref(c, in), rope_tolerance(c, in));
  }
}

TEST_EACH_BACKEND(Rope, PositionOneTurnsByTheFrequencyAndNotByItsInverse) {
  // A vector of ones in the real parts turns into (cos f_i, sin f_i), f_i = 10000^(-i/32).
  RopeCase c{"position_1", {1}, 1, 512, 64};
  std::vector<float> x(512);
  for (std::size_t i = 448; i < 512; i += 2) x[i] = 1;
  const std::vector<float> got = run_rope(backend, c, HostMatrix(c.x, 1, 512, x)).values();
  std::vector<double> want(512);
  for (int i = 0; i < 32; ++i) {
    const double frequency = std::pow(10000.0, -i / 32.0);
    want[static_cast<std::size_t>(448 + 2 * i)] = std::cos(frequency);
    want[static_cast<std::size_t>(449 + 2 * i)] = std::sin(frequency);
  }
  Tolerance tolerance;  // a frequency of two roundings, at most 1, and the rotation
  tolerance.absolute = 6 * unit_roundoff(Format::kF32);
  EXPECT_CLOSE(got, want, tolerance);
}

TEST_EACH_BACKEND(Rope, TheAngleIsTheFp32Product) {
  // At a million tokens the FP64 product turns this pair visibly further; the test shows first
  // that the two differ, so that it can fail.
  const std::int32_t position = 1000003;
  RopeCase c{"million", {position}, 1, 64, 64};
  const std::vector<float> frequencies = rope_frequencies(c.scaling, 64);
  double largest_difference = 0;
  for (const float f : frequencies) {
    const float product = static_cast<float>(position) * f;
    largest_difference =
        std::fmax(largest_difference, std::fabs(double{product} - double{position} * double{f}));
  }
  EXPECT_GT(largest_difference, 0.01);
  const HostMatrix in = make_inputs(c);
  EXPECT_CLOSE(run_rope(backend, c, in).values(), rope_ref(c, in), rope_tolerance(c, in));
}

TEST_EACH_BACKEND(Rope, InverseUndoesForward) {
  for (RopeCase c : rope_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix in = make_inputs(c);
    const HostMatrix turned = run_rope(backend, c, in);
    c.inverse = !c.inverse;
    // Two rotations: the errors of both, and a rounding in between that the second one turns.
    Tolerance tolerance = rope_tolerance(c, in);
    tolerance.of_magnitude = 2 * tolerance.of_magnitude + one_ulp(c.x.format);
    EXPECT_CLOSE(run_rope(backend, c, turned).values(), in.values(), tolerance);
  }
}

TEST_EACH_BACKEND(Rope, PositionZeroChangesNothing) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec()}) {
    const RopeCase c{"zero", {0}, 2, 96, 64, spec};
    const HostMatrix in = make_inputs(c);
    EXPECT_SAME_BITS(run_rope(backend, c, in).values(), in.values());
  }
}

TEST_EACH_BACKEND(Rope, OnlyTheLastDimsOfActiveTokensAreTouched) {
  // Everything else is NaN with a payload, which must come back bit for bit.
  RopeCase c{"payload", {3, -1}, 2, 8, 4};
  HostMatrix in(c.x, 2, 16);
  std::vector<float> x(32, f32_from_bits(0xFF812345u));
  for (const std::size_t i : {4, 5, 6, 7, 12, 13, 14, 15}) x[i] = 1;
  in = HostMatrix(c.x, 2, 16, x);
  const std::vector<float> got = run_rope(backend, c, in).values();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == 1) {
      EXPECT_TRUE(std::isfinite(got[i])) << i;
    } else {
      EXPECT_EQ(f32_bits(got[i]), 0xFF812345u) << i;
    }
  }
}

TEST_EACH_BACKEND(Rope, ATokenAloneHasTheBitsItHasInABatch) {
  RopeCase c{"batch", {}, 3, 96, 64};
  for (std::int32_t i = 0; i < 40; ++i) c.positions.push_back(i * 977);
  const HostMatrix in = make_inputs(c);
  const HostMatrix batch = run_rope(backend, c, in);
  for (const std::int64_t token : {0, 17, 39}) {
    RopeCase alone = c;
    alone.positions = {c.positions[static_cast<std::size_t>(token)]};
    EXPECT_SAME_BITS(run_rope(backend, alone, in.row(token)).values(), batch.row(token).values());
  }
}

TEST_EACH_BACKEND(Rope, NoTokensAndNoRopeDims) {
  const RopeCase none{"no_tokens", {}, 2, 16, 8};
  EXPECT_TRUE(run_rope(backend, none, make_inputs(none)).data.empty());
  const RopeCase still{"no_rope", {5}, 2, 16, 0};
  const HostMatrix in = make_inputs(still);
  EXPECT_SAME_BITS(run_rope(backend, still, in).values(), in.values());
}

TEST(RopeFrequencies, PlainAreThePowersOfTheBase) {
  for (const int rope_dim : {2, 32, 64}) {
    const std::vector<float> got = rope_frequencies(plain_rope(), rope_dim);
    std::vector<long double> want;
    for (int i = 0; i < rope_dim / 2; ++i) {
      want.push_back(std::pow(10000.0L, -2.0L * i / rope_dim));
    }
    // The power and its reciprocal each round once.
    EXPECT_CLOSE(got, want, rounding_tolerance(2, Format::kF32));
  }
  EXPECT_EQ(rope_frequencies(plain_rope(), 64)[0], 1.0f);
  EXPECT_TRUE(rope_frequencies(plain_rope(), 0).empty());
}

TEST(RopeFrequencies, YarnKeepsFastTurnsAndSlowsTheSlowOnes) {
  // For base 160000, L0 65536, R 64: c(32) = 64 ln(65536 / 64 pi) / (2 ln 160000) = 15.4.. and
  // c(1) = 24.7..: pairs up to 15 stay, from 25 on they turn 16 times slower.
  const double c_fast = 64 * std::log(65536 / (2 * M_PI * 32)) / (2 * std::log(160000.0));
  const double c_slow = 64 * std::log(65536 / (2 * M_PI)) / (2 * std::log(160000.0));
  EXPECT_EQ(std::floor(c_fast), 15);
  EXPECT_EQ(std::ceil(c_slow), 25);
  std::vector<double> want;
  for (int i = 0; i < 32; ++i) {
    const double plain = std::exp(-i / 32.0 * std::log(160000.0));
    const double ramp = i <= 15 ? 0 : i >= 25 ? 1 : (i - 15) / 10.0;
    want.push_back(plain / 16 * ramp + plain * (1 - ramp));
  }
  // Power, reciprocal, quotient, ramp, two products and a sum, none cancelling.
  EXPECT_CLOSE(rope_frequencies(yarn_rope(), 64), want, rounding_tolerance(8, Format::kF32));
}

TEST(RopeFrequencies, YarnRampOfNoLengthIsAStep) {
  // So short an original length that both correction indices fall to 0: high becomes 0.001.
  RopeScaling scaling = yarn_rope();
  scaling.original_length = 6;
  const std::vector<float> got = rope_frequencies(scaling, 64);
  EXPECT_EQ(got[0], 1.0f);
  const double plain = std::exp(-1 / 32.0 * std::log(160000.0));
  EXPECT_CLOSE(std::vector<float>{got[1]}, std::vector<double>{plain / 16},
               rounding_tolerance(4, Format::kF32));
}

TEST(RopeFrequencies, YarnRampEndsAtTheLastDimension) {
  // c(1) = 64 ln(10^6 / 2 pi) / (2 ln 100) = 83.., beyond R - 1 = 63; c(10^4) = 19.2...
  RopeScaling scaling;
  scaling.base = 100;
  scaling.factor = 4;
  scaling.original_length = 1000000;
  scaling.beta_fast = 10000;
  std::vector<double> want;
  for (int i = 0; i < 32; ++i) {
    const double ramp = i <= 19 ? 0 : (i - 19) / 44.0;
    const double plain = std::exp(-i / 32.0 * std::log(100.0));
    want.push_back(plain / 4 * ramp + plain * (1 - ramp));
  }
  EXPECT_CLOSE(rope_frequencies(scaling, 64), want, rounding_tolerance(8, Format::kF32));
}

TEST(RopeFrequencies, RefusesWhatHasNoFrequencies) {
  const auto refused = [](RopeScaling scaling, int rope_dim, std::string_view field) {
    try {
      rope_frequencies(scaling, rope_dim);
      ADD_FAILURE() << "accepted a wrong " << field;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
      EXPECT_NE(std::string(error.what()).find(field), std::string::npos) << error.what();
    }
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  refused({}, 63, "rope_dim");
  refused({}, -2, "rope_dim");
  for (const double base : {1.0, 0.0, -5.0, nan}) {
    RopeScaling scaling;
    scaling.base = base;
    refused(scaling, 64, "base");
  }
  for (const double factor : {0.0, -1.0, nan}) {
    RopeScaling scaling = yarn_rope();
    scaling.factor = factor;
    refused(scaling, 64, "factor");
  }
  RopeScaling scaling = yarn_rope();
  scaling.original_length = 0;
  refused(scaling, 64, "original_length");
  scaling = yarn_rope();
  scaling.beta_fast = 0;
  refused(scaling, 64, "beta_fast");
  scaling = yarn_rope();
  scaling.beta_slow = nan;
  refused(scaling, 64, "beta_slow");
}

struct RopeCall {
  HostMatrix x{f32_spec(), 2, 96};
  std::vector<float> frequencies = std::vector<float>(16);
  std::vector<std::int32_t> positions = {0, 1};
  RopeParams params;
  RopeCall() {
    params.x = x.mutable_view();
    params.num_heads = 2;
    params.rope_dim = 32;
    params.frequencies = frequencies.data();
    params.positions = positions.data();
    check(params);
  }
};

TEST(RopeRefuses, WhatItCannotFollow) {
  RopeCall call;
  call.params.num_heads = 0;
  expect_refused(call.params, {"RopeParams.num_heads", "0", "at least 1"});
  call = {};
  call.params.num_heads = 5;
  expect_refused(call.params, {"RopeParams.x.cols", "96", "multiple of num_heads = 5"});
  call = {};
  call.params.rope_dim = 50;
  expect_refused(call.params, {"RopeParams.rope_dim", "50", "x.cols / num_heads = 48"});
  for (const int rope_dim : {31, -2}) {
    call = {};
    call.params.rope_dim = rope_dim;
    expect_refused(call.params, {"RopeParams.rope_dim", std::to_string(rope_dim), "even"});
  }
  call = {};
  call.params.frequencies = nullptr;
  expect_refused(call.params, {"RopeParams.frequencies", "null"});
  call = {};
  call.params.positions = nullptr;
  expect_refused(call.params, {"RopeParams.positions", "null"});
  call = {};
  call.params.x.format = Format::kMxfp4;
  expect_refused(call.params, {"RopeParams.x.format", "MXFP4"});
}

TEST(RopeCost, CountsRotatedValuesOnly) {
  const RopeCall call;
  EXPECT_EQ(cost(call.params).flops, 2 * 2 * 16 * 6.0);
  EXPECT_EQ(cost(call.params).bytes_written, 2 * 2 * 32 * 4);
}

}  // namespace
}  // namespace dsv4::testing
