#include "cuda/memory_pool.h"

#include <limits>
#include <utility>

#include "base/check.h"
#include "cuda/errors.h"

namespace dsv4::cuda {

MemoryPool::MemoryPool(int device_idx, std::string name, bool poison)
    : device_idx_(device_idx), name_(std::move(name)), poison_(poison) {
  cudaMemPoolProps props = {};
  props.allocType = cudaMemAllocationTypePinned;
  props.location.type = cudaMemLocationTypeDevice;
  props.location.id = device_idx;
  check_cuda(cudaMemPoolCreate(&pool_, &props), "create a memory pool on " + name_);
  // By default a pool gives back what is unused whenever anybody waits for anything.
  std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
  const cudaError_t status =
      cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all);
  if (status == cudaSuccess) return;
  cudaMemPoolDestroy(pool_);
  check_cuda(status, "set up a memory pool on " + name_);
}

MemoryPool::~MemoryPool() {
  // An error here is one of earlier work, and synchronize() has it.
  if (!freed_.empty()) {
    int current = device_idx_;
    cudaGetDevice(&current);
    cudaSetDevice(device_idx_);
    cudaDeviceSynchronize();
    cudaSetDevice(current);
  }
  for (std::byte* const data : freed_) cudaFreeAsync(data, stream_.cuda_stream());
  cudaMemPoolDestroy(pool_);  // once the stream is there
}

std::byte* MemoryPool::allocate(std::int64_t bytes) {
  DSV4_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  const CurrentDevice current(device_idx_);
  collect_freed();
  const auto size = static_cast<std::size_t>(bytes);
  void* data = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&data, size, pool_, stream_.cuda_stream());
  if (status == cudaErrorMemoryAllocation) {
    // What is unused may lie in pieces that are too small; given back, it can be had as one.
    cudaGetLastError();
    give_back_unused();
    status = cudaMallocFromPoolAsync(&data, size, pool_, stream_.cuda_stream());
  }
  if (status == cudaErrorMemoryAllocation) refuse(bytes);
  check_cuda(status, "allocate memory on " + name_);
  if (poison_)
    check_cuda(cudaMemsetAsync(data, 0xFF, size, stream_.cuda_stream()), "fill memory on " + name_);
  // Until the stream is there, other streams may not use the memory.
  check_work(cudaStreamSynchronize(stream_.cuda_stream()), name_);
  allocated_bytes_ += bytes;
  return static_cast<std::byte*>(data);
}

void MemoryPool::free(std::byte* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  allocated_bytes_ -= bytes;
  const std::lock_guard lock(freed_mutex_);
  freed_.push_back(data);
}

std::int64_t MemoryPool::reserved_bytes() const {
  std::uint64_t bytes = 0;
  check_cuda(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes),
             "ask for the size of the memory pool on " + name_);
  return static_cast<std::int64_t>(bytes);
}

void MemoryPool::trim() {
  const CurrentDevice current(device_idx_);
  collect_freed();
  give_back_unused();
}

void MemoryPool::collect_freed() {
  // A second thread waits here, so that it finds what the first one collects.
  const std::lock_guard collecting(collecting_);
  const auto num_freed = [this] {
    const std::lock_guard lock(freed_mutex_);
    return static_cast<std::ptrdiff_t>(freed_.size());
  };
  // What is freed from here on is not covered by the wait.
  const std::ptrdiff_t count = num_freed();
  if (count == 0) return;
  check_work(cudaDeviceSynchronize(), name_);
  std::vector<std::byte*> untouched;
  {
    const std::lock_guard lock(freed_mutex_);
    untouched.assign(freed_.begin(), freed_.begin() + count);
    freed_.erase(freed_.begin(), freed_.begin() + count);
  }
  for (std::byte* const data : untouched) {
    check_cuda(cudaFreeAsync(data, stream_.cuda_stream()), "free memory on " + name_);
  }
}

void MemoryPool::give_back_unused() {
  check_work(cudaStreamSynchronize(stream_.cuda_stream()), name_);
  check_cuda(cudaMemPoolTrimTo(pool_, 0), "give back memory of " + name_);
}

void MemoryPool::refuse(std::int64_t bytes) const {
  cudaGetLastError();
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "ask for free memory on " + name_);
  fail(ErrorCode::kOutOfMemory,
       "cannot allocate {} bytes on {}: buffers have {}, their pool holds {}, and of the device's "
       "{} there are {} free",
       bytes, name_, allocated_bytes(), reserved_bytes(), total, free);
}

}  // namespace dsv4::cuda
