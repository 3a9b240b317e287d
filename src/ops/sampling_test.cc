// Sampling: every backend against probabilities in long double, and the draws against their laws.
#include "ops/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "testing/cases/sampling_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Candidate {
  std::int32_t id;
  long double probability;
};

// What is left of one row after all cuts, normalised, most likely first.
std::vector<Candidate> candidates_ref(const SamplingRow& row, const std::vector<float>& logits) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) ids.push_back(static_cast<std::int32_t>(i));
  std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  if (row.temperature == 0) ids.resize(1);
  if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < ids.size()) {
    ids.resize(static_cast<std::size_t>(row.top_k));
  }
  std::vector<Candidate> all;
  const long double largest = logits[static_cast<std::size_t>(ids[0])];
  long double sum = 0;
  for (const std::int32_t id : ids) {
    const long double distance = logits[static_cast<std::size_t>(id)] - largest;
    const long double term = distance == 0 ? 1 : std::exp(distance / row.temperature);
    all.push_back({id, term});
    sum += term;
  }
  std::vector<Candidate> kept;
  long double before = 0;
  for (const Candidate& candidate : all) {
    const bool in_top_p = before < static_cast<long double>(row.top_p) * sum;
    const bool in_min_p = candidate.probability >= static_cast<long double>(row.min_p);
    if (in_top_p && in_min_p) kept.push_back(candidate);
    before += candidate.probability;
  }
  long double kept_sum = 0;
  for (const Candidate& candidate : kept) kept_sum += candidate.probability;
  for (Candidate& candidate : kept) candidate.probability /= kept_sum;
  return kept;
}

std::int32_t token_ref(const SamplingRow& row, const std::vector<float>& logits) {
  long double left = uniform_draw(row.seed, row.position);
  const std::vector<Candidate> candidates = candidates_ref(row, logits);
  for (const Candidate& candidate : candidates) {
    if (left < candidate.probability) return candidate.id;
    left -= candidate.probability;
  }
  return candidates.back().id;
}

double logprob_ref(const std::vector<float>& logits, std::int32_t token) {
  long double sum = 0;
  const long double logit = logits[static_cast<std::size_t>(token)];
  for (const float other : logits) sum += std::exp(static_cast<long double>(other) - logit);
  return static_cast<double>(-std::log(sum));
}

TEST_EACH_BACKEND(Sampling, MatchesTheProbabilities) {
  for (const SamplingCase& c : sampling_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix logits = make_inputs(c);
    const SamplingOutputs got = run_sampling(backend, c.rows, logits);
    std::vector<std::int32_t> want_tokens;
    std::vector<double> want_logprobs;
    for (std::size_t row = 0; row < c.rows.size(); ++row) {
      const std::vector<float> row_logits = logits.row(static_cast<std::int64_t>(row)).values();
      want_tokens.push_back(token_ref(c.rows[row], row_logits));
      want_logprobs.push_back(logprob_ref(row_logits, got.tokens[row]));
    }
    EXPECT_SAME_BITS(got.tokens, want_tokens);
    // ln of a sum near 1: relative to the sum, so absolute, beside the ulp of the result.
    Tolerance tolerance = rounding_tolerance(0, Format::kF32);
    tolerance.absolute = accumulation_bound(c.vocab);
    EXPECT_CLOSE(got.logprobs, want_logprobs, tolerance);
  }
}

SamplingOutputs sample_one(Backend& backend, const SamplingRow& row,
                           const std::vector<float>& logits) {
  return run_sampling(backend, {row},
                      HostMatrix(f32_spec(), 1, static_cast<std::int64_t>(logits.size()), logits));
}

std::int32_t token_of(Backend& backend, const SamplingRow& row, const std::vector<float>& logits) {
  return sample_one(backend, row, logits).tokens[0];
}

SamplingRow row_at(float temperature, std::int64_t position = 0) {
  SamplingRow row;
  row.temperature = temperature;
  row.position = position;
  return row;
}

TEST_EACH_BACKEND(Sampling, TemperatureZeroTakesTheHighestAndTheLowerIdOfATie) {
  EXPECT_EQ(token_of(backend, row_at(0), {1, 3, 2}), 1);
  EXPECT_EQ(token_of(backend, row_at(0), {1, 3, 3, 3}), 1);
  EXPECT_EQ(token_of(backend, row_at(0), {-0.0f, 0.0f}), 0);
  EXPECT_EQ(token_of(backend, row_at(0), std::vector<float>(1000, -7)), 0);
  EXPECT_EQ(token_of(backend, row_at(0), {5}), 0);
}

TEST_EACH_BACKEND(Sampling, CutsToOneAreGreedyAtAnyTemperature) {
  SamplingRow top_k = row_at(5);
  top_k.top_k = 1;
  SamplingRow top_p = row_at(5);
  top_p.top_p = 1e-30f;
  SamplingRow min_p = row_at(5);
  min_p.min_p = 1;
  for (SamplingRow row : {top_k, top_p, min_p}) {
    for (row.position = 0; row.position < 50; ++row.position) {
      EXPECT_EQ(token_of(backend, row, {1, 1.5f, 1.25f}), 1);
    }
  }
}

TEST_EACH_BACKEND(Sampling, TopPStopsWhereItsSumIsReachedExactly) {
  // Halves of four equal tokens: two of them are enough, and a hair more takes a third.
  SamplingRow row = row_at(1);
  for (const float top_p : {0.5f, std::nextafter(0.5f, 1.0f)}) {
    row.top_p = top_p;
    std::int32_t largest_id = 0;
    for (row.position = 0; row.position < 100; ++row.position) {
      largest_id = std::max(largest_id, token_of(backend, row, {2, 2, 2, 2}));
    }
    EXPECT_EQ(largest_id, top_p == 0.5f ? 1 : 2);
  }
}

TEST_EACH_BACKEND(Sampling, MinPOfOneKeepsAllTies) {
  SamplingRow row = row_at(1);
  row.min_p = 1;
  std::vector<int> counts(3);
  for (row.position = 0; row.position < 100; ++row.position) {
    ++counts[static_cast<std::size_t>(token_of(backend, row, {2, 1, 2}))];
  }
  EXPECT_GT(counts[0], 0);
  EXPECT_EQ(counts[1], 0);
  EXPECT_GT(counts[2], 0);
}

TEST_EACH_BACKEND(Sampling, TinyTemperatureNeitherOverflowsNorMisses) {
  for (const float temperature : {1e-3f, 1e-30f, 1e-45f}) {
    for (std::int64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(token_of(backend, row_at(temperature, position), {-1e30f, 3, 2.5f, 1e30f}), 3);
    }
  }
}

// Wherever it stands, and whatever options would cut it.
TEST_EACH_BACKEND(Sampling, OneNanGivesNoToken) {
  SamplingRow cut = row_at(1);
  cut.top_k = 1;
  for (const float nan : {kNan, -kNan}) {
    for (std::size_t place : {0u, 1u, 500u, 998u, 999u}) {
      std::vector<float> logits = normal_values(5, 1000);
      logits[1] = kInf;
      logits[place] = nan;
      for (const SamplingRow& row : {row_at(0), row_at(1), cut}) {
        const SamplingOutputs got = sample_one(backend, row, logits);
        EXPECT_EQ(got.tokens[0], -1) << place;
        EXPECT_TRUE(std::isnan(got.logprobs[0])) << place;
      }
    }
  }
}

TEST_EACH_BACKEND(Sampling, ARowWithoutCandidatesGivesNoToken) {
  for (const std::vector<float>& logits :
       {std::vector<float>{-kInf, -kInf}, {kNan, kNan}, {kNan, -kInf}, {-kInf}}) {
    for (const float temperature : {0.0f, 1.0f}) {
      const SamplingOutputs got = sample_one(backend, row_at(temperature), logits);
      EXPECT_EQ(got.tokens[0], -1);
      EXPECT_TRUE(std::isnan(got.logprobs[0]));
    }
  }
}

TEST_EACH_BACKEND(Sampling, MinusInfinityIsNeverChosen) {
  for (std::int64_t position = 0; position < 50; ++position) {
    EXPECT_EQ(token_of(backend, row_at(100, position), {-kInf, 1, -kInf}), 1);
  }
}

TEST_EACH_BACKEND(Sampling, PlusInfinitiesShareTheProbability) {
  EXPECT_EQ(token_of(backend, row_at(0), {1, kInf, kInf}), 1);
  std::vector<int> counts(3);
  for (std::int64_t position = 0; position < 100; ++position) {
    ++counts[static_cast<std::size_t>(token_of(backend, row_at(1, position), {1, kInf, kInf}))];
  }
  EXPECT_EQ(counts[0], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_GT(counts[2], 0);
}

TEST_EACH_BACKEND(Sampling, FrequenciesFollowTheProbabilities) {
  // One row a draw: the same logits at consecutive positions, once plain and once cut by top_p.
  constexpr std::int64_t kDraws = 20000;
  const std::vector<float> logits = {0, 1, 2, -1, 0.5f, 3, -2, 1};
  for (const float top_p : {1.0f, 0.8f}) {
    SCOPED_TRACE(top_p);
    std::vector<SamplingRow> rows;
    std::vector<float> all_logits;
    for (std::int64_t i = 0; i < kDraws; ++i) {
      SamplingRow row = row_at(1.5f, i);
      row.seed = 77;
      row.top_p = top_p;
      rows.push_back(row);
      all_logits.insert(all_logits.end(), logits.begin(), logits.end());
    }
    const SamplingOutputs got =
        run_sampling(backend, rows, HostMatrix(f32_spec(), kDraws, 8, all_logits));
    std::vector<double> counts(8);
    for (const std::int32_t token : got.tokens) counts.at(static_cast<std::size_t>(token)) += 1;
    std::vector<double> probabilities(8);
    for (const Candidate& candidate : candidates_ref(rows[0], logits)) {
      probabilities[static_cast<std::size_t>(candidate.id)] =
          static_cast<double>(candidate.probability);
    }
    // Five standard deviations of a binomial count; a token without probability must not occur.
    Tolerance tolerance;
    tolerance.of_magnitude = 5;
    std::vector<double> want;
    for (const double p : probabilities) {
      want.push_back(kDraws * p);
      tolerance.magnitudes.push_back(std::sqrt(kDraws * p * (1 - p)));
    }
    EXPECT_CLOSE(counts, want, tolerance);
  }
}

TEST_EACH_BACKEND(Sampling, SeedAndPositionDecideAndNothingElse) {
  const std::vector<float> logits = normal_values(3, 500);
  SamplingRow row = row_at(2, 11);
  row.seed = 5;
  const SamplingOutputs alone = sample_one(backend, row, logits);
  // In a batch of other rows, at another place, twice.
  std::vector<SamplingRow> rows(6, row_at(1));
  rows[2] = row;
  rows[5] = row;
  std::vector<float> all = normal_values(4, 6 * 500);
  std::copy(logits.begin(), logits.end(), all.begin() + 2 * 500);
  std::copy(logits.begin(), logits.end(), all.begin() + 5 * 500);
  const SamplingOutputs batch = run_sampling(backend, rows, HostMatrix(f32_spec(), 6, 500, all));
  for (const std::size_t i : {2, 5}) {
    EXPECT_EQ(batch.tokens[i], alone.tokens[0]);
    EXPECT_EQ(f32_bits(batch.logprobs[i]), f32_bits(alone.logprobs[0]));
  }
  // Other seeds and positions give other tokens somewhere.
  bool seed_matters = false;
  bool position_matters = false;
  for (int i = 1; i < 20; ++i) {
    SamplingRow other = row;
    other.seed += static_cast<std::uint64_t>(i);
    seed_matters = seed_matters || token_of(backend, other, logits) != alone.tokens[0];
    other = row;
    other.position += i;
    position_matters = position_matters || token_of(backend, other, logits) != alone.tokens[0];
  }
  EXPECT_TRUE(seed_matters);
  EXPECT_TRUE(position_matters);
}

TEST_EACH_BACKEND(Sampling, LogprobsAreOptionalAndRowsMayBeNone) {
  const DeviceMatrix logits(backend, HostMatrix(f32_spec(), 2, 3, {1, 2, 3, 3, 2, 1}));
  const DeviceArray<SamplingRow> rows(backend, {row_at(0), row_at(0)});
  const DeviceArray<std::int32_t> tokens(backend, 2);
  SamplingParams params;
  params.logits = logits.view();
  params.rows = rows.data();
  params.tokens = tokens.data();
  run_op(backend, params);
  EXPECT_EQ(tokens.read(), (std::vector<std::int32_t>{2, 0}));
  EXPECT_TRUE(run_sampling(backend, {}, HostMatrix(f32_spec(), 0, 3)).tokens.empty());
}

TEST(UniformDraw, IsWhatOtherProgramsCompute) {
  // From the definition, with arbitrary-precision integers.
  EXPECT_EQ(uniform_draw(0, 0), 0x14e0dba5e9a32f * 0x1p-53);
  EXPECT_EQ(uniform_draw(0, 1), 0x16705460be8829 * 0x1p-53);
  EXPECT_EQ(uniform_draw(42, 1000000), 0x10a0bb53d1522b * 0x1p-53);
  EXPECT_EQ(uniform_draw(~std::uint64_t{0}, 0), 0xbb84154f6544e * 0x1p-53);
}

TEST(UniformDraw, CoversTheUnitIntervalEvenly) {
  constexpr int kDraws = 100000;
  std::vector<double> by_position(16);
  std::vector<double> by_seed(16);
  for (int i = 0; i < kDraws; ++i) {
    for (const bool seed_varies : {false, true}) {
      const double u =
          seed_varies ? uniform_draw(static_cast<std::uint64_t>(i), 3) : uniform_draw(9, i);
      ASSERT_GE(u, 0);
      ASSERT_LT(u, 1);
      (seed_varies ? by_seed : by_position)[static_cast<std::size_t>(u * 16)] += 1;
    }
  }
  Tolerance tolerance;  // five standard deviations of a binomial count
  tolerance.absolute = 5 * std::sqrt(kDraws / 16.0 * 15 / 16);
  EXPECT_CLOSE(by_position, std::vector<double>(16, kDraws / 16.0), tolerance);
  EXPECT_CLOSE(by_seed, std::vector<double>(16, kDraws / 16.0), tolerance);
}

struct SamplingCall {
  HostMatrix logits{f32_spec(), 2, 8};
  std::vector<SamplingRow> rows = std::vector<SamplingRow>(2);
  std::vector<std::int32_t> tokens = {0, 0};
  SamplingParams params;
  SamplingCall() {
    params.logits = logits.view();
    params.rows = rows.data();
    params.tokens = tokens.data();
    check(params);
  }
};

TEST(SamplingRefuses, WhatItCannotFollow) {
  SamplingCall call;
  call.params.logits.format = Format::kBf16;
  expect_refused(call.params, {"SamplingParams.logits.format", "BF16", "F32"});
  call = {};
  call.params.logits.cols = 0;
  expect_refused(call.params, {"SamplingParams.logits.cols", "0", "at least 1"});
  call = {};
  call.params.logits.cols = (std::int64_t{1} << 31) + 1;
  call.params.logits.row_stride = call.params.logits.cols;
  expect_refused(call.params, {"SamplingParams.logits.cols", "2147483649"});
  call = {};
  call.params.rows = nullptr;
  expect_refused(call.params, {"SamplingParams.rows", "null"});
  call = {};
  call.params.tokens = nullptr;
  expect_refused(call.params, {"SamplingParams.tokens", "null"});
}

TEST(SamplingRefuses, RowsThatAUserMayNotAskFor) {
  check(SamplingRow{});
  for (const float bad : {-0.1f, kNan, kInf}) {
    expect_refused(row_at(bad), {"temperature", "finite and at least 0"});
  }
  for (const float bad : {0.0f, -1.0f, 1.0001f, kNan}) {
    SamplingRow row;
    row.top_p = bad;
    expect_refused(row, {"top_p", "above 0 and at most 1"});
  }
  for (const float bad : {-0.1f, 1.0001f, kNan}) {
    SamplingRow row;
    row.min_p = bad;
    expect_refused(row, {"min_p", "at least 0 and at most 1"});
  }
  SamplingRow row;
  row.top_k = -1;
  expect_refused(row, {"top_k", "-1", "at least 0"});
  expect_refused(row_at(1, -1), {"position", "-1", "at least 0"});
}

TEST(SamplingCost, CountsLogitsOnce) {
  const SamplingCall call;
  EXPECT_EQ(cost(call.params).bytes_read,
            2 * 8 * 4 + 2 * static_cast<std::int64_t>(sizeof(SamplingRow)));
  EXPECT_EQ(cost(call.params).bytes_written, 2 * 4);
}

}  // namespace
}  // namespace dsv4::testing
