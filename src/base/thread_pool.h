// thread_pool.h: a fixed set of threads that share the chunks of one loop at a time.
//
// What a loop computes is its caller's business; that the pool never changes it is this file's: the
// chunks are the same for every number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace dsv4 {

// Cores that this process may use: its affinity mask, or all of them where there is none.
int usable_cores();

// Safe to use from several threads: a call that finds the pool busy, or that comes from inside a
// loop of the pool, runs on its own thread.
class ThreadPool {
 public:
  // num_threads counts the caller; 0: usable_cores(). Throws Error kOutOfMemory when the system
  // does not give so many.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(begin, end), or body(begin, end, thread_idx), for the chunks [i * grain,
  // min((i + 1) * grain, count)) in any order, and returns when all are done. thread_idx <
  // num_threads() is the index of the thread within this call: it picks scratch memory. Of the
  // exceptions that chunks throw, the lowest chunk's is thrown on to the caller; chunks above it
  // may be left out.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
    using Target = std::remove_reference_t<Body>;
    run(
        count, grain,
        [](void* context, std::int64_t begin, std::int64_t end, int thread_idx) {
          Target& target = *static_cast<Target*>(context);
          if constexpr (std::is_invocable_v<Target&, std::int64_t, std::int64_t, int>) {
            target(begin, end, thread_idx);
          } else {
            target(begin, end);
          }
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Invoke = void (*)(void* context, std::int64_t begin, std::int64_t end, int thread_idx);

  struct Job {
    Invoke invoke = nullptr;
    void* context = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
    std::int64_t num_chunks = 0;
  };

  void run(std::int64_t count, std::int64_t grain, Invoke invoke, void* context);
  void publish(const Job& job);
  void close();
  void stop();
  void work(int thread_idx);
  void serve(int thread_idx);
  std::uint32_t wait_for_change(std::uint32_t generation) const;

  // Generation (upper bits), number of workers inside the job, whether the job is open to workers.
  // A worker enters by a compare-exchange on all of it, so it cannot enter a job that was closed.
  std::atomic<std::uint32_t> state_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> busy_{false};
  Job job_;  // written while the pool is closed and empty, read by those inside
  std::atomic<std::int64_t> next_chunk_{0};
  std::atomic<bool> failed_{false};
  std::mutex failure_mutex_;
  std::int64_t failed_chunk_ = 0;
  std::exception_ptr failure_;
  std::vector<std::thread> workers_;
};

}  // namespace dsv4
