// Penalties and log-probabilities against their formulas, written down naively.
#include "runtime/penalties.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/logprobs.h"

namespace dsv4 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr TokenId kVocab = 50;

std::vector<float> random_logits(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Token by token, counting anew.
std::vector<float> naive(std::vector<float> logits, const SamplingOptions& options,
                         const std::vector<TokenId>& prompt, const std::vector<TokenId>& drawn) {
  for (TokenId token = 0; token < kVocab; ++token) {
    const auto num_drawn = std::count(drawn.begin(), drawn.end(), token);
    const bool in_prompt = std::count(prompt.begin(), prompt.end(), token) > 0;
    float& logit = logits[static_cast<std::size_t>(token)];
    if (num_drawn > 0 || in_prompt) {
      logit = logit > 0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    }
    logit = logit - (static_cast<float>(num_drawn) * options.frequency_penalty +
                     (num_drawn > 0 ? options.presence_penalty : 0));
    const auto bias = options.logit_bias.find(token);
    if (bias != options.logit_bias.end()) logit = logit + bias->second;
  }
  return logits;
}

std::vector<float> applied(std::vector<float> logits, const SamplingOptions& options,
                           const std::vector<TokenId>& prompt, const std::vector<TokenId>& drawn) {
  Penalties penalties(options, prompt);
  for (const TokenId token : drawn) penalties.count(token);
  penalties.apply(logits);
  return logits;
}

TEST(Penalties, EachAloneAndAllTogetherFollowTheirFormulas) {
  const std::vector<TokenId> prompt = {3, 3, 7, 9}, drawn = {7, 11, 11, 11, 0, 49};
  std::vector<SamplingOptions> all(6);
  all[1].repetition_penalty = 1.3f;
  all[2].presence_penalty = 0.7f;
  all[3].frequency_penalty = -0.4f;
  all[4].logit_bias = {{0, 2.5f}, {11, -1}, {20, 100}};
  all[5] = {.repetition_penalty = 0.8f,
            .presence_penalty = -0.3f,
            .frequency_penalty = 0.9f,
            .logit_bias = {{7, 1.5f}, {30, -kInfinity}, {31, kInfinity}}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<float> logits = random_logits(static_cast<unsigned>(i));
    const std::vector<float> got = applied(logits, all[i], prompt, drawn);
    EXPECT_EQ(got, naive(logits, all[i], prompt, drawn)) << i;
    EXPECT_EQ(got != logits, i > 0) << i;
    EXPECT_EQ(Penalties(all[i], prompt).are_active(), i > 0) << i;
  }
}

TEST(Penalties, PresenceAndFrequencyLeaveThePromptAlone) {
  const std::vector<float> logits = random_logits(1);
  const SamplingOptions options{.presence_penalty = 1, .frequency_penalty = 1};
  EXPECT_EQ(applied(logits, options, {1, 2, 3}, {}), logits);
}

// Also where penalties overflow; a logit that is no number is not hidden.
TEST(Penalties, InfiniteBiasForcesWhateverThePenaltiesAre) {
  const SamplingOptions options = {.repetition_penalty = 2,
                                   .presence_penalty = 1e38f,
                                   .frequency_penalty = 3e38f,
                                   .logit_bias = {{3, kInfinity}, {4, kInfinity}, {5, -kInfinity}}};
  std::vector<float> logits(kVocab, 1.0f);
  logits[4] = kNan;
  const std::vector<float> got = applied(logits, options, {3, 4, 5}, {3, 3, 5});
  EXPECT_EQ(got[3], kInfinity);
  EXPECT_TRUE(std::isnan(got[4]));
  EXPECT_EQ(got[5], -kInfinity);
  EXPECT_EQ(got[6], 1.0f);
}

// Opposite infinities would make a NaN, which no row may hold.
TEST(Penalties, OfInfiniteLogits) {
  const SamplingOptions options = {.frequency_penalty = 3e38f,
                                   .logit_bias = {{0, -kInfinity}, {1, kInfinity}, {2, -100}}};
  std::vector<float> logits(kVocab, 1.0f);
  logits[0] = logits[2] = logits[3] = kInfinity;
  logits[1] = logits[4] = -kInfinity;
  const std::vector<float> got = applied(logits, options, {}, {3, 3, 4, 4});
  EXPECT_EQ(got[0], -kInfinity);
  EXPECT_EQ(got[1], kInfinity);
  EXPECT_EQ(got[2], kInfinity);
  EXPECT_EQ(got[3], -kInfinity);
  EXPECT_EQ(got[4], -kInfinity);
}

TEST(Logprobs, EqualLogSoftmaxAndTopIsInOrder) {
  std::vector<float> logits = random_logits(5);
  logits[7] = logits[9] = 30;
  const Logprobs logprobs(logits);
  long double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<long double>(logit) - 30);
  for (TokenId token = 0; token < kVocab; ++token) {
    const long double want = logits[static_cast<std::size_t>(token)] - 30 - std::log(sum);
    // Computed in FP64, so only the last rounding to FP32 counts: half an ulp, and a little.
    EXPECT_NEAR(logprobs.of(token), want, std::abs(want) * 0x1p-23L) << token;
  }
  const auto top = logprobs.top(20);
  ASSERT_EQ(top.size(), 20u);
  EXPECT_EQ(top[0].token, 7);
  EXPECT_EQ(top[1].token, 9);
  for (std::size_t i = 0; i < top.size(); ++i) {
    EXPECT_EQ(top[i].logprob, logprobs.of(top[i].token));
    if (i > 0) {
      EXPECT_LE(top[i].logprob, top[i - 1].logprob);
    }
  }
  EXPECT_TRUE(logprobs.top(0).empty());
}

TEST(Logprobs, InfinitiesAndNumbersThatAreNone) {
  const std::vector<float> some = {kNan, 0, -kInfinity, 0};
  EXPECT_TRUE(std::isnan(Logprobs(some).of(0)));
  EXPECT_FLOAT_EQ(Logprobs(some).of(1), -std::log(2.0f));
  EXPECT_EQ(Logprobs(some).of(2), -kInfinity);
  EXPECT_EQ(Logprobs(some).top(9).size(), 3u);
  const std::vector<float> certain = {1, kInfinity, 2};
  EXPECT_EQ(Logprobs(certain).of(1), 0);
  EXPECT_EQ(Logprobs(certain).of(0), -kInfinity);
  for (const float nothing : {kNan, -kInfinity}) {
    const std::vector<float> none = {nothing, nothing};
    EXPECT_TRUE(std::isnan(Logprobs(none).of(0)));
  }
}

}  // namespace
}  // namespace dsv4
