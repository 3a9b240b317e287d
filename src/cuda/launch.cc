#include "cuda/launch.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "cuda/errors.h"

namespace dsv4::cuda {
namespace {

bool waits_after_each_launch() {
  static const bool waits = [] {
    const char* const value = std::getenv("DSV4_CUDA_SYNC");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return waits;
}

// A stream that is being recorded into a graph cannot be waited for.
bool is_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "ask a stream for its capture status");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void allow_shared_bytes(const void* kernel, const char* name, int shared_bytes) {
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  fail(error_code_of(status), "the kernel {} cannot have {} bytes of shared memory: {}", name,
       shared_bytes, cudaGetErrorString(status));
}

void check_launch(cudaError_t launched, const char* name, const LaunchShape& shape,
                  cudaStream_t stream) {
  if (is_of_earlier_work(launched)) check_cuda(launched, fmt::format("launch {}", name));
  if (launched != cudaSuccess) {
    cudaGetLastError();
    fail(error_code_of(launched),
         "the kernel {} was not launched (grid {} x {} x {}, block {} x {} x {}, {} bytes of "
         "shared memory): {}",
         name, shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y,
         shape.block.z, shape.shared_bytes, cudaGetErrorString(launched));
  }
  if (!waits_after_each_launch() || is_recorded(stream)) return;
  const cudaError_t ran = cudaStreamSynchronize(stream);
  if (ran != cudaSuccess) {
    fail(error_code_of(ran), "the kernel {} failed: {} ({})", name, cudaGetErrorString(ran),
         cudaGetErrorName(ran));
  }
}

}  // namespace dsv4::cuda
