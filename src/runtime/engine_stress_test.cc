// A hundred requests from many threads, cancelled and dropped at random, with sessions beside them
// and an engine that closes under them. Run it with thread and address sanitizers, too.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>

#include "runtime/engine_fixtures.h"

namespace dsv4 {
namespace {

constexpr unsigned kThreads = 4;
constexpr int kRequestsOfAThread = 25;

class EngineStressTest : public testing::Test {
 protected:
  std::vector<TokenId> text(std::size_t begin, std::size_t count) const {
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    return {first, first + static_cast<std::ptrdiff_t>(count)};
  }
  // Prompts of one token to two and a half chunks; with penalties and log-probabilities at times.
  Request random_request(std::mt19937& random) const {
    Request request = nano_request(text(random() % 300, 1 + random() % 40),
                                   static_cast<std::int64_t>(random() % 7), 1.0f, random());
    if (random() % 3 == 0) request.logprobs = 2;
    if (random() % 3 == 0) request.sampling.presence_penalty = 0.5f;
    return request;
  }
  // A session that grows, goes back and grows again; its logits at the end.
  std::vector<float> use_session(Session& session, unsigned seed) const {
    std::mt19937 random(seed);
    for (int i = 0; i < 4; ++i) {
      session.sync(text(random() % 100, 1 + random() % 30));
      for (int step = 0; step < 5; ++step) session.step(tokens[random() % 100]);
    }
    return {session.logits().begin(), session.logits().end()};
  }

  std::vector<TokenId> tokens = held_out_tokens(load_tokenizer(nano_dir()), 400);
  EngineOptions options = [] {
    EngineOptions small = nano_engine_options();
    small.num_threads = 2;
    small.max_sessions = 5;
    small.max_step_tokens = 16;
    return small;
  }();
  std::unique_ptr<Engine> engine = Engine::open(options);
};

// What happens to a request of the run.
enum class Fate { kCancelledAtOnce, kCancelledRunning, kDroppedAtOnce, kDroppedRunning, kKept };

TEST_F(EngineStressTest, AHundredRequestsWithRandomCancellationsLeaveTheOthersBits) {
  struct Kept {
    Request request;
    Answer answer;
  };
  const EngineLoad at_start = engine->load();
  std::array<std::vector<Kept>, kThreads> kept;
  // Opened before the requests take all there are.
  std::optional<std::array<Session, 2>> sessions{{Session(*engine), Session(*engine)}};
  std::array<std::vector<float>, 2> session_logits;
  std::array<std::atomic<int>, 5> num_of_fate{};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<std::pair<Request, RequestHandle>> running;
      for (int i = 0; i < kRequestsOfAThread; ++i) {
        const Request request = random_request(random);
        RequestHandle handle = engine->submit(request);
        const auto fate = static_cast<Fate>(std::min<unsigned>(random() % 8, 4));
        ++num_of_fate[static_cast<std::size_t>(fate)];
        if (fate == Fate::kKept) {
          running.emplace_back(request, std::move(handle));
          continue;
        }
        if (fate == Fate::kCancelledRunning || fate == Fate::kDroppedRunning) handle.next();
        if (fate == Fate::kCancelledAtOnce || fate == Fate::kCancelledRunning) {
          handle.cancel();
          const Answer answer = collect(std::move(handle));
          // Nothing follows the last event, which next() may have seen.
          EXPECT_FALSE(answer.error) << answer.end();
        }
      }
      for (auto& entry : running) {
        kept[t].push_back({entry.first, collect(std::move(entry.second))});
      }
    });
  }
  for (unsigned t = 0; t < session_logits.size(); ++t) {
    threads.emplace_back([&, t] { session_logits[t] = use_session((*sessions)[t], t); });
  }
  for (std::thread& thread : threads) thread.join();

  sessions.reset();
  const EngineLoad at_end = wait_for_load(*engine, [&](const EngineLoad& load) {
    return load.running_requests + load.waiting_requests == 0 &&
           load.free_sessions == at_start.free_sessions;
  });
  EXPECT_EQ(at_end.free_kv_pages, at_start.free_kv_pages);
  for (const std::atomic<int>& count : num_of_fate) EXPECT_GT(count, 3);
  for (const std::vector<Kept>& of_thread : kept) {
    for (const Kept& one : of_thread) {
      ASSERT_TRUE(one.answer.finish) << one.answer.end();
      expect_same(one.answer, collect(engine->submit(one.request)));  // alone now
    }
  }
  for (unsigned t = 0; t < session_logits.size(); ++t) {
    Session alone(*engine);
    EXPECT_TRUE(same_bits(session_logits[t], use_session(alone, t))) << t;
  }
}

TEST_F(EngineStressTest, AnEngineThatClosesEndsAllThatRuns) {
  std::vector<std::thread> threads;
  std::atomic<int> num_ended{0}, num_drawn{0};
  Session session(*engine);
  for (unsigned t = 0; t < kThreads; ++t) {
    std::vector<RequestHandle> handles;
    std::mt19937 random(t);
    for (int i = 0; i < kRequestsOfAThread; ++i) {
      Request request = random_request(random);
      request.max_tokens = 500;
      request.ignore_eos = true;
      handles.push_back(engine->submit(request));
    }
    threads.emplace_back([&, of_thread = std::move(handles)]() mutable {
      for (RequestHandle& handle : of_thread) {
        Answer answer;
        while (std::optional<Event> event = handle.next()) {
          answer.add(std::move(*event));
          ++num_drawn;
        }
        EXPECT_TRUE(answer.finish) << answer.end();
        ++num_ended;
      }
    });
  }
  threads.emplace_back([&] {
    EXPECT_EQ(error_of([&] {
                for (;;) session.sync(text(0, 3)), session.step(5);
              }),
              name_of(ErrorCode::kBadRequest));
  });
  while (num_drawn < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  engine.reset();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_ended, static_cast<int>(kThreads) * kRequestsOfAThread);
}

}  // namespace
}  // namespace dsv4
