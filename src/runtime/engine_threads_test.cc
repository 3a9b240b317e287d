// Many requests at once: none changes another's bits, nothing is lost, every end is clean. Run it
// with thread and address sanitizers, too.
#include <gtest/gtest.h>

#include "runtime/engine_fixtures.h"

namespace dsv4 {
namespace {

class EngineThreadsTest : public testing::Test {
 protected:
  std::vector<TokenId> prompt(std::size_t begin, std::size_t count) const {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    return {first, first + static_cast<std::ptrdiff_t>(count)};
  }
  static Request endless(Request request) {
    request.ignore_eos = true;
    return request;
  }
  std::unique_ptr<Engine> open(int max_sessions, int max_waiting = 256) const {
    EngineOptions options = nano_engine_options();
    options.max_sessions = max_sessions;
    options.max_waiting_requests = max_waiting;
    options.max_step_tokens = 48;
    return Engine::open(options);
  }

  std::vector<TokenId> tokens = held_out_tokens(load_tokenizer(nano_dir()), 700);
};

TEST_F(EngineThreadsTest, RequestsAloneAndTogetherGiveTheSameBits) {
  std::vector<Request> requests = {nano_request(prompt(0, 135), 12, 1.0f, 5),
                                   nano_request(prompt(300, 30), 20, 0.7f, 6),
                                   nano_request(prompt(100, 3), 25)};
  requests[1].sampling.repetition_penalty = 1.2f;
  requests[1].sampling.frequency_penalty = 0.3f;
  for (Request& request : requests) {
    request = endless(request);
    request.logprobs = 5;
  }
  const auto alone_engine = open(1);
  std::vector<Answer> alone;
  for (const Request& request : requests) {
    alone.push_back(collect(alone_engine->submit(request)));
  }
  const auto engine = open(3);
  std::vector<RequestHandle> handles;
  for (const Request& request : requests) handles.push_back(engine->submit(request));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(alone[i].end(), "length");
    expect_same(collect(std::move(handles[i])), alone[i]);
  }
}

TEST_F(EngineThreadsTest, AFullQueueRefusesAndTakesAgainLater) {
  const auto engine = open(1, 2);
  RequestHandle running = engine->submit(endless(nano_request(prompt(0, 4), 4000)));
  ASSERT_TRUE(running.next());
  RequestHandle second = engine->submit(nano_request(prompt(0, 4), 1));
  RequestHandle third = engine->submit(nano_request(prompt(0, 4), 1));
  EXPECT_EQ(error_of([&] { engine->submit(nano_request(prompt(0, 4), 1)); }),
            name_of(ErrorCode::kOverloaded));
  EXPECT_FALSE(second.wait_for(std::chrono::milliseconds(0)));
  third.cancel();
  running.cancel();
  Answer rest = collect(std::move(running));
  EXPECT_EQ(rest.end(), "cancelled");
  EXPECT_EQ(rest.finish->usage.completion_tokens, std::ssize(rest.tokens) + 1);
  EXPECT_EQ(collect(std::move(second)).end(), "length");
  EXPECT_EQ(collect(std::move(third)).end(), "cancelled");
  wait_until_idle(*engine);
  EXPECT_EQ(collect(engine->submit(nano_request(prompt(0, 4), 1))).end(), "length");
}

TEST_F(EngineThreadsTest, HandlesOutliveTheirEngine) {
  auto engine = open(2);
  std::vector<RequestHandle> handles;
  for (int i = 0; i < 6; ++i) {
    handles.push_back(engine->submit(endless(nano_request(prompt(0, 20), 4000))));
  }
  Session session(*engine);
  ASSERT_TRUE(handles[0].next());
  engine.reset();
  handles[5].cancel();
  handles.pop_back();
  for (RequestHandle& handle : handles) {
    while (std::optional<Event> event = handle.next()) {
      if (const auto* finish = std::get_if<FinishEvent>(&*event)) {
        EXPECT_EQ(finish->reason, FinishReason::kCancelled);
      }
    }
    EXPECT_FALSE(handle.next());
    EXPECT_TRUE(handle.wait_for(std::chrono::milliseconds::max()));
    EXPECT_TRUE(handle.wait_for(std::chrono::milliseconds::min()));
  }
  EXPECT_EQ(error_of([&] { session.step(5); }), name_of(ErrorCode::kBadRequest));
}

TEST_F(EngineThreadsTest, AnyThreadMayCancelWhileAnotherWaits) {
  const auto engine = open(1);
  RequestHandle running = engine->submit(endless(nano_request(prompt(0, 4), 4000)));
  RequestHandle queued = engine->submit(nano_request(prompt(0, 4), 1));
  ASSERT_TRUE(running.next());
  Answer of_running, of_queued;
  std::thread waits_for_running([&] {
    while (std::optional<Event> event = running.next()) of_running.add(std::move(*event));
  });
  std::thread waits_for_queued([&] {
    while (std::optional<Event> event = queued.next()) of_queued.add(std::move(*event));
  });
  queued.cancel();
  waits_for_queued.join();
  running.cancel();
  waits_for_running.join();
  EXPECT_EQ(of_queued.end(), "cancelled");
  EXPECT_EQ(of_queued.finish->usage.completion_tokens, 0);
  EXPECT_EQ(of_running.end(), "cancelled");
}

TEST_F(EngineThreadsTest, AMovedHandleGoesOnAndAnAssignedOneIsCancelled) {
  const auto engine = open(2);
  RequestHandle a = engine->submit(endless(nano_request(prompt(0, 5), 4000)));
  RequestHandle b = engine->submit(endless(nano_request(prompt(0, 5), 3)));
  a = std::move(b);
  EXPECT_EQ(collect(std::move(a)).tokens.size(), 3u);
  wait_until_idle(*engine);
}

TEST_F(EngineThreadsTest, SessionsAndRequestsRunBesideEachOther) {
  const auto engine = open(4);
  const auto logits_of = [](const Session& session) {
    return std::vector<float>(session.logits().begin(), session.logits().end());
  };
  std::vector<float> want;
  {
    Session session(*engine);
    EXPECT_EQ(session.sync(prompt(0, 150)), 150);
    want = logits_of(session);
  }
  const Answer want_answer = collect(engine->submit(nano_request(prompt(200, 60), 10)));
  RequestHandle handle = engine->submit(nano_request(prompt(200, 60), 10));
  std::thread other([&] {
    Session session(*engine);
    session.sync(prompt(300, 20));
    for (std::size_t i = 0; i < 10; ++i) session.step(tokens[i]);
    EXPECT_EQ(session.length(), 30);
  });
  Session session(*engine);
  EXPECT_EQ(session.sync(prompt(0, 100)), 100);
  EXPECT_EQ(session.sync(prompt(0, 149)), 49);
  session.step(tokens[149]);
  EXPECT_TRUE(same_bits(logits_of(session), want));
  EXPECT_EQ(session.sync(prompt(0, 150)), 0);
  EXPECT_EQ(session.sync(prompt(1, 3)), 3);
  EXPECT_EQ(session.sync(prompt(0, 150)), 150);
  EXPECT_TRUE(same_bits(logits_of(session), want));
  other.join();
  expect_same(collect(std::move(handle)), want_answer);
}

TEST_F(EngineThreadsTest, SessionRefusalsChangeNothing) {
  const auto engine = open(1);
  Session session(*engine);
  EXPECT_EQ(error_of([&] { session.logits(); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { Session second(*engine); }), name_of(ErrorCode::kOverloaded));
  session.sync(prompt(0, 60));
  const std::vector<float> before(session.logits().begin(), session.logits().end());
  std::vector<TokenId> bad = prompt(0, 130);
  bad.back() = -1;  // in the last of several chunks
  EXPECT_EQ(error_of([&] { session.sync(bad); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { session.step(static_cast<TokenId>(engine->info().vocab_size)); }),
            name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(error_of([&] { session.sync(std::vector<TokenId>(4097, 5)); }),
            name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(session.length(), 60);
  EXPECT_TRUE(same_bits({session.logits().begin(), session.logits().end()}, before));
  EXPECT_EQ(collect(engine->submit(nano_request(prompt(0, 4), 1))).end(), "overloaded");
  session.sync({});
  EXPECT_EQ(session.length(), 0);
  Session moved = std::move(session);
  EXPECT_EQ(moved.sync(prompt(0, 5)), 5);
}

}  // namespace
}  // namespace dsv4
