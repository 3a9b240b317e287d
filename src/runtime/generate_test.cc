// Generation: the recorded continuations of the bundled model, repeatable draws, and every way to
// end.
#include "runtime/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "runtime/nano_model.h"
#include "runtime/sampler.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

// models/nano/README.md: where the recorded margin is at least this, the argmax must agree.
constexpr double kSafeMargin = 0.05;
// A continuation with margins below that may differ: the story, the last case.
constexpr std::size_t kNumFreeCases = 5, kStory = 5;

class GenerateTest : public testing::Test {
 protected:
  GenerateOptions greedy(std::int64_t max_tokens = 200) const {
    GenerateOptions options;
    options.temperature = 0;
    options.max_tokens = max_tokens;
    options.stop_ids = model.generation().eos_ids;
    return options;
  }
  // Never ends by itself.
  static GenerateOptions sampled(std::uint64_t seed, std::int64_t max_tokens) {
    GenerateOptions options;
    options.seed = seed;
    options.max_tokens = max_tokens;
    return options;
  }
  GenerateResult run(std::span<const TokenId> prompt, const GenerateOptions& options,
                     const TokenCallback& on_token = {}) {
    ModelSession session(model);
    return generate(session, prompt, &model.tokenizer(), options, on_token);
  }

  LoadedModel model{nano_options()};
  std::vector<GreedyCase> cases = greedy_cases();
};

TEST_F(GenerateTest, FreeGreedyContinuationsAreTheRecordedOnes) {
  for (std::size_t i = 0; i < kNumFreeCases; ++i) {
    const GenerateResult result = run(cases[i].prompt, greedy());
    EXPECT_EQ(result.tokens, cases[i].continuation) << i;
    EXPECT_EQ(result.text + model.tokenizer().decode({&result.tokens.back(), 1}), cases[i].text);
    EXPECT_EQ(result.finish_reason, FinishReason::kStop) << i;
    EXPECT_EQ(result.prompt_tokens, static_cast<std::int64_t>(cases[i].prompt.size()));
    EXPECT_EQ(result.computed_prompt_tokens, result.prompt_tokens);
  }
}

TEST_F(GenerateTest, ArgmaxIsTheRecordedTokenWhereMarginsAreSafe) {
  std::int64_t judged = 0;
  for (const GreedyCase& c : cases) {
    ModelSession session(model);
    session.sync(c.prompt);
    for (std::size_t i = 0; i < c.continuation.size(); ++i) {
      const auto logits = session.logits();
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      if (c.margins[i] >= kSafeMargin) {
        EXPECT_EQ(best, c.continuation[i]) << "token " << i << ", margin " << c.margins[i];
        ++judged;
      }
      session.step(c.continuation[i]);
    }
  }
  EXPECT_GT(judged, 200);
}

// Whoever prints the text may be slow, e.g. a terminal; the model is not.
TEST_F(GenerateTest, TimesLeaveOutWhatTheCallbackTakes) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> slept{0};
  const auto sleep = [&slept](TokenId, std::string_view) {
    const Clock::time_point start = Clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    slept += Clock::now() - start;
    return true;
  };
  const Clock::time_point start = Clock::now();
  const GenerateResult result = run(cases[kStory].prompt, sampled(11, 4), sleep);
  const std::chrono::duration<double> all = Clock::now() - start;
  EXPECT_GT(result.prefill_seconds, 0);
  EXPECT_GT(result.decode_seconds, 0);
  EXPECT_LE(result.prefill_seconds + result.decode_seconds + slept.count(), all.count());
  EXPECT_EQ(run(cases[kStory].prompt, sampled(11, 1)).decode_seconds, 0);
}

TEST_F(GenerateTest, SameSeedRepeatsAndAnotherDiffers) {
  const auto& prompt = cases[kStory].prompt;
  const GenerateResult first = run(prompt, sampled(11, 24));
  EXPECT_EQ(run(prompt, sampled(11, 24)).tokens, first.tokens);
  EXPECT_NE(run(prompt, sampled(12, 24)).tokens, first.tokens);
}

// Each token against a draw of its own, from logits computed without generate().
TEST_F(GenerateTest, TheTokenAtAPositionIsDrawnWithSeedAndPosition) {
  const auto& prompt = cases[kStory].prompt;
  const GenerateResult result = run(prompt, sampled(11, 24));
  ASSERT_EQ(result.tokens.size(), 24u);
  Sampler sampler(model.backend());
  ModelSession session(model);
  session.sync(prompt);
  int num_others = 0;  // drawn for the position before or after instead
  for (const TokenId token : result.tokens) {
    const auto drawn_at = [&](std::int64_t position) {
      return sampler.sample(session.device_logits(), SamplingRow{.seed = 11, .position = position})
          .token;
    };
    EXPECT_EQ(drawn_at(session.length()), token) << session.length();
    num_others +=
        drawn_at(session.length() - 1) != token || drawn_at(session.length() + 1) != token;
    session.step(token);
  }
  EXPECT_GT(num_others, 5) << "the position has no effect: this test could not fail";
}

TEST_F(GenerateTest, ContinuingLaterDrawsTheSameTokens) {
  const auto& prompt = cases[kStory].prompt;
  const GenerateResult whole = run(prompt, sampled(5, 16));
  ModelSession session(model);
  std::vector<TokenId> timeline = prompt;
  for (const std::int64_t count : {7, 9}) {
    const GenerateResult part = generate(session, timeline, nullptr, sampled(5, count));
    timeline.insert(timeline.end(), part.tokens.begin(), part.tokens.end());
    EXPECT_TRUE(part.text.empty());
    // First the prompt, then the one drawn token that was not computed.
    const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
    EXPECT_EQ(part.computed_prompt_tokens, count == 7 ? prompt_tokens : 1);
  }
  EXPECT_THAT(std::vector<TokenId>(timeline.begin() + static_cast<std::ptrdiff_t>(prompt.size()),
                                   timeline.end()),
              testing::ElementsAreArray(whole.tokens));
}

TEST_F(GenerateTest, MaxTokensAtAndAroundTheEnd) {
  const GreedyCase& c = cases[2];
  const auto size = static_cast<std::int64_t>(c.continuation.size());
  for (const std::int64_t max_tokens :
       {std::int64_t{0}, std::int64_t{1}, size - 1, size, size + 1}) {
    const GenerateResult result = run(c.prompt, greedy(max_tokens));
    const std::int64_t drawn = std::min(max_tokens, size);
    EXPECT_THAT(
        result.tokens,
        testing::ElementsAreArray(
            std::span<const TokenId>(c.continuation).first(static_cast<std::size_t>(drawn))));
    EXPECT_EQ(result.finish_reason, max_tokens < size ? FinishReason::kLength : FinishReason::kStop)
        << max_tokens;
  }
}

TEST_F(GenerateTest, SessionHoldsAllButTheLastToken) {
  const GreedyCase& c = cases[0];
  ModelSession session(model);
  generate(session, c.prompt, &model.tokenizer(), greedy());
  std::vector<TokenId> want = c.prompt;
  want.insert(want.end(), c.continuation.begin(), c.continuation.end() - 1);
  EXPECT_THAT(session.tokens(), testing::ElementsAreArray(want));
}

TEST_F(GenerateTest, AnyStopIdEndsAndIsNotText) {
  const GreedyCase& c = cases[1];
  GenerateOptions options = greedy();
  options.stop_ids = {1999, c.continuation[2]};
  const GenerateResult result = run(c.prompt, options);
  EXPECT_THAT(result.tokens,
              testing::ElementsAreArray(std::span<const TokenId>(c.continuation).first(3)));
  EXPECT_EQ(result.text,
            model.tokenizer().decode(std::span<const TokenId>(c.continuation).first(2)));
}

TEST_F(GenerateTest, PiecesAreTheTextAndTokensInOrder) {
  std::string pieces;
  std::vector<TokenId> seen;
  const GenerateResult result =
      run(cases[0].prompt, greedy(), [&](TokenId token, std::string_view text) {
        if (token >= 0) seen.push_back(token);
        pieces += text;
        return true;
      });
  EXPECT_EQ(pieces, result.text);
  EXPECT_EQ(seen, result.tokens);
}

TEST_F(GenerateTest, CallbackCancels) {
  int calls = 0;
  const GenerateResult result =
      run(cases[0].prompt, greedy(), [&](TokenId, std::string_view) { return ++calls < 3; });
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 3u);
}

TEST_F(GenerateTest, RefusesBadRequests) {
  const auto code = [&](std::span<const TokenId> prompt, const GenerateOptions& options) {
    return error_of([&] { run(prompt, options); });
  };
  const std::string refused = name_of(ErrorCode::kBadRequest);
  const auto& prompt = cases[0].prompt;
  EXPECT_EQ(code({}, greedy()), refused);
  EXPECT_EQ(code(prompt, greedy(-1)), refused);
  GenerateOptions options = greedy();
  options.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(code(prompt, options), refused);
  options = greedy();
  options.top_p = 0;
  EXPECT_EQ(code(prompt, options), refused);
}

// A session of n tokens takes n - prompt computed ones, and one more is drawn from the last.
TEST(GenerateInASmallCache, FullSessionEndsByLength) {
  const GreedyCase c = greedy_cases()[kStory];
  ModelOpenOptions open = nano_options();
  open.kv_tokens = static_cast<std::int64_t>(c.prompt.size()) + 3;
  LoadedModel model(open);
  ModelSession session(model);
  GenerateOptions options;
  options.max_tokens = 100;
  const GenerateResult result = generate(session, c.prompt, nullptr, options);
  EXPECT_EQ(result.tokens.size(), 4u);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

// 257 tokens: the bytes, and a mark. The model has 2048.
std::string byte_tokenizer_json() {
  nlohmann::json json = nlohmann::json::parse(read_nano_file("tokenizer.json"));
  nlohmann::json vocab = nlohmann::json::object();
  for (const auto& [token, id] : json.at("model").at("vocab").items()) {
    if (id < 259) vocab[token] = id;
  }
  json["model"]["vocab"] = vocab;
  json["model"]["merges"] = nlohmann::json::array();
  nlohmann::json added = nlohmann::json::array();
  for (const auto& token : json.at("added_tokens")) {
    if (token.at("id") < 259) added.push_back(token);
  }
  json["added_tokens"] = added;
  return json.dump();
}

TEST(GenerateFromDamagedWeights, ANanLogitIsRefusedWithItsPosition) {
  const TestFolder folder;
  const GreedyCase c = greedy_cases()[0];
  // Of a token that would never be drawn.
  write_nano_with_nan_logit(folder.path(), 2047);
  ModelOpenOptions open = nano_options();
  open.model_dir = folder.path();
  LoadedModel model(open);
  for (const float temperature : {0.0f, 1.0f}) {
    ModelSession session(model);
    GenerateOptions options;
    options.temperature = temperature;
    try {
      generate(session, c.prompt, nullptr, options);
      ADD_FAILURE() << "a token was drawn beside a NaN";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadCheckpoint);
      EXPECT_THAT(error.what(),
                  testing::HasSubstr("logits for position " + std::to_string(c.prompt.size()) +
                                     " are not numbers"));
    }
  }
}

TEST(GenerateWithASmallTokenizer, IdsWithoutTokenAreReplacementCharacters) {
  LoadedModel model(nano_options());
  const Tokenizer small = Tokenizer::parse(byte_tokenizer_json(), "a small tokenizer");
  const GreedyCase c = greedy_cases()[0];
  ModelSession session(model);
  GenerateOptions options;
  options.temperature = 0;
  options.stop_ids = {1};
  const GenerateResult result = generate(session, c.prompt, &small, options);
  ASSERT_EQ(result.tokens, c.continuation);
  std::string want;
  for (const TokenId id : c.continuation) {
    if (id == 1) break;
    want += small.is_token(id) ? small.decode({&id, 1}) : "\xEF\xBF\xBD";
  }
  EXPECT_EQ(result.text, want);
  EXPECT_THAT(result.text, testing::HasSubstr("\xEF\xBF\xBD"));
}

// The bundled tokenizer, the strings of two tokens exchanged.
Tokenizer tokenizer_with_exchanged(TokenId a, TokenId b) {
  nlohmann::json json = nlohmann::json::parse(read_nano_file("tokenizer.json"));
  for (auto& [token, id] : json.at("model").at("vocab").items()) {
    if (id == a) {
      id = b;
    } else if (id == b) {
      id = a;
    }
  }
  return Tokenizer::parse(json.dump(), "an exchanged tokenizer");
}

TEST(GenerateAtTheEnd, HeldBackTextIsInTheResultAndInTheLastPiece) {
  LoadedModel model(nano_options());
  const GreedyCase c = greedy_cases()[0];
  // The second token drawn becomes a byte that begins a character and waits for another.
  const TokenId begins_character = 130;
  ASSERT_EQ(model.tokenizer().token_bytes(begins_character), "\xC3");
  const Tokenizer exchanged = tokenizer_with_exchanged(begins_character, c.continuation[1]);
  GenerateOptions options;
  options.temperature = 0;
  options.max_tokens = 2;
  std::vector<std::pair<TokenId, std::string>> pieces;
  ModelSession session(model);
  const GenerateResult result =
      generate(session, c.prompt, &exchanged, options, [&](TokenId token, std::string_view text) {
        pieces.emplace_back(token, text);
        return true;
      });
  const std::string first = exchanged.decode(std::span(c.continuation).first(1));
  EXPECT_EQ(result.text, first + "\xEF\xBF\xBD");
  EXPECT_THAT(pieces, testing::ElementsAre(std::pair(c.continuation[0], first),
                                           std::pair(c.continuation[1], std::string()),
                                           std::pair(-1, std::string("\xEF\xBF\xBD"))));
}

}  // namespace
}  // namespace dsv4
