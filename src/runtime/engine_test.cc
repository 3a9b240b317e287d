// Single requests: what generate() gives, every way to end, and every refusal.
#include "dsv4/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/engine_fixtures.h"
#include "runtime/generate.h"

namespace dsv4 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class EngineTest : public testing::Test {
 protected:
  Answer run(const Request& request) { return collect(engine->submit(request)); }
  // The message of the refusal, or "".
  std::string refusal(const Request& request) {
    try {
      engine->submit(request);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
      return error.what();
    }
    return {};
  }

  std::unique_ptr<Engine> engine = Engine::open(nano_engine_options());
  std::vector<GreedyCase> cases = greedy_cases();
  std::vector<TokenId> story = cases.back().prompt;
};

TEST_F(EngineTest, TokensTextAndEndAreThoseOfGenerate) {
  LoadedModel model(nano_options());
  for (const auto& [prompt, max_tokens, temperature] :
       {std::tuple{cases[0].prompt, 40, 0.0f}, {cases[3].prompt, 9, 0.0f}, {story, 30, 1.0f}}) {
    Request request = nano_request(prompt, max_tokens, temperature, 17);
    request.sampling.min_p = 0.01f;
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.temperature = temperature;
    options.min_p = 0.01f;
    options.seed = 17;
    options.stop_ids = model.generation().eos_ids;
    ModelSession session(model);
    const GenerateResult want = generate(session, prompt, &model.tokenizer(), options);
    const Answer got = run(request);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
    EXPECT_EQ(got.end(), to_string(want.finish_reason));
    EXPECT_EQ(got.finish->usage.prompt_tokens, std::ssize(prompt));
    EXPECT_EQ(got.finish->usage.completion_tokens, std::ssize(want.tokens));
  }
}

TEST_F(EngineTest, TextPromptsAndConversationsAreEncodedAsTheTokenizerDoes) {
  Request request = nano_request({}, 20);
  request.prompt = engine->chat_prompt(
      R"({"messages": [{"role": "user", "content": "How many bridges does Ostholm have?"}]})");
  EXPECT_EQ(std::get<std::string>(request.prompt).find("<\uFF5Cbegin"), 0u);
  const Answer from_text = run(request);  // begins with the begin mark: no second one
  request.prompt = engine->tokenize(std::get<std::string>(request.prompt));
  EXPECT_EQ(from_text.finish->usage.prompt_tokens,
            std::ssize(std::get<std::vector<TokenId>>(request.prompt)));
  EXPECT_EQ(run(request).tokens, from_text.tokens);
  EXPECT_EQ(engine->detokenize(from_text.tokens).find(from_text.text), 0u);

  Request plain = nano_request({}, 0);
  plain.prompt = "The cook";
  EXPECT_EQ(run(plain).finish->usage.prompt_tokens, std::ssize(engine->tokenize("The cook")) + 1);
  plain.add_bos = false;
  EXPECT_EQ(run(plain).finish->usage.prompt_tokens, std::ssize(engine->tokenize("The cook")));
  plain.prompt = "";
  EXPECT_NE(refusal(plain), "");
}

TEST_F(EngineTest, NoTokenAndOneToken) {
  const Answer none = run(nano_request(story, 0));
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.end(), "length");
  EXPECT_EQ(none.finish->usage.completion_tokens, 0);
  const Answer one = run(nano_request(story, 1));
  EXPECT_EQ(one.tokens, (std::vector<TokenId>{cases.back().continuation[0]}));
  EXPECT_EQ(one.end(), "length");
}

// The program's figures once came from when the reader read: a late one saw 240983 tokens/s.
TEST_F(EngineTest, TimingsAreOfTheEngineWheneverEventsAreRead) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  const Clock::time_point start = Clock::now();
  RequestHandle handle = engine->submit(nano_request(story, 8));
  wait_until_idle(*engine);
  const Answer answer = collect(std::move(handle));
  const double all = seconds_since(start);
  ASSERT_EQ(answer.tokens.size(), 8u);
  const Timings& timings = answer.finish->timings;
  EXPECT_GT(timings.prompt_seconds, 0);
  EXPECT_GT(timings.decode_seconds, 0);
  EXPECT_LE(timings.prompt_seconds + timings.decode_seconds, all);

  const Timings one = run(nano_request(story, 1)).finish->timings;
  EXPECT_GT(one.prompt_seconds, 0);
  EXPECT_EQ(one.decode_seconds, 0);
  const Timings none = run(nano_request(story, 0)).finish->timings;
  EXPECT_GT(none.prompt_seconds, 0);
  EXPECT_EQ(none.decode_seconds, 0);
}

TEST_F(EngineTest, EndTokensStopUnlessIgnored) {
  Request request = nano_request(cases[0].prompt, 12);
  const Answer stopped = run(request);
  EXPECT_EQ(stopped.tokens, cases[0].continuation);
  EXPECT_EQ(stopped.end(), "stop");
  EXPECT_EQ(stopped.finish->stop_string, "");
  request.ignore_eos = true;
  const Answer goes_on = run(request);
  EXPECT_EQ(goes_on.tokens.size(), 12u);
  EXPECT_EQ(goes_on.end(), "length");
  request.ignore_eos = false;
  request.stop_tokens = {cases[0].continuation[2]};
  const Answer earlier = run(request);
  EXPECT_EQ(earlier.tokens.size(), 3u);
  EXPECT_EQ(earlier.text, engine->detokenize(std::span(earlier.tokens).first(2)));
}

TEST_F(EngineTest, StopStringAcrossTokensEndsTheText) {
  const std::string full = run(nano_request(cases[0].prompt, 40)).text;
  // Of every length at every place, so that many lie across tokens.
  for (std::size_t begin = 0; begin < full.size(); begin += 3) {
    Request request = nano_request(cases[0].prompt, 40);
    request.stop_strings = {"never there", full.substr(begin, 5)};
    const Answer answer = run(request);
    EXPECT_EQ(answer.text, full.substr(0, full.find(request.stop_strings[1])));
    EXPECT_EQ(answer.end(), "stop");
    EXPECT_EQ(answer.finish->stop_string, request.stop_strings[1]);
  }
  // Held back to the end, because it may still become a stop string.
  Request request = nano_request(cases[0].prompt, 40);
  request.stop_strings = {full.substr(full.size() - 4) + "!"};
  const Answer answer = run(request);
  EXPECT_EQ(answer.text, full);
  EXPECT_EQ(answer.finish->text, full.substr(full.size() - 4));
}

TEST_F(EngineTest, LogitBiasForbidsAndForces) {
  const TokenId best = cases[0].continuation[0];
  Request request = nano_request(cases[0].prompt, 3);
  request.sampling.logit_bias = {{best, -kInfinity}};
  EXPECT_NE(run(request).tokens[0], best);
  request.sampling.logit_bias = {{1234, kInfinity}};
  EXPECT_EQ(run(request).tokens, (std::vector<TokenId>{1234, 1234, 1234}));
  for (TokenId id = 0; id < engine->info().vocab_size; ++id) {
    request.sampling.logit_bias[id] = -kInfinity;
  }
  const Answer nothing = run(request);
  EXPECT_EQ(nothing.end(), "bad request");
  EXPECT_THAT(nothing.error->message, testing::HasSubstr("logit_bias"));
  EXPECT_EQ(run(nano_request(cases[0].prompt, 40)).tokens, cases[0].continuation);
}

TEST_F(EngineTest, PenaltiesChangeTheDrawButNotTheLogprobs) {
  Request request = nano_request(cases[0].prompt, 1);
  request.logprobs = 3;
  const Answer plain = run(request);
  request.sampling.logit_bias = {{plain.tokens[0], -kInfinity}};
  const Answer biased = run(request);
  EXPECT_EQ(biased.tokens[0], plain.top_logprobs[0][1].token);
  EXPECT_EQ(biased.logprobs[0], plain.top_logprobs[0][1].logprob);
  EXPECT_EQ(biased.top_logprobs[0][0].logprob, plain.logprobs[0]);

  // A large frequency penalty lets no token come twice.
  Request once = nano_request(story, 60);
  once.ignore_eos = true;
  once.sampling.frequency_penalty = 1000;
  std::vector<TokenId> tokens = run(once).tokens;
  EXPECT_EQ(tokens.size(), 60u);
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

TEST_F(EngineTest, LogprobsAreThoseOfTheSessionsLogits) {
  Request request = nano_request(story, 6, 0.8f, 3);
  request.logprobs = 0;
  const Answer answer = run(request);
  Session session(*engine);
  session.sync(story);
  ASSERT_EQ(answer.logprobs.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(answer.top_logprobs[i].empty());
    const auto logits = session.logits();
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    const double want = logits[static_cast<std::size_t>(answer.tokens[i])] - std::log(sum);
    // Half an ulp of the result, and sums without a common shift.
    EXPECT_NEAR(answer.logprobs[i], want, std::abs(want) * 0x1p-23 + 1e-12);
    session.step(answer.tokens[i]);
  }
  request.logprobs.reset();
  EXPECT_TRUE(run(request).logprobs.empty());
}

TEST_F(EngineTest, SizesThatFitJustAndJustNot) {
  const auto most = static_cast<std::size_t>(engine->info().max_session_tokens);
  ASSERT_EQ(most, 4096u);
  const std::vector<TokenId> prompt(most, 7);
  EXPECT_THAT(refusal(nano_request(prompt, 1)), testing::HasSubstr("takes at most 0"));
  std::vector<TokenId> longer = prompt;
  longer.push_back(7);
  EXPECT_THAT(refusal(nano_request(longer, 0)), testing::HasSubstr("4097 tokens"));
  EXPECT_THAT(refusal(nano_request(story, 4097)), testing::HasSubstr("takes at most 4078"));
  EXPECT_THAT(refusal(nano_request(story, std::numeric_limits<std::int64_t>::max())),
              testing::HasSubstr("max_tokens"));
  EXPECT_EQ(refusal(nano_request(prompt, 0)), "");  // cancelled at once
  EXPECT_EQ(refusal(nano_request(story, 4078)), "");
}

TEST_F(EngineTest, RefusalsNameTheField) {
  const auto refused = [&](auto&& change) {
    Request request = nano_request(story, 5);
    change(request);
    return refusal(request);
  };
  const auto vocab = static_cast<TokenId>(engine->info().vocab_size);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  using testing::HasSubstr;
  for (const TokenId bad : {TokenId{-1}, vocab}) {
    EXPECT_THAT(refused([&](Request& r) {
                  r.prompt = std::vector{TokenId{1}, bad};
                }),
                HasSubstr("prompt"));
    EXPECT_THAT(refused([&](Request& r) { r.stop_tokens = {bad}; }), HasSubstr("stop_tokens"));
    EXPECT_THAT(refused([&](Request& r) {
                  r.sampling.logit_bias = {{bad, 1.0f}};
                }),
                HasSubstr("logit_bias"));
  }
  EXPECT_THAT(refused([&](Request& r) { r.prompt = std::vector<TokenId>{}; }), HasSubstr("prompt"));
  EXPECT_THAT(refused([](Request& r) { r.max_tokens = -1; }), HasSubstr("max_tokens"));
  for (const float bad : {-1.0f, nan}) {
    EXPECT_THAT(refused([&](Request& r) { r.sampling.temperature = bad; }),
                HasSubstr("temperature"));
    EXPECT_THAT(refused([&](Request& r) { r.sampling.top_p = bad; }), HasSubstr("top_p"));
    EXPECT_THAT(refused([&](Request& r) { r.sampling.min_p = bad; }), HasSubstr("min_p"));
    EXPECT_THAT(refused([&](Request& r) { r.sampling.repetition_penalty = bad; }),
                HasSubstr("repetition_penalty"));
  }
  for (const float bad : {kInfinity, nan}) {
    EXPECT_THAT(refused([&](Request& r) { r.sampling.presence_penalty = bad; }),
                HasSubstr("presence_penalty"));
    EXPECT_THAT(refused([&](Request& r) { r.sampling.frequency_penalty = bad; }),
                HasSubstr("frequency_penalty"));
  }
  EXPECT_THAT(refused([](Request& r) { r.sampling.top_k = -1; }), HasSubstr("top_k"));
  EXPECT_THAT(refused([](Request& r) { r.sampling.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty"));
  EXPECT_THAT(refused([&](Request& r) {
                r.sampling.logit_bias = {{1, nan}};
              }),
              HasSubstr("logit_bias"));
  for (const int bad : {-1, kMaxTopLogprobs + 1}) {
    EXPECT_THAT(refused([&](Request& r) { r.logprobs = bad; }), HasSubstr("logprobs"));
  }
  for (const std::string& bad : {std::string(), std::string(kMaxStopStringBytes + 1, 'x'),
                                 std::string("a\xC3"), std::string("\xFF")}) {
    EXPECT_THAT(refused([&](Request& r) {
                  r.stop_strings = {"fine", bad};
                }),
                HasSubstr("stop_strings[1]"));
  }
  EXPECT_THAT(refused([](Request& r) { r.stop_strings.assign(kMaxStopStrings + 1, "x"); }),
              HasSubstr("stop_strings"));
  EXPECT_EQ(refused([](Request& r) { r.stop_strings.assign(kMaxStopStrings, "x"); }), "");
  EXPECT_EQ(refused([](Request& r) { r.logprobs = kMaxTopLogprobs; }), "");
}

TEST(EngineOptionsTest, RefusalsNameTheOption) {
  const auto refused = [](auto&& change) {
    EngineOptions options = nano_engine_options();
    change(options);
    try {
      Engine::open(options);
    } catch (const Error& error) {
      return std::string(to_string(error.code())) + ": " + error.what();
    }
    return std::string("no error");
  };
  using testing::AllOf;
  using testing::HasSubstr;
  using testing::StartsWith;
  EXPECT_THAT(refused([](EngineOptions& o) { o.model_dir = ""; }), HasSubstr("model_dir"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.model_dir = "no/such/model"; }),
              StartsWith("not found"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.device = "abacus"; }),
              AllOf(StartsWith("unsupported device"), HasSubstr("abacus")));
  EXPECT_THAT(refused([](EngineOptions& o) { o.num_threads = -1; }),
              AllOf(StartsWith("bad request"), HasSubstr("num_threads is -1")));
  EXPECT_THAT(refused([](EngineOptions& o) { o.activations = "a9"; }),
              AllOf(StartsWith("bad request"), HasSubstr("activations"), HasSubstr("a16")));
  EXPECT_THAT(refused([](EngineOptions& o) { o.rows = "some"; }), HasSubstr("rows"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.kv = "fp4"; }), HasSubstr("kv"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.rows = "exact", o.kv = "fp8"; }), HasSubstr("kv"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.kv_tokens = -1; }), HasSubstr("kv_tokens"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_sessions = 0; }), HasSubstr("max_sessions"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_step_tokens = 0; }),
              HasSubstr("max_step_tokens"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.max_waiting_requests = 0; }),
              HasSubstr("max_waiting_requests"));
}

// Messages go to terminals and into JSON, whatever the caller's strings hold.
TEST(EngineOptionsTest, MessagesOfLoadingAreShortAndPrintableUtf8) {
  const auto refused = [](auto&& change) {
    EngineOptions options = nano_engine_options();
    change(options);
    try {
      Engine::open(options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  using testing::HasSubstr;
  using testing::StartsWith;
  EXPECT_THAT(refused([](EngineOptions& o) { o.model_dir = "/no\x1b[31m\xff"; }),
              StartsWith("/no?[31m\xEF\xBF\xBD: there is no such directory"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.device = "cuda:\x1b"; }),
              HasSubstr("\"cuda:?\" on this machine"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.activations = "a\x1b\xff"; }),
              StartsWith("activations is \"a?\xEF\xBF\xBD\"; it must be one of auto"));
  EXPECT_THAT(refused([](EngineOptions& o) { o.kv = std::string(100000, 'x'); }),
              StartsWith("kv is \"" + std::string(60, 'x') + "...\"; it must be one of"));
  EXPECT_LE(refused([](EngineOptions& o) { o.device.assign(100000, 'x'); }).size(), 8192u);
}

TEST(EngineOptionsTest, ErrorsOfTheCallersProgressArriveAsTheyAre) {
  struct OwnError : Error {
    OwnError() : Error(ErrorCode::kIo, "enough") {}
  };
  EngineOptions options = nano_engine_options();
  options.load_progress = [](auto&&...) { throw OwnError(); };
  EXPECT_THROW(Engine::open(options), OwnError);
}

TEST(EngineOptionsTest, WithoutTokenizerThereAreIdsOnly) {
  EngineOptions options = nano_engine_options();
  options.with_tokenizer = false;
  options.rows = "exact";
  const auto engine = Engine::open(options);
  const Answer answer = collect(engine->submit(nano_request({0, 5, 6}, 4)));
  EXPECT_EQ(answer.tokens.size(), 4u);
  EXPECT_EQ(answer.text, "");
  Request text;
  text.prompt = "words";
  EXPECT_EQ(error_of([&] { engine->submit(text); }), name_of(ErrorCode::kBadRequest));
  Request stops = nano_request({0, 5, 6}, 4);
  stops.stop_strings = {"x"};
  EXPECT_EQ(error_of([&] { engine->submit(stops); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { engine->tokenize("x"); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { engine->detokenize({}); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { engine->chat_prompt("{}"); }), name_of(ErrorCode::kBadRequest));
}

}  // namespace
}  // namespace dsv4
