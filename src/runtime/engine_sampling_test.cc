// Every sampling option through the public API: it reaches the draw, and in the sense that
// dsv4/request.h gives it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

#include "runtime/engine_fixtures.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class EngineSamplingTest : public testing::Test {
 protected:
  // A long answer that no end mark cuts.
  Request story(float temperature, std::uint64_t seed = 0, std::int64_t max_tokens = 24) const {
    Request request = nano_request(prompt, max_tokens, temperature, seed);
    request.ignore_eos = true;
    return request;
  }
  std::vector<TokenId> tokens_of(const Request& request) {
    return collect(engine->submit(request)).tokens;
  }
  // The tokens with the highest logits after `adjust`, one after the other: a loop of its own over
  // a session. `adjust` sees how often a token was drawn.
  template <class Adjust>
  std::vector<TokenId> greedy_with(Adjust&& adjust, std::int64_t count) {
    Session session(*engine);
    session.sync(prompt);
    std::map<TokenId, int> num_drawn;
    std::vector<TokenId> drawn;
    while (std::ssize(drawn) < count) {
      std::vector<float> logits(session.logits().begin(), session.logits().end());
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const auto token = static_cast<TokenId>(i);
        logits[i] = adjust(token, logits[i], num_drawn[token]);
      }
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      drawn.push_back(static_cast<TokenId>(best));
      ++num_drawn[drawn.back()];
      session.step(drawn.back());
    }
    return drawn;
  }
  bool in_prompt(TokenId token) const {
    return std::find(prompt.begin(), prompt.end(), token) != prompt.end();
  }

  std::unique_ptr<Engine> engine = Engine::open(nano_engine_options());
  std::vector<TokenId> prompt = greedy_cases().back().prompt;
};

TEST_F(EngineSamplingTest, TemperatureZeroTakesTheHighestLogitAndOthersDraw) {
  const auto greedy = tokens_of(story(0));
  EXPECT_EQ(greedy, greedy_with([](TokenId, float logit, int) { return logit; }, 24));
  EXPECT_EQ(tokens_of(story(0, 99)), greedy);  // no draw, no seed
  EXPECT_NE(tokens_of(story(2, 1)), greedy);
}

TEST_F(EngineSamplingTest, TheSeedDecidesTheDraws) {
  const auto first = tokens_of(story(1, 1));
  EXPECT_EQ(tokens_of(story(1, 1)), first);
  EXPECT_NE(tokens_of(story(1, 2)), first);
  EXPECT_NE(tokens_of(story(1, std::uint64_t{1} << 40)), tokens_of(story(1, 0)));
}

// Each leaves the likeliest token alone, at a temperature that would draw others.
TEST_F(EngineSamplingTest, TopKTopPAndMinPCut) {
  const auto greedy = tokens_of(story(0));
  ASSERT_NE(tokens_of(story(3, 5)), greedy);
  Request request = story(3, 5);
  request.sampling.top_k = 1;
  EXPECT_EQ(tokens_of(request), greedy);
  request = story(3, 5);
  request.sampling.top_p = 1e-6f;
  EXPECT_EQ(tokens_of(request), greedy);
  request = story(3, 5);
  request.sampling.min_p = 1;
  EXPECT_EQ(tokens_of(request), greedy);
  // The whole vocabulary is no cut.
  request = story(3, 5);
  request.sampling.top_k = static_cast<std::int32_t>(engine->info().vocab_size);
  EXPECT_EQ(tokens_of(request), tokens_of(story(3, 5)));
}

TEST_F(EngineSamplingTest, WithoutTemperatureAndTopPTheModelsOwnCount) {
  const EngineInfo& info = engine->info();
  EXPECT_EQ(info.temperature, 0.7f);  // models/nano/generation_config.json
  EXPECT_EQ(info.top_p, 0.95f);
  Request own = story(1, 3), given = story(info.temperature, 3);
  own.sampling.temperature.reset();
  own.sampling.top_p.reset();
  given.sampling.top_p = info.top_p;
  EXPECT_EQ(tokens_of(own), tokens_of(given));
  EXPECT_NE(tokens_of(own), tokens_of(story(1.5f, 3)));
}

TEST_F(EngineSamplingTest, RepetitionPenaltyIsOfPromptAndDraws) {
  const float penalty = 3;
  const auto want = greedy_with(
      [&](TokenId token, float logit, int num_drawn) {
        if (num_drawn == 0 && !in_prompt(token)) return logit;
        return logit > 0 ? logit / penalty : logit * penalty;
      },
      24);
  Request request = story(0);
  EXPECT_NE(tokens_of(request), want);
  request.sampling.repetition_penalty = penalty;
  EXPECT_EQ(tokens_of(request), want);
}

TEST_F(EngineSamplingTest, PresenceAndFrequencyPenaltiesAreOfDrawsAlone) {
  const float presence = 12, frequency = 5;
  const auto with = [&](float p, float f) {
    return greedy_with(
        [=](TokenId, float logit, int num_drawn) {
          const auto times = static_cast<float>(num_drawn);
          return logit - (times * f + (num_drawn > 0 ? p : 0));
        },
        24);
  };
  Request request = story(0);
  const auto plain = tokens_of(request);
  request.sampling.presence_penalty = presence;
  const auto present = tokens_of(request);
  EXPECT_EQ(present, with(presence, 0));
  EXPECT_NE(present, plain);
  request.sampling.presence_penalty = 0;
  request.sampling.frequency_penalty = frequency;
  const auto frequent = tokens_of(request);
  EXPECT_EQ(frequent, with(0, frequency));
  EXPECT_NE(frequent, present);
}

TEST_F(EngineSamplingTest, LogitBiasIsAdded) {
  const auto plain = tokens_of(story(0));
  const auto want = greedy_with(
      [&](TokenId token, float logit, int) { return token == plain[0] ? logit - 100 : logit; }, 24);
  Request request = story(0);
  request.sampling.logit_bias = {{plain[0], -100.0f}};
  EXPECT_EQ(tokens_of(request), want);
  EXPECT_NE(want, plain);
}

TEST_F(EngineSamplingTest, ABiasThatForbidsAllIsTheCallersError) {
  Request request = story(1);
  for (TokenId token = 0; token < static_cast<TokenId>(engine->info().vocab_size); ++token) {
    request.sampling.logit_bias[token] = -kInfinity;
  }
  const Answer answer = collect(engine->submit(request));
  ASSERT_TRUE(answer.error);
  EXPECT_EQ(answer.error->code, ErrorCode::kBadRequest);
  EXPECT_THAT(answer.error->message,
              testing::AllOf(testing::HasSubstr("position " + std::to_string(prompt.size()) + ":"),
                             testing::HasSubstr("forbid all")));
}

// Also where the request forbids the token itself, whatever of the row comes to the host.
TEST(EngineOfDamagedWeights, ANanLogitEndsTheRequestWithItsPosition) {
  const TestFolder folder;
  constexpr TokenId kDamaged = 2047;
  write_nano_with_nan_logit(folder.path(), kDamaged);
  EngineOptions options = nano_engine_options();
  options.model_dir = folder.path();
  const auto engine = Engine::open(options);
  const std::vector<TokenId> prompt = greedy_cases()[0].prompt;
  std::vector<Request> requests(4, nano_request(prompt, 4));
  requests[1].sampling.temperature = 1;
  requests[2].logprobs = 3;
  requests[3].sampling.logit_bias = {{kDamaged, -kInfinity}};
  for (const Request& request : requests) {
    const Answer answer = collect(engine->submit(request));
    EXPECT_TRUE(answer.tokens.empty());
    ASSERT_TRUE(answer.error);
    EXPECT_EQ(answer.error->code, ErrorCode::kBadCheckpoint);
    EXPECT_THAT(answer.error->message,
                testing::HasSubstr("logits for position " + std::to_string(prompt.size()) +
                                   " are not numbers"));
  }
}

}  // namespace
}  // namespace dsv4
