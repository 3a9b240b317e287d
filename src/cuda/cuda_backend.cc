#include "cuda/cuda_backend.h"

#include "cuda/devices.h"
#include "cuda/errors.h"

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

CudaBackend::CudaBackend(int device_idx)
    : device_idx_(device_idx), name_(fmt::format("cuda:{}", device_idx)) {
  require_usable(device_idx);
  const CurrentDevice current(device_idx_);
  check_cuda(cudaStreamCreateWithFlags(&default_stream_, cudaStreamNonBlocking),
             "create a stream on " + name_);
}

CudaBackend::~CudaBackend() { cudaStreamDestroy(default_stream_); }

CUstream_st* CudaBackend::stream_of(DeviceStream stream) const {
  return stream.handle == nullptr ? default_stream_ : static_cast<cudaStream_t>(stream.handle);
}

std::byte* CudaBackend::allocate_bytes(std::int64_t bytes) {
  DSV4_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  const CurrentDevice current(device_idx_);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "ask for free memory on " + name_);
    fail(ErrorCode::kOutOfMemory, "cannot allocate {} bytes on {}: {} of its {} are free", bytes,
         name_, free, total);
  }
  check_cuda(status, "allocate memory on " + name_);
  allocated_bytes_ += bytes;
  return static_cast<std::byte*>(data);
}

void CudaBackend::free_bytes(std::byte* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  // Pointers are unique among devices. An error here is one of earlier work; synchronize() has it.
  cudaFree(data);
  allocated_bytes_ -= bytes;
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
  const cudaError_t status = cudaStreamSynchronize(stream_of(stream));
  if (status == cudaSuccess) return;
  fail(cuda::error_code_of(status),
       "work on {} failed: {} ({}); DSV4_CUDA_SYNC=1 in the environment names the kernel", name_,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace dsv4
