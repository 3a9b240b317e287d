// The pool under what breaks pools: nesting, several callers, exceptions, no work, quick shutdown.
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sys/resource.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/error.h"

namespace dsv4 {
namespace {

TEST(ThreadPool, EveryIndexIsVisitedOnceInTheSameChunksForAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const std::int64_t count : {0, 1, 2, 7, 8, 9, 1000}) {
      for (const std::int64_t grain : {1, 7, 8, 9, 5000}) {
        std::vector<int> visits(static_cast<std::size_t>(count));
        std::atomic<int> wrong_chunks{0};
        std::atomic<int> wrong_threads{0};
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
          if (begin % grain != 0 || end != std::min(begin + grain, count)) {
            ++wrong_chunks;
          }
          if (thread_idx < 0 || thread_idx >= threads) ++wrong_threads;
          for (std::int64_t i = begin; i < end; ++i) ++visits[i];
        });
        EXPECT_EQ(visits, std::vector<int>(visits.size(), 1)) << count << " by " << grain;
        EXPECT_EQ(wrong_chunks, 0);
        EXPECT_EQ(wrong_threads, 0);
      }
    }
  }
}

TEST(ThreadPool, ChunksOfTheLargestCountDoNotOverflow) {
  ThreadPool pool(2);
  const std::int64_t count = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> last_end{0};
  pool.parallel_for(count, count / 2 + 1, [&](std::int64_t, std::int64_t end) {
    std::int64_t seen = last_end;
    while (seen < end && !last_end.compare_exchange_weak(seen, end)) {
    }
  });
  EXPECT_EQ(last_end, count);
}

TEST(ThreadPool, ZeroThreadsMeansTheCoresOfTheAffinityMask) {
  EXPECT_EQ(ThreadPool(0).num_threads(), usable_cores());
  EXPECT_GE(usable_cores(), 1);
}

TEST(ThreadPool, WhatChunksWroteIsSeenAfterwardsOverThousandsOfJobs) {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64);
  for (std::int64_t job = 0; job < 5000; ++job) {
    pool.parallel_for(64, 1, [&](std::int64_t begin, std::int64_t) { values[begin] += job; });
  }
  EXPECT_EQ(values, std::vector<std::int64_t>(64, 5000LL * 4999 / 2));
}

TEST(ThreadPool, ALoopInsideALoopDoesNotDeadlock) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  pool.parallel_for(10, 1, [&](std::int64_t, std::int64_t) {
    pool.parallel_for(10, 1, [&](std::int64_t, std::int64_t) {
      pool.parallel_for(3, 1, [&](std::int64_t, std::int64_t) { ++sum; });
    });
  });
  EXPECT_EQ(sum, 300);
}

TEST(ThreadPool, ScratchOfAThreadIndexIsUsedByOneThreadAtATime) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> users(3);
  std::atomic<int> shared{0};
  for (int job = 0; job < 200; ++job) {
    pool.parallel_for(50, 1, [&](std::int64_t, std::int64_t, int thread_idx) {
      if (users[thread_idx]++ != 0) ++shared;
      --users[thread_idx];
    });
  }
  EXPECT_EQ(shared, 0);
}

TEST(ThreadPool, SeveralCallersAtOnceEachGetTheirWholeLoop) {
  ThreadPool pool(2);
  std::vector<std::int64_t> sums(4);
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&pool, &sums, c] {
      for (int job = 0; job < 300; ++job) {
        std::atomic<std::int64_t> sum{0};
        pool.parallel_for(100, 3, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) sum += i;
        });
        sums[c] += sum;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, 300LL * 4950));
}

TEST(ThreadPool, TheLowestChunksExceptionReachesTheCallerAndThePoolGoesOn) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int job = 0; job < 100; ++job) {
      std::string message;
      try {
        pool.parallel_for(64, 1, [](std::int64_t begin, std::int64_t) {
          if (begin == 7 || begin == 8 || begin == 40) {
            throw std::runtime_error(std::to_string(begin));
          }
        });
      } catch (const std::runtime_error& error) {
        message = error.what();
      }
      EXPECT_EQ(message, "7");
      std::atomic<int> visits{0};
      pool.parallel_for(64, 1, [&](std::int64_t, std::int64_t) { ++visits; });
      EXPECT_EQ(visits, 64);
    }
  }
}

TEST(ThreadPool, PoolsThatComeAndGoWithoutOrWithOneJob) {
  for (int i = 0; i < 50; ++i) {
    const ThreadPool idle(3);
    ThreadPool pool(3);
    std::atomic<int> visits{0};
    pool.parallel_for(3, 1, [&](std::int64_t, std::int64_t) { ++visits; });
    EXPECT_EQ(visits, 3);
  }
}

// A sanitizer takes address space of its own while it runs, so there the limit could hit anything.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ThreadPoolDeathTest, MoreThreadsThanTheSystemGivesAreAnErrorNotAnEnd) {
  const auto open_in_little_memory = [] {
    const rlimit limit{std::size_t{256} << 20, std::size_t{256} << 20};
    setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(4000);
    } catch (const Error& error) {
      std::exit(error.code() == ErrorCode::kOutOfMemory ? 3 : 1);
    }
    std::exit(0);
  };
  EXPECT_EXIT(open_in_little_memory(), testing::ExitedWithCode(3), "");
}
#endif

}  // namespace
}  // namespace dsv4
