// shape.h: the extents of a tensor, at most four of them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"

namespace dsv4 {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> dims)
      : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  constexpr explicit Shape(std::span<const std::int64_t> dims)
      : rank_(static_cast<int>(dims.size())) {
    DSV4_CHECK(dims.size() <= kMaxRank, "rank {}", dims.size());
    for (int i = 0; i < rank_; ++i) dims_[i] = dims[i];
  }

  constexpr int rank() const { return rank_; }
  constexpr std::int64_t operator[](int i) const { return dims_[i]; }
  constexpr std::span<const std::int64_t> dims() const {
    return {dims_.data(), static_cast<std::size_t>(rank_)};
  }
  // Product of the extents; 1 for a scalar. The caller has checked that it fits.
  constexpr std::int64_t num_elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  constexpr bool operator==(const Shape&) const = default;
  // "[256, 128]"; "[]" for a scalar.
  std::string to_string() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string(dims_[i]);
    return text + "]";
  }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace dsv4
