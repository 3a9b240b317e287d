#include "cuda/errors.h"

namespace dsv4::cuda {

ErrorCode error_code_of(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::kOutOfMemory;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorDevicesUnavailable:
      return ErrorCode::kUnsupportedDevice;
    default:
      return ErrorCode::kInternal;
  }
}

bool is_of_earlier_work(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
      return true;
    default:
      return false;
  }
}

void check_cuda(cudaError_t status, std::string_view doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // errors that do not stay would be found again by the next launch
  if (is_of_earlier_work(status)) {
    fail(error_code_of(status), "cannot {}: work queued before it failed: {} ({}); {}", doing,
         cudaGetErrorString(status), cudaGetErrorName(status), kHowToFindTheKernel);
  }
  fail(error_code_of(status), "cannot {}: {} ({})", doing, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

void check_work(cudaError_t status, std::string_view device) {
  if (status == cudaSuccess) return;
  fail(error_code_of(status), "work on {} failed: {} ({}); {}", device, cudaGetErrorString(status),
       cudaGetErrorName(status), kHowToFindTheKernel);
}

CurrentDevice::CurrentDevice(int device_idx) {
  int current = 0;
  check_cuda(cudaGetDevice(&current), "ask for the current device");
  if (current == device_idx) return;
  check_cuda(cudaSetDevice(device_idx), "make a device the current one");
  previous_ = current;
}

CurrentDevice::~CurrentDevice() {
  if (previous_ >= 0) cudaSetDevice(previous_);
}

}  // namespace dsv4::cuda
