#include "cuda/devices.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace dsv4 {
namespace {

// Kernels are built for sm_90a, whose instructions no other compute capability has.
constexpr int kComputeMajor = 9, kComputeMinor = 0;

std::string why_no_devices(cudaError_t status, int driver_version) {
  int runtime_version = 0;
  cudaRuntimeGetVersion(&runtime_version);
  if (driver_version == 0) {
    return "there is no NVIDIA driver (libcuda.so.1); install one that runs CUDA " +
           cuda_version_text(runtime_version);
  }
  switch (status) {
    case cudaErrorInsufficientDriver:
      return fmt::format(
          "the NVIDIA driver runs CUDA {}, this build needs {}; install a newer driver",
          cuda_version_text(driver_version), cuda_version_text(runtime_version));
    case cudaErrorNoDevice:
    case cudaSuccess:
      return "the NVIDIA driver shows no device; does CUDA_VISIBLE_DEVICES hide it?";
    default:
      return fmt::format("the NVIDIA driver does not start: {} ({})", cudaGetErrorString(status),
                         cudaGetErrorName(status));
  }
}

}  // namespace

std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string CudaDevice::problem() const {
  if (compute_major == kComputeMajor && compute_minor == kComputeMinor) return {};
  return fmt::format(
      "{} has compute capability {}.{}; the kernels of this build need {}.{} (Hopper: H100, H200)",
      name, compute_major, compute_minor, kComputeMajor, kComputeMinor);
}

std::string CudaDevice::description() const {
  return fmt::format("{}, sm_{}{}, {} SMs, {:.1f} GiB, {} MiB of L2, driver for CUDA {}", name,
                     compute_major, compute_minor, num_sms,
                     static_cast<double>(memory_bytes) / (1 << 30), l2_bytes >> 20, driver);
}

CudaDevices find_cuda_devices() {
  CudaDevices found;
  int driver_version = 0, num_devices = 0;
  cudaDriverGetVersion(&driver_version);
  const cudaError_t status = cudaGetDeviceCount(&num_devices);
  if (status != cudaSuccess || num_devices == 0) {
    cudaGetLastError();  // it would show at the next launch
    found.problem = why_no_devices(status, driver_version);
    return found;
  }
  for (int i = 0; i < num_devices; ++i) {
    cudaDeviceProp properties;
    const cudaError_t read = cudaGetDeviceProperties(&properties, i);
    if (read != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    found.devices.push_back({.device_idx = i,
                             .name = properties.name,
                             .compute_major = properties.major,
                             .compute_minor = properties.minor,
                             .num_sms = properties.multiProcessorCount,
                             .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                             .l2_bytes = properties.l2CacheSize,
                             .driver = cuda_version_text(driver_version)});
  }
  if (found.devices.empty()) found.problem = "the NVIDIA driver answers for none of its devices";
  return found;
}

}  // namespace dsv4
