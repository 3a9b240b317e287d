// The scheduler without threads: who runs, what a step holds, and what a failing step leaves.
#include "runtime/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "runtime/engine_fixtures.h"
#include "runtime/engine_options.h"

namespace dsv4 {
namespace {

// Counts the tokens of each step, and throws in the middle of the step it is told to.
class StepWatcher : public LayerObserver {
 public:
  void before_layer(int layer_idx, const MutableMatrixView& streams) override {
    if (layer_idx == 0) step_tokens.push_back(streams.rows);
    if (layer_idx == 3 && std::ssize(step_tokens) == failing_step) {
      throw std::runtime_error("injected fault");
    }
  }

  std::vector<std::int64_t> step_tokens;
  std::int64_t failing_step = 0;  // from 1; 0: none
};

class SchedulerTest : public testing::Test {
 protected:
  static ModelOpenOptions options() {
    ModelOpenOptions options = nano_options();
    options.model.max_step_tokens = 8;
    options.max_sessions = 3;
    options.model.page_rows = 4;
    options.kv_tokens = 64;
    return options;
  }
  // The events of a request that was added.
  std::shared_ptr<EventQueue> add(std::size_t prompt_tokens, std::int64_t max_tokens) {
    std::vector<TokenId> prompt(tokens.begin(),
                                tokens.begin() + static_cast<std::ptrdiff_t>(prompt_tokens));
    Request request = nano_request(std::move(prompt), max_tokens);
    request.ignore_eos = true;
    auto events = std::make_shared<EventQueue>();
    scheduler.add(std::make_unique<RequestRun>(
        prepare(request, describe(model), &model.tokenizer()), events, &model.tokenizer()));
    return events;
  }
  void run_step() {
    scheduler.admit();
    scheduler.step();
  }
  void run_to_end() {
    for (int i = 0; scheduler.has_work(); ++i) {
      ASSERT_LT(i, 2000) << "no end";
      run_step();
    }
  }
  // What has come until now.
  static Answer events_of(EventQueue& events) {
    Answer answer;
    while (events.wait_for(std::chrono::milliseconds(0))) {
      std::optional<Event> event = events.next();
      if (!event) break;
      answer.add(std::move(*event));
    }
    return answer;
  }

  LoadedModel model{options()};
  std::vector<TokenId> tokens = held_out_tokens(model.tokenizer(), 64);
  StepWatcher watcher;
  Scheduler scheduler{model, &watcher};
  EngineLoad at_start = scheduler.load();
};

TEST_F(SchedulerTest, DecodingTokensComeFirstAndPromptsShareTheRest) {
  add(1, 9);
  run_step();
  add(20, 2);
  add(3, 2);
  run_step();  // one for each, and five more of the longer prompt
  run_step();
  run_step();
  EXPECT_THAT(watcher.step_tokens, testing::ElementsAre(1, 8, 8, 8));
  run_to_end();
  // In all: each prompt, and all drawn tokens but the last.
  const std::int64_t all =
      std::accumulate(watcher.step_tokens.begin(), watcher.step_tokens.end(), std::int64_t{0});
  EXPECT_EQ(all, (1 + 8) + (20 + 1) + (3 + 1));
}

// Known from the start, counted by step, and drawn tokens are no part of it.
TEST_F(SchedulerTest, ProgressOfAPrompt) {
  const auto events = add(20, 3);
  std::vector<std::int64_t> computed;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(events->prompt_progress().total_tokens, 20);
    computed.push_back(events->prompt_progress().computed_tokens);
    run_step();
  }
  EXPECT_THAT(computed, testing::ElementsAre(0, 8, 16, 20, 20));
  EXPECT_EQ(events->prompt_progress().computed_tokens, 20);
}

TEST_F(SchedulerTest, StepsOfOneTokenServeAllInTurn) {
  ModelOpenOptions small = options();
  small.model.max_step_tokens = 1;
  LoadedModel one(small);
  Scheduler turns(one);
  std::vector<std::shared_ptr<EventQueue>> events;
  for (int i = 0; i < 3; ++i) {
    Request request = nano_request({tokens[0], tokens[1]}, 2);
    request.ignore_eos = true;
    events.push_back(std::make_shared<EventQueue>());
    turns.add(std::make_unique<RequestRun>(prepare(request, describe(one), nullptr), events.back(),
                                           nullptr));
  }
  const auto run_steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      turns.admit();
      turns.step();
    }
  };
  run_steps(3);
  for (const auto& queue : events) EXPECT_TRUE(events_of(*queue).tokens.empty());
  run_steps(3);
  for (const auto& queue : events) EXPECT_EQ(events_of(*queue).tokens.size(), 1u);
  run_steps(3);
  for (const auto& queue : events) EXPECT_EQ(events_of(*queue).end(), "length");
  EXPECT_FALSE(turns.has_work());
}

// Ratio 4 has 64 / 4 / 4 + 3 = 7 pages of 4 rows; a request of 48 tokens takes 3 of them.
TEST_F(SchedulerTest, ALargeRequestWaitsAndNobodyOvertakesIt) {
  add(44, 5);
  add(44, 5);
  const auto large = add(44, 5);
  const auto small = add(5, 2);
  run_step();
  EXPECT_EQ(scheduler.load().running_requests, 2);
  EXPECT_EQ(scheduler.load().waiting_requests, 2);
  run_to_end();
  EXPECT_EQ(events_of(*large).tokens.size(), 5u);
  EXPECT_EQ(events_of(*small).tokens.size(), 2u);
  EXPECT_EQ(scheduler.load().free_kv_pages, at_start.free_kv_pages);
}

TEST_F(SchedulerTest, SessionsLimitHowManyRun) {
  for (int i = 0; i < 5; ++i) add(5, 3);
  run_step();
  EXPECT_EQ(scheduler.load().running_requests, 3);
  EXPECT_EQ(scheduler.load().free_sessions, 0);
  run_to_end();
  EXPECT_EQ(scheduler.load().free_sessions, 3);
}

TEST_F(SchedulerTest, WhatOpenSessionsHoldFailsARequestInsteadOfBlockingIt) {
  std::vector<ModelSession> sessions;
  for (int i = 0; i < 3; ++i) sessions.emplace_back(model);
  const auto refused = add(5, 3);
  run_to_end();
  EXPECT_EQ(events_of(*refused).end(), "overloaded");
  sessions.pop_back();
  sessions.front().sync(std::span(tokens).first(48));
  sessions.back().sync(std::span(tokens).first(48));
  const auto too_large = add(44, 5);
  const auto fits = add(5, 3);
  run_to_end();
  EXPECT_EQ(events_of(*too_large).end(), "overloaded");
  EXPECT_EQ(events_of(*fits).end(), "length");
}

TEST_F(SchedulerTest, CancellationGivesPagesBackAtTheNextStep) {
  const auto running = add(40, 20);
  run_step();
  const auto waiting = add(40, 20);
  EXPECT_LT(scheduler.load().free_kv_pages, at_start.free_kv_pages);
  running->cancel();
  waiting->cancel();
  scheduler.admit();
  EXPECT_FALSE(scheduler.has_work());
  EXPECT_EQ(scheduler.load().free_kv_pages, at_start.free_kv_pages);
  for (const auto& events : {running, waiting}) {
    const Answer answer = events_of(*events);
    EXPECT_EQ(answer.end(), "cancelled");
    EXPECT_EQ(answer.finish->usage.prompt_tokens, 40);
    EXPECT_EQ(answer.finish->usage.completion_tokens, 0);
  }
}

TEST_F(SchedulerTest, AFailingStepEndsItsRequestsAndLeavesTheOthersRight) {
  const auto alone = add(40, 6);
  run_to_end();
  const std::vector<TokenId> want = events_of(*alone).tokens;

  const auto a = add(40, 6);
  const auto b = add(9, 8);
  const auto c = add(7, 8);
  const auto queued = add(40, 6);  // takes over the state of a request that failed half-way
  watcher.failing_step = std::ssize(watcher.step_tokens) + 3;
  run_to_end();
  for (const auto& events : {a, b, c}) {
    const Answer answer = events_of(*events);
    ASSERT_TRUE(answer.error);
    EXPECT_EQ(answer.error->message, "injected fault");
    EXPECT_EQ(answer.error->code, ErrorCode::kInternal);  // it was no Error
  }
  EXPECT_EQ(events_of(*queued).tokens, want);
  EXPECT_EQ(scheduler.load().free_kv_pages, at_start.free_kv_pages);
  EXPECT_EQ(scheduler.load().free_sessions, at_start.free_sessions);
}

TEST_F(SchedulerTest, AllCanBeFailedOrCancelled) {
  const auto running = add(5, 30);
  run_step();
  const auto waiting = add(5, 30);
  scheduler.fail_all(ErrorCode::kIo, "unplugged");
  EXPECT_EQ(events_of(*running).error->message, "unplugged");
  EXPECT_EQ(events_of(*waiting).end(), "input/output error");
  const auto other = add(5, 30);
  scheduler.cancel_all();
  EXPECT_EQ(events_of(*other).end(), "cancelled");
  EXPECT_FALSE(scheduler.has_work());
}

}  // namespace
}  // namespace dsv4
