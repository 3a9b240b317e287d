#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

namespace dsv4 {
namespace {

constexpr std::uint32_t kOpen = 1;
constexpr std::uint32_t kOneWorker = 2;
constexpr std::uint32_t kWorkersMask = 0xFFFE;
constexpr std::uint32_t kOneGeneration = 0x10000;
constexpr int kMaxThreads = 0x7FFF;  // what the state has room for

std::uint32_t generation_of(std::uint32_t state) { return state / kOneGeneration; }

// Ops follow each other within microseconds, so a thread looks again for some 20 to 50 of them
// before it sleeps; a futex costs about as much to wake from.
constexpr int kSpins = 1000;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

int usable_cores() {
#if defined(__linux__)
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(CPU_COUNT(&cores), 1);
#endif
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

ThreadPool::ThreadPool(int num_threads) {
  DSV4_CHECK(num_threads >= 0, "{} threads", num_threads);
  const int threads = std::min(num_threads == 0 ? usable_cores() : num_threads, kMaxThreads);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { serve(i); });
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorCode::kOutOfMemory, "the system gives {} of {} threads ({}); ask for fewer",
         workers_.size() + 1, threads, error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_.store(true, std::memory_order_relaxed);
  state_.fetch_add(kOneGeneration, std::memory_order_release);
  state_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(std::int64_t count, std::int64_t grain, Invoke invoke, void* context) {
  DSV4_CHECK(grain >= 1, "a chunk of {}", grain);
  if (count <= 0) return;
  const Job job{invoke, context, count, grain, ceil_div(count, grain)};
  const bool alone =
      job.num_chunks == 1 || workers_.empty() || busy_.exchange(true, std::memory_order_acquire);
  if (alone) {
    for (std::int64_t i = 0; i < job.num_chunks; ++i) {
      invoke(context, i * grain, i == job.num_chunks - 1 ? count : (i + 1) * grain, 0);
    }
    return;
  }
  publish(job);
  work(0);
  close();
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  busy_.store(false, std::memory_order_release);
  if (failure != nullptr) std::rethrow_exception(failure);
}

void ThreadPool::publish(const Job& job) {
  job_ = job;
  next_chunk_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  const std::uint32_t next_generation = generation_of(state_.load()) + 1;
  state_.store(next_generation * kOneGeneration | kOpen, std::memory_order_release);
  state_.notify_all();
}

// Lets no further worker in and waits for those inside.
void ThreadPool::close() {
  std::uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  for (int spins = 0; (state & kWorkersMask) != 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      state_.wait(state, std::memory_order_acquire);
    }
    state = state_.load(std::memory_order_acquire);
  }
}

// Chunks are taken in ascending order, so every chunk below one that throws has been taken, and
// the lowest that throws is found however the threads race.
void ThreadPool::work(int thread_idx) {
  while (!failed_.load(std::memory_order_relaxed)) {
    const std::int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= job_.num_chunks) return;
    const std::int64_t begin = chunk * job_.grain;
    const std::int64_t end = chunk == job_.num_chunks - 1 ? job_.count : begin + job_.grain;
    try {
      job_.invoke(job_.context, begin, end, thread_idx);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      if (failure_ == nullptr || chunk < failed_chunk_) {
        failure_ = std::current_exception();
        failed_chunk_ = chunk;
      }
      failed_.store(true, std::memory_order_relaxed);
    }
  }
}

std::uint32_t ThreadPool::wait_for_change(std::uint32_t generation) const {
  for (int spins = 0;; ++spins) {
    const std::uint32_t state = state_.load(std::memory_order_acquire);
    if (generation_of(state) != generation) return state;
    if (spins < kSpins) {
      pause();
    } else {
      state_.wait(state, std::memory_order_acquire);
    }
  }
}

void ThreadPool::serve(int thread_idx) {
  std::uint32_t generation = 0;  // a job that was published before this thread started counts
  for (;;) {
    std::uint32_t state = wait_for_change(generation);
    generation = generation_of(state);
    if (stopping_.load(std::memory_order_relaxed)) return;
    bool inside = false;
    while (!inside && (state & kOpen) != 0 && generation_of(state) == generation) {
      inside = state_.compare_exchange_weak(state, state + kOneWorker, std::memory_order_acq_rel);
    }
    if (!inside) continue;
    work(thread_idx);
    state_.fetch_sub(kOneWorker, std::memory_order_release);
    state_.notify_all();
  }
}

}  // namespace dsv4
