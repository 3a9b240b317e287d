// errors.h: CUDA's status codes as dsv4::Error, and the device that calls of this thread go to.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace dsv4::cuda {

// kOutOfMemory, kUnsupportedDevice, kInternal.
ErrorCode error_code_of(cudaError_t status);

// Throws Error "cannot <doing>: <CUDA's words>" unless `status` is success. `doing` such as "copy
// to the device".
void check_cuda(cudaError_t status, std::string_view doing);

// The same for `status` of a wait for work that was queued on `device` ("cuda:0"): "work on
// <device> failed", and how to find the kernel.
void check_work(cudaError_t status, std::string_view device);

// Makes `device_idx` the thread's current device while it lives. Throws Error.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device_idx);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = -1;  // -1: it was current already
};

}  // namespace dsv4::cuda
