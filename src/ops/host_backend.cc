#include "ops/host_backend.h"

#include <cstring>
#include <new>

namespace dsv4 {
namespace {
constexpr std::align_val_t kAlignment{256};
}  // namespace

double HostEvent::seconds_since(const DeviceEvent& start) const {
  const auto& from = static_cast<const HostEvent&>(start);
  DSV4_CHECK(recorded_ && from.recorded_, "seconds between events of which one was not recorded");
  return std::chrono::duration<double>(*recorded_ - *from.recorded_).count();
}

std::byte* HostBackend::allocate_bytes(std::int64_t bytes) {
  DSV4_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  void* data = ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  require(data != nullptr, ErrorCode::kOutOfMemory, "cannot allocate {} bytes of host memory",
          bytes);
  allocated_bytes_ += bytes;
  if (poison_new_memory_) std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
  return static_cast<std::byte*>(data);
}

void HostBackend::free_bytes(std::byte* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  ::operator delete(data, kAlignment);
  allocated_bytes_ -= bytes;
}

void HostBackend::copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void HostBackend::copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void HostBackend::copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void HostBackend::fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memset(to, byte, static_cast<std::size_t>(bytes));
}

}  // namespace dsv4
