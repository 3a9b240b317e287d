// allocator.h: hands out page and state numbers of a pool of fixed size. Knows nothing of bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace dsv4 {

// Numbers 0 .. capacity - 1, each held by at most one owner. Lowest free number first, so that a
// run repeats exactly.
class PageAllocator {
 public:
  explicit PageAllocator(std::int32_t capacity);

  std::int32_t capacity() const { return capacity_; }
  std::int32_t num_free() const { return static_cast<std::int32_t>(free_.size()); }

  // Throws Error kOverloaded when none is free; `what` names the pool in the message.
  std::int32_t allocate(const char* what);
  void release(std::int32_t page);

 private:
  std::int32_t capacity_;
  std::vector<std::int32_t> free_;  // a heap, lowest on top
  std::vector<bool> held_;
};

}  // namespace dsv4
