// event_queue.h: the events and the progress of one request on their way from the engine's thread
// to the request's handle, and its cancellation on the way back.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "dsv4/request.h"

namespace dsv4 {

// Whether nothing follows the event: it is no token.
bool is_last(const Event& event);

// Safe to use from several threads.
class EventQueue {
 public:
  // Nothing may follow the last event.
  void push(Event event);

  // Waits. Empty after the last event.
  std::optional<Event> next();
  // Waits up to `timeout`; whether next() would return at once.
  bool wait_for(std::chrono::milliseconds timeout);

  void cancel() { cancelled_ = true; }
  bool is_cancelled() const { return cancelled_; }

  void set_prompt_progress(std::int64_t computed, std::int64_t total) {
    prompt_computed_ = computed;
    prompt_total_ = total;
  }
  PromptProgress prompt_progress() const { return {prompt_computed_, prompt_total_}; }

 private:
  bool has_news() const { return closed_ || !events_.empty(); }

  std::atomic<bool> cancelled_{false};
  std::atomic<std::int64_t> prompt_computed_{0}, prompt_total_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool closed_ = false;  // the last event was pushed
};

}  // namespace dsv4
