// devices.h: which CUDA devices there are and whether this build can use them; no CUDA header, so
// that backends/ may include it. Computing on one: cuda_backend.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dsv4 {

struct CudaDevice {
  int device_idx = 0;
  std::string name;       // "NVIDIA H200"
  int compute_major = 0;  // compute capability, 9.0 for Hopper
  int compute_minor = 0;
  int num_sms = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  std::string driver;  // newest CUDA version that the driver runs, "13.0"

  // Why this build cannot use the device, and what would help; empty if it can.
  std::string problem() const;
  // "NVIDIA H200, sm_90, 132 SMs, 139.8 GiB, 60 MiB of L2, driver for CUDA 13.0".
  std::string description() const;
};

struct CudaDevices {
  std::vector<CudaDevice> devices;
  // Why there are none, and what would help; empty if there are some.
  std::string problem;
};

// Asks the driver, which takes tenths of a second in a process that has not used it yet. Throws
// nothing but std::bad_alloc.
CudaDevices find_cuda_devices();

// CUDA's way to write a version: 13000 is "13.0".
std::string cuda_version_text(int version);

}  // namespace dsv4
