// scratch.h: carving an op's workspace, with the same code for its size and its pointers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace dsv4::cpu {

// Over null it only counts; a negative count, of params that are yet to be refused, is none. Pieces
// start at multiples of 256 bytes of the workspace, which backends
// allocate at such a multiple.
class Scratch {
 public:
  explicit Scratch(std::byte* workspace) : workspace_(workspace) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* const piece = workspace_ == nullptr ? nullptr : workspace_ + bytes_;
    bytes_ +=
        round_up(std::max<std::int64_t>(count, 0) * static_cast<std::int64_t>(sizeof(T)), 256);
    return reinterpret_cast<T*>(piece);
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* workspace_;
  std::int64_t bytes_ = 0;
};

}  // namespace dsv4::cpu
