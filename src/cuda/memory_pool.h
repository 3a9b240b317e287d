// memory_pool.h: the memory of one backend on one CUDA device, out of a pool of CUDA's of its own:
// freed memory stays in the pool, and is handed out again when nothing can touch it any more.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/streams.h"

namespace dsv4::cuda {

// Any thread may call anything. Freed memory goes back to the pool when a later call that needs it
// has waited for all work of the device, whichever stream that is on and whoever queued it.
class MemoryPool {
 public:
  // Of the current device, `name` in messages. `poison`: new memory is filled with bytes 0xFF, as
  // HostBackend's. Throws Error.
  MemoryPool(int device_idx, std::string name, bool poison);
  // All memory was freed before.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // 256-byte aligned, null for 0 bytes; ready for every stream. Throws Error: kOutOfMemory, and
  // what earlier work on the device failed with.
  std::byte* allocate(std::int64_t bytes);
  // Does not wait.
  void free(std::byte* data, std::int64_t bytes) noexcept;
  // Of live memory, as it was asked for.
  std::int64_t allocated_bytes() const { return allocated_bytes_; }
  // Of the device, used or not.
  std::int64_t reserved_bytes() const;
  // Gives what is not used back to the device.
  void trim();

 private:
  // Waits for the device if there is something to collect.
  void collect_freed();
  void give_back_unused();
  [[noreturn]] void refuse(std::int64_t bytes) const;

  int device_idx_;
  std::string name_;
  bool poison_;
  CudaStream stream_;  // the pool's alone
  cudaMemPool_t pool_ = nullptr;
  std::atomic<std::int64_t> allocated_bytes_ = 0;
  std::mutex collecting_;  // held while one thread waits for the device
  std::mutex freed_mutex_;
  std::vector<std::byte*> freed_;  // work that is queued may still touch it
};

}  // namespace dsv4::cuda
