// buffer.h: owning, aligned host memory. Views (matrix_view.h, kv_rows.h) point into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace dsv4 {

// Bytes on the host, 64-byte aligned, movable. New bytes are uninitialised unless filled.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 64;

  Buffer() = default;
  explicit Buffer(std::size_t bytes)
      : data_(bytes == 0
                  ? nullptr
                  : static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment}))),
        bytes_(bytes) {}
  // All bytes equal to `fill`.
  Buffer(std::size_t bytes, std::uint8_t fill) : Buffer(bytes) {
    if (bytes > 0) std::memset(data_.get(), fill, bytes);
  }
  Buffer(Buffer&& other) noexcept : data_(std::move(other.data_)), bytes_(other.bytes_) {
    other.bytes_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    data_ = std::move(other.data_);
    bytes_ = other.bytes_;
    other.bytes_ = 0;
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return bytes_; }

  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data_.get());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_.get());
  }
  template <class T>
  std::span<T> span() {
    return {as<T>(), bytes_ / sizeof(T)};
  }
  template <class T>
  std::span<const T> span() const {
    return {as<T>(), bytes_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace dsv4
