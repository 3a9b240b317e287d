// engine_fixtures.h: engines of the bundled model, and whole requests, for the tests of this
// folder. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dsv4/engine.h"
#include "runtime/nano_model.h"

namespace dsv4 {

inline EngineOptions nano_engine_options() {
  EngineOptions options;
  options.model_dir = nano_dir();
  options.activations = "a16";
  options.kv_tokens = 4096;
  options.max_step_tokens = 64;
  return options;
}

// All events of a request.
struct Answer {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<float> logprobs;
  std::vector<std::vector<TokenLogprob>> top_logprobs;
  std::optional<FinishEvent> finish;
  std::optional<ErrorEvent> error;

  std::string end() const {
    if (error) return std::string(to_string(error->code));
    if (!finish) return "no end";
    return std::string(to_string(finish->reason));
  }
  void add(Event event) {
    if (auto* token = std::get_if<TokenEvent>(&event)) {
      tokens.push_back(token->token);
      text += token->text;
      if (token->logprob) logprobs.push_back(*token->logprob);
      top_logprobs.push_back(std::move(token->top_logprobs));
    } else if (auto* last = std::get_if<FinishEvent>(&event)) {
      text += last->text;
      finish = std::move(*last);
    } else {
      error = std::get<ErrorEvent>(event);
    }
  }
};

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline void expect_same(const Answer& a, const Answer& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.text, b.text);
  EXPECT_EQ(a.end(), b.end());
  EXPECT_TRUE(same_bits(a.logprobs, b.logprobs));
  ASSERT_EQ(a.top_logprobs.size(), b.top_logprobs.size());
  for (std::size_t i = 0; i < a.top_logprobs.size(); ++i) {
    EXPECT_TRUE(same_bits(a.top_logprobs[i], b.top_logprobs[i])) << i;
  }
}

inline Answer collect(RequestHandle handle) {
  Answer answer;
  while (std::optional<Event> event = handle.next()) answer.add(std::move(*event));
  return answer;
}

inline Request nano_request(std::vector<TokenId> prompt, std::int64_t max_tokens,
                            float temperature = 0, std::uint64_t seed = 0) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.top_p = 1;
  request.sampling.seed = seed;
  return request;
}

// Waits until `condition` of the engine's load holds.
template <class Condition>
EngineLoad wait_for_load(const Engine& engine, Condition&& condition) {
  for (;;) {
    const EngineLoad load = engine.load();
    if (condition(load)) return load;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
inline EngineLoad wait_until_idle(const Engine& engine) {
  return wait_for_load(engine, [](const EngineLoad& load) {
    return load.running_requests == 0 && load.waiting_requests == 0;
  });
}

}  // namespace dsv4
