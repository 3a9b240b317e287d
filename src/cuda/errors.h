// errors.h: CUDA's status codes as dsv4::Error, and the device that calls of this thread go to.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace dsv4::cuda {

// kOutOfMemory, kUnsupportedDevice, kInternal.
ErrorCode error_code_of(cudaError_t status);

// Whether `status` is a fault of a kernel that ran before the call that returned it: from then on
// every call returns it.
bool is_of_earlier_work(cudaError_t status);
inline constexpr std::string_view kHowToFindTheKernel =
    "DSV4_CUDA_SYNC=1 in the environment names the kernel";

// Throws Error "cannot <doing>: <CUDA's words>" unless `status` is success. `doing` such as "copy
// to the device". A fault of earlier work is called so.
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
