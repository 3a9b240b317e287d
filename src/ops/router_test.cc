// The router: every backend against affinities in long double and a selection by counting.
#include "ops/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "testing/cases/router_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr double kEps = unit_roundoff(Format::kF32);

// One token's affinities and how far FP32 ones may be from them.
struct Affinities {
  std::vector<long double> values;
  double tolerance = 0;
};

Affinities affinities_ref(const RouterCase& c, const RouterInputs& in, std::int64_t token) {
  const std::vector<float> x = in.x.row(token).values();
  const std::vector<float> weight = in.weight.values();
  Affinities result;
  long double exp_sum = 0;
  double largest_error = 0;
  for (std::int64_t e = 0; e < c.experts; ++e) {
    long double sum = 0;
    long double magnitude = 0;
    for (std::int64_t k = c.hidden - 1; k >= 0; --k) {
      const auto w = static_cast<long double>(weight[static_cast<std::size_t>(e * c.hidden + k)]);
      sum += w * x[static_cast<std::size_t>(k)];
      magnitude += std::fabs(w * x[static_cast<std::size_t>(k)]);
    }
    largest_error =
        std::fmax(largest_error, accumulation_bound(c.hidden) * static_cast<double>(magnitude));
    exp_sum += std::exp(sum);
    result.values.push_back(sum);
  }
  double largest = 0;
  for (long double& value : result.values) {
    switch (c.scoring) {
      case ScoringFunction::kSqrtSoftplus:
        value = std::sqrt(std::log(1 + std::exp(value)));
        break;
      case ScoringFunction::kSigmoid:
        value = std::exp(value) / (1 + std::exp(value));
        break;
      case ScoringFunction::kSoftmax:
        value = std::exp(value) / exp_sum;
        break;
    }
    largest = std::fmax(largest, static_cast<double>(value));
  }
  // No scoring has a slope above 1/2 in its own dot product; softmax moves by every dot product,
  // together at most twice. Four roundings for the functions.
  result.tolerance = 2 * largest_error + 4 * kEps * largest;
  return result;
}

double key_ref(const RouterInputs& in, const Affinities& affinities, std::size_t expert) {
  return static_cast<double>(affinities.values[expert]) +
         (in.bias.empty() ? 0 : double{in.bias[expert]});
}

// The choice number i must have a key that no more than i experts beat by more than the tolerance,
// and that beats all that were not chosen or come later: near-ties may swap, nothing else.
void expect_selection(const RouterInputs& in, const Affinities& affinities,
                      const std::int32_t* chosen, int count) {
  std::vector<double> keys;
  for (std::size_t e = 0; e < affinities.values.size(); ++e) {
    keys.push_back(key_ref(in, affinities, e));
  }
  std::set<std::int32_t> taken;
  for (int i = 0; i < count; ++i) {
    ASSERT_GE(chosen[i], 0);
    ASSERT_LT(chosen[i], static_cast<std::int32_t>(keys.size()));
    EXPECT_TRUE(taken.insert(chosen[i]).second) << "expert " << chosen[i] << " twice";
    const double key = keys[static_cast<std::size_t>(chosen[i])];
    const double tolerance = 2 * affinities.tolerance + 2 * kEps * std::fabs(key);
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (taken.count(static_cast<std::int32_t>(e)) == 0) {
        EXPECT_LE(keys[e] - key, tolerance)
            << "choice " << i << " is " << chosen[i] << ", but " << e << " has a higher key";
      }
    }
  }
}

TEST_EACH_BACKEND(Router, MatchesBruteForce) {
  for (const RouterCase& c : router_cases()) {
    SCOPED_TRACE(c.name);
    const RouterInputs in = make_inputs(c);
    const RouterOutputs got = run_router(backend, c, in);
    std::vector<double> want_weights;
    Tolerance tolerance;
    tolerance.of_magnitude = 1;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      SCOPED_TRACE(t);
      const Affinities affinities = affinities_ref(c, in, t);
      const std::int32_t* chosen = got.expert_idx.data() + t * c.experts_per_token;
      if (c.vocab > 0) {
        const std::int32_t* hashed =
            in.hash_table.data() + in.token_ids[static_cast<std::size_t>(t)] * c.experts_per_token;
        EXPECT_SAME_BITS(std::vector<std::int32_t>(chosen, chosen + c.experts_per_token),
                         std::vector<std::int32_t>(hashed, hashed + c.experts_per_token));
      } else {
        expect_selection(in, affinities, chosen, c.experts_per_token);
      }
      long double sum = 0;
      for (int i = 0; i < c.experts_per_token; ++i) {
        sum += affinities.values[static_cast<std::size_t>(chosen[i])];
      }
      if (c.scoring == ScoringFunction::kSoftmax) sum = 1;
      for (int i = 0; i < c.experts_per_token; ++i) {
        const double share =
            static_cast<double>(affinities.values[static_cast<std::size_t>(chosen[i])] / sum);
        want_weights.push_back(share * c.routed_scale);
        // Error of a quotient: numerator's, denominator's, and a rounding a step.
        const double sum_error = affinities.tolerance * c.experts_per_token;
        tolerance.magnitudes.push_back(
            c.routed_scale *
            ((affinities.tolerance + share * sum_error) / static_cast<double>(sum) +
             share * (c.experts_per_token + 2) * kEps));
      }
    }
    EXPECT_CLOSE(got.expert_weights, want_weights, tolerance);
  }
}

// A case whose dot products are weight[e] * x[t] themselves.
struct DirectScores {
  RouterCase c;
  RouterInputs in;
  DirectScores(const std::vector<float>& scores, int experts_per_token)
      : c{"direct", 1, 1, static_cast<std::int64_t>(scores.size()), experts_per_token},
        in{HostMatrix(f32_spec(), 1, 1, {1}),
           HostMatrix(f32_spec(), static_cast<std::int64_t>(scores.size()), 1, scores),
           {},
           {},
           {}} {
    c.scoring = ScoringFunction::kSigmoid;
    c.routed_scale = 1;
  }
};

TEST_EACH_BACKEND(Router, ByHand) {
  // softplus(ln(e^(a^2) - 1)) = a^2, so the affinities are 1, 2 and 3.
  const auto score_of = [](double a) { return static_cast<float>(std::log(std::expm1(a * a))); };
  DirectScores direct({score_of(1), score_of(2), score_of(3)}, 2);
  direct.c.scoring = ScoringFunction::kSqrtSoftplus;
  direct.c.routed_scale = 2.5f;
  const RouterOutputs got = run_router(backend, direct.c, direct.in);
  EXPECT_EQ(got.expert_idx, (std::vector<std::int32_t>{2, 1}));
  // The scores were rounded to FP32 (half an ulp of 9), then a dozen roundings.
  EXPECT_CLOSE(got.expert_weights, (std::vector<double>{2.5 * 3 / 5, 2.5 * 2 / 5}),
               rounding_tolerance(16, Format::kF32));
}

TEST_EACH_BACKEND(Router, BiasSelectsButDoesNotWeigh) {
  DirectScores direct({0, 0, 0, 1}, 2);
  direct.in.bias = {0, 10, 5, 0};
  const RouterOutputs got = run_router(backend, direct.c, direct.in);
  EXPECT_EQ(got.expert_idx, (std::vector<std::int32_t>{1, 2}));
  EXPECT_SAME_BITS(got.expert_weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST_EACH_BACKEND(Router, TiesGoToTheLowerExpert) {
  for (const std::int64_t experts : {7, 32, 33, 256, 384}) {
    SCOPED_TRACE(experts);
    const DirectScores equal(std::vector<float>(static_cast<std::size_t>(experts), 0.25f), 6);
    EXPECT_EQ(run_router(backend, equal.c, equal.in).expert_idx,
              (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}));
  }
  // A tie across the cut, and one pair of zeroes of both signs, which are equal.
  DirectScores cut({1, 2, 1, 2, 1, 1}, 3);
  EXPECT_EQ(run_router(backend, cut.c, cut.in).expert_idx, (std::vector<std::int32_t>{1, 3, 0}));
  DirectScores zeroes({0, 0, 0}, 2);
  zeroes.in.bias = {-0.5f, -0.5f, -0.5f};  // key exactly 0 everywhere
  EXPECT_EQ(run_router(backend, zeroes.c, zeroes.in).expert_idx, (std::vector<std::int32_t>{0, 1}));
}

TEST_EACH_BACKEND(Router, NanCountsBelowEveryNumber) {
  DirectScores direct({kNan, 1, kNan, -50, kNan}, 2);
  EXPECT_EQ(run_router(backend, direct.c, direct.in).expert_idx, (std::vector<std::int32_t>{1, 3}));
  // Even below a key of -inf, which a bias can make.
  direct.in.bias = {0, 0, 0, -kInf, 0};
  EXPECT_EQ(run_router(backend, direct.c, direct.in).expert_idx, (std::vector<std::int32_t>{1, 3}));
  direct.c.experts_per_token = 4;
  EXPECT_EQ(run_router(backend, direct.c, direct.in).expert_idx,
            (std::vector<std::int32_t>{1, 3, 0, 2}));
}

TEST_EACH_BACKEND(Router, ARowOfNanStillGivesExpertsInRange) {
  RouterCase c{"nan", 3, 8, 16, 4};
  RouterInputs in = make_inputs(c);
  const RouterOutputs clean = run_router(backend, c, in);
  std::vector<float> x = in.x.values();
  std::fill(x.begin() + 8, x.begin() + 16, kNan);
  in.x = HostMatrix(c.x, 3, 8, x);
  const RouterOutputs got = run_router(backend, c, in);
  const auto slice = [](const auto& all, int token) {
    return std::vector(all.begin() + token * 4, all.begin() + token * 4 + 4);
  };
  EXPECT_EQ(slice(got.expert_idx, 1), (std::vector<std::int32_t>{0, 1, 2, 3}));
  for (const int token : {0, 2}) {
    EXPECT_SAME_BITS(slice(got.expert_idx, token), slice(clean.expert_idx, token));
    EXPECT_SAME_BITS(slice(got.expert_weights, token), slice(clean.expert_weights, token));
  }
}

TEST_EACH_BACKEND(Router, LargeScoresDoNotOverflow) {
  DirectScores direct({1000, -1000, 88, 89}, 4);
  direct.c.scoring = ScoringFunction::kSqrtSoftplus;
  const RouterOutputs got = run_router(backend, direct.c, direct.in);
  EXPECT_EQ(got.expert_idx, (std::vector<std::int32_t>{0, 3, 2, 1}));
  const double sum = std::sqrt(1000.0) + std::sqrt(89.0) + std::sqrt(88.0);
  EXPECT_CLOSE(got.expert_weights,
               (std::vector<double>{std::sqrt(1000.0) / sum, std::sqrt(89.0) / sum,
                                    std::sqrt(88.0) / sum, 0}),
               rounding_tolerance(12, Format::kF32));
  direct.c.scoring = ScoringFunction::kSoftmax;
  EXPECT_EQ(run_router(backend, direct.c, direct.in).expert_weights[0], 1.0f);
}

TEST_EACH_BACKEND(Router, SoftmaxIsNotRenormalised) {
  DirectScores direct({0, 0, 0, 0}, 2);
  direct.c.scoring = ScoringFunction::kSoftmax;
  EXPECT_SAME_BITS(run_router(backend, direct.c, direct.in).expert_weights,
                   (std::vector<float>{0.25f, 0.25f}));
}

TEST_EACH_BACKEND(Router, InactiveTokensGetNoExperts) {
  RouterCase c{"inactive", 4, 8, 16, 2};
  for (const std::int64_t vocab : {0, 9}) {
    SCOPED_TRACE(vocab);
    c.vocab = vocab;
    RouterInputs in = make_inputs(c);
    in.token_ids = {1, 0, 8, 3};
    const RouterOutputs all = run_router(backend, c, in);
    in.token_ids = {-1, 0, -1, 3};
    std::vector<float> x = in.x.values();
    std::fill(x.begin(), x.begin() + 8, kNan);
    in.x = HostMatrix(c.x, 4, 8, x);
    const RouterOutputs got = run_router(backend, c, in);
    for (std::size_t i = 0; i < 8; ++i) {
      const bool active = i / 2 == 1 || i / 2 == 3;
      EXPECT_EQ(got.expert_idx[i], active ? all.expert_idx[i] : -1) << i;
      EXPECT_EQ(f32_bits(got.expert_weights[i]),
                active ? f32_bits(all.expert_weights[i]) : 0xFFFFFFFFu)
          << i;
    }
  }
}

TEST_EACH_BACKEND(Router, HashIgnoresBiasAndTakesTheTablesOrder) {
  DirectScores direct({0, 0, 0, 0}, 3);
  direct.c.vocab = 2;
  direct.in.bias = {0, 100, 0, 0};
  direct.in.hash_table = {0, 1, 2, 3, 0, 2};
  direct.in.token_ids = {1};
  EXPECT_EQ(run_router(backend, direct.c, direct.in).expert_idx,
            (std::vector<std::int32_t>{3, 0, 2}));
}

TEST_EACH_BACKEND(Router, ATokenAloneHasTheBitsItHasInABatch) {
  RouterCase c{"batch", 257, 160, 64, 6, bf16_spec(), bf16_spec()};
  const RouterInputs in = make_inputs(c);
  const RouterOutputs batch = run_router(backend, c, in);
  for (const std::int64_t token : {0, 128, 256}) {
    RouterInputs alone = in;
    alone.x = in.x.row(token);
    const RouterOutputs got = run_router(backend, c, alone);
    for (std::int64_t i = 0; i < 6; ++i) {
      const auto batch_idx = static_cast<std::size_t>(token * 6 + i);
      const auto idx = static_cast<std::size_t>(i);
      EXPECT_EQ(got.expert_idx[idx], batch.expert_idx[batch_idx]);
      EXPECT_EQ(f32_bits(got.expert_weights[idx]), f32_bits(batch.expert_weights[batch_idx]));
    }
  }
}

TEST_EACH_BACKEND(Router, NoTokens) {
  const RouterCase c{"empty", 0, 8, 16, 2};
  EXPECT_TRUE(run_router(backend, c, make_inputs(c)).expert_idx.empty());
}

TEST(RouterHashTable, RefusesEntriesThatAreNoExpert) {
  const auto refused = [](const std::vector<std::int32_t>& table, const char* part) {
    try {
      check_hash_table(table.data(), static_cast<std::int64_t>(table.size()) / 2, 2, 4);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const std::vector<std::int32_t> valid = {0, 3, 2, 1};
  check_hash_table(valid.data(), 2, 2, 4);
  check_hash_table(nullptr, 0, 2, 4);
  refused({0, 3, 2, 4}, "token 1 has expert 4, must be in 0 .. 3");
  refused({-1, 3, 2, 1}, "token 0 has expert -1");
  refused({0, 3, 2, 2}, "token 1 has expert 2 twice");
}

struct RouterCall {
  HostMatrix x{bf16_spec(), 2, 16};
  HostMatrix weight{bf16_spec(), 8, 16};
  std::vector<std::int32_t> ids = {0, 1, 2, 3};
  std::vector<float> weights = std::vector<float>(4);
  RouterParams params;
  RouterCall() {
    params.x = x.view();
    params.weight = weight.view();
    params.experts_per_token = 2;
    params.expert_idx = ids.data();
    params.expert_weights = weights.data();
    check(params);
  }
};

TEST(RouterRefuses, WhatItCannotFollow) {
  RouterCall call;
  call.params.weight.cols = 15;
  expect_refused(call.params, {"RouterParams.weight.cols", "15", "x.cols = 16"});
  call = {};
  call.params.experts_per_token = 9;
  expect_refused(call.params, {"RouterParams.experts_per_token", "9", "weight.rows = 8"});
  call = {};
  call.params.experts_per_token = 0;
  expect_refused(call.params, {"RouterParams.experts_per_token", "0", "at least 1"});
  call = {};
  call.params.routed_scale = kNan;
  expect_refused(call.params, {"RouterParams.routed_scale", "nan", "finite"});
  call = {};
  call.params.expert_idx = nullptr;
  expect_refused(call.params, {"RouterParams.expert_idx", "null"});
  call = {};
  call.params.expert_weights = nullptr;
  expect_refused(call.params, {"RouterParams.expert_weights", "null"});
  call = {};
  call.params.weight.format = Format::kNvfp4;
  expect_refused(call.params, {"RouterParams.weight.format", "NVFP4", "F32, BF16"});
}

TEST(RouterRefuses, AHashTableWithoutIdsOrRows) {
  RouterCall call;
  call.params.hash_table = call.ids.data();
  call.params.vocab = 2;
  expect_refused(call.params, {"RouterParams.token_ids", "null"});
  call.params.token_ids = call.ids.data();
  check(call.params);
  call.params.vocab = 0;
  expect_refused(call.params, {"RouterParams.vocab", "0", "at least 1"});
}

TEST(RouterCost, CountsTheProductAndItsBytes) {
  const RouterCall call;
  EXPECT_EQ(cost(call.params).flops, 2.0 * 2 * 8 * 16);
  EXPECT_EQ(cost(call.params).bytes_read, 2 * (2 + 8) * 16);
  EXPECT_EQ(cost(call.params).bytes_written, 8 * 4);
}

}  // namespace
}  // namespace dsv4::testing
