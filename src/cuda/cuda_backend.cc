#include "cuda/cuda_backend.h"

#include "cuda/devices.h"
#include "cuda/errors.h"
#include "cuda/memory_pool.h"
#include "cuda/streams.h"

namespace dsv4 {
namespace {

using cuda::check_cuda;
using cuda::CurrentDevice;

// Throws Error unless this build can use the device.
void require_usable(int device_idx) {
  const CudaDevices found = find_cuda_devices();
  require(found.problem.empty(), ErrorCode::kUnsupportedDevice, "cuda:{} cannot be used: {}",
          device_idx, found.problem);
  for (const CudaDevice& device : found.devices) {
    if (device.device_idx != device_idx) continue;
    const std::string problem = device.problem();
    require(problem.empty(), ErrorCode::kUnsupportedDevice, "cuda:{} cannot be used: {}",
            device_idx, problem);
    return;
  }
  fail(ErrorCode::kUnsupportedDevice, "there is no cuda:{}; the devices are cuda:0 to cuda:{}",
       device_idx, found.devices.back().device_idx);
}

}  // namespace

CudaBackend::CudaBackend(int device_idx, bool poison_new_memory)
    : device_idx_(device_idx), name_(fmt::format("cuda:{}", device_idx)) {
  require_usable(device_idx);
  const CurrentDevice current(device_idx_);
  memory_ = std::make_unique<cuda::MemoryPool>(device_idx, name_, poison_new_memory);
  default_stream_ = create_stream();
}

CudaBackend::~CudaBackend() = default;

std::int64_t CudaBackend::allocated_bytes() const { return memory_->allocated_bytes(); }
std::int64_t CudaBackend::reserved_bytes() const { return memory_->reserved_bytes(); }
void CudaBackend::trim() { memory_->trim(); }

std::byte* CudaBackend::allocate_bytes(std::int64_t bytes) { return memory_->allocate(bytes); }
void CudaBackend::free_bytes(std::byte* data, std::int64_t bytes) noexcept {
  memory_->free(data, bytes);
}

std::unique_ptr<OwnedStream> CudaBackend::create_stream() {
  const CurrentDevice current(device_idx_);
  return std::make_unique<cuda::CudaStream>();
}

std::unique_ptr<DeviceEvent> CudaBackend::create_event() {
  const CurrentDevice current(device_idx_);
  return std::make_unique<cuda::CudaEvent>(stream_of({}));
}

CUstream_st* CudaBackend::stream_of(DeviceStream stream) const {
  return static_cast<cudaStream_t>(
      (stream.handle == nullptr ? default_stream_->get() : stream).handle);
}

void CudaBackend::copy_to_device(void* to, const void* from, std::int64_t bytes,
                                 DeviceStream stream) {
  if (bytes == 0) return;
  const CurrentDevice current(device_idx_);
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                             stream_of(stream)),
             "copy to " + name_);
}

void CudaBackend::copy_to_host(void* to, const void* from, std::int64_t bytes,
                               DeviceStream stream) {
  if (bytes == 0) return;
  const CurrentDevice current(device_idx_);
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost,
                             stream_of(stream)),
             "copy from " + name_);
}

void CudaBackend::copy_on_device(void* to, const void* from, std::int64_t bytes,
                                 DeviceStream stream) {
  if (bytes == 0) return;
  const CurrentDevice current(device_idx_);
  check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                             stream_of(stream)),
             "copy on " + name_);
}

void CudaBackend::fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream) {
  if (bytes == 0) return;
  const CurrentDevice current(device_idx_);
  check_cuda(cudaMemsetAsync(to, byte, static_cast<std::size_t>(bytes), stream_of(stream)),
             "fill memory on " + name_);
}

void CudaBackend::synchronize(DeviceStream stream) {
  const CurrentDevice current(device_idx_);
  cuda::check_work(cudaStreamSynchronize(stream_of(stream)), name_);
}

}  // namespace dsv4
