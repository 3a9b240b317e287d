#include "kv/allocator.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/error.h"

namespace dsv4 {

PageAllocator::PageAllocator(std::int32_t capacity)
    : capacity_(capacity), held_(static_cast<std::size_t>(capacity)) {
  DSV4_CHECK(capacity >= 0);
  free_.reserve(static_cast<std::size_t>(capacity));
  for (std::int32_t page = 0; page < capacity; ++page) free_.push_back(page);  // ascending: a heap
}

std::int32_t PageAllocator::allocate(const char* what) {
  require(!free_.empty(), ErrorCode::kOverloaded,
          "all {} {} are in use; finish a session or open the model for more {}", capacity_, what,
          what);
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const std::int32_t page = free_.back();
  free_.pop_back();
  held_[static_cast<std::size_t>(page)] = true;
  return page;
}

void PageAllocator::release(std::int32_t page) {
  DSV4_CHECK(page >= 0 && page < capacity_ && held_[static_cast<std::size_t>(page)],
             "page {} is not held", page);
  held_[static_cast<std::size_t>(page)] = false;
  free_.push_back(page);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

}  // namespace dsv4
