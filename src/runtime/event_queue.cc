#include "runtime/event_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace dsv4 {

bool is_last(const Event& event) { return !std::holds_alternative<TokenEvent>(event); }

void EventQueue::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    DSV4_CHECK(!closed_, "an event after the last");
    closed_ = is_last(event);
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

std::optional<Event> EventQueue::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_news(); });
  if (events_.empty()) return std::nullopt;
  std::optional<Event> event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool EventQueue::wait_for(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  // A day at most: the extremes would overflow the clock.
  timeout = std::clamp<std::chrono::milliseconds>(timeout, std::chrono::milliseconds(0),
                                                  std::chrono::hours(24));
  return changed_.wait_for(lock, timeout, [this] { return has_news(); });
}

}  // namespace dsv4
