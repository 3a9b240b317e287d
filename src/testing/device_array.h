// device_array.h: host vectors on any backend and back, between guard bytes.
//
// New memory and the guards hold 0xFF bytes: NaN as FP32, BF16, E4M3 and E8M0, -1 as an integer. So
// padding that is read as data shows as NaN, and writes out of bounds are found.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "ops/backend.h"

namespace dsv4::testing {

inline constexpr std::uint8_t kPoisonByte = 0xFF;

template <class T>
class DeviceArray {
 public:
  // `count` elements of poison.
  DeviceArray(Backend& backend, std::int64_t count)
      : backend_(&backend),
        count_(count),
        buffer_(backend.allocate(kGuardBytes + size_bytes() + kGuardBytes)) {
    backend.fill(buffer_.data(), kPoisonByte, buffer_.size_bytes());
    backend.synchronize();
  }
  DeviceArray(Backend& backend, const std::vector<T>& values)
      : DeviceArray(backend, static_cast<std::int64_t>(values.size())) {
    write(values);
  }
  DeviceArray(DeviceArray&&) = default;
  DeviceArray& operator=(DeviceArray&&) = default;
  ~DeviceArray() {
    if (buffer_.data() != nullptr) expect_guards_intact();
  }

  T* data() const { return reinterpret_cast<T*>(buffer_.data() + kGuardBytes); }
  std::int64_t size() const { return count_; }

  // Replaces all elements.
  void write(const std::vector<T>& values) {
    DSV4_CHECK(static_cast<std::int64_t>(values.size()) == count_);
    backend_->copy_to_device(data(), values.data(), size_bytes());
    backend_->synchronize();
  }
  // Makes all elements poison again.
  void poison() {
    backend_->fill(data(), kPoisonByte, size_bytes());
    backend_->synchronize();
  }
  // The elements, after all work has finished. Fails the test if a guard was written to.
  std::vector<T> read() const {
    std::vector<T> values(static_cast<std::size_t>(count_));
    backend_->synchronize();
    backend_->copy_to_host(values.data(), data(), size_bytes());
    backend_->synchronize();
    expect_guards_intact();
    return values;
  }

 private:
  static constexpr std::int64_t kGuardBytes = 256;  // keeps the alignment that backends promise

  std::int64_t size_bytes() const { return count_ * static_cast<std::int64_t>(sizeof(T)); }
  void expect_guards_intact() const {
    expect_poison(buffer_.data(), "before");
    expect_poison(buffer_.data() + kGuardBytes + size_bytes(), "behind");
  }
  void expect_poison(const std::byte* guard, const char* where) const {
    std::vector<std::uint8_t> bytes(kGuardBytes);
    backend_->synchronize();
    backend_->copy_to_host(bytes.data(), guard, kGuardBytes);
    backend_->synchronize();
    for (std::int64_t i = 0; i < kGuardBytes; ++i) {
      if (bytes[static_cast<std::size_t>(i)] == kPoisonByte) continue;
      ADD_FAILURE() << "guard byte " << i << " " << where << " an array of " << count_ << " x "
                    << sizeof(T) << " bytes was written to";
      return;
    }
  }

  Backend* backend_;
  std::int64_t count_;
  DeviceBuffer buffer_;
};

}  // namespace dsv4::testing
