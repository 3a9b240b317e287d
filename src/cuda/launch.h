// launch.h: launching a kernel by name, so that whatever goes wrong names it. Every launch of the
// backend goes through here.
//
// With DSV4_CUDA_SYNC=1 in the environment each launch waits for its kernel: a fault is then
// reported by the launch that caused it instead of by a later synchronize().
#pragma once

#include <cuda_runtime.h>

#include <utility>

namespace dsv4::cuda {

struct LaunchShape {
  dim3 grid;             // CTAs; none in a dimension: nothing is launched
  dim3 block;            // threads of a CTA
  int shared_bytes = 0;  // dynamic shared memory of a CTA
  // The kernel may start before the stream's work before it is done, and waits for it itself
  // (device/dependent_launch.h): its launch costs no time between the two.
  bool overlaps = false;
};

// Makes room for more dynamic shared memory than the 48 KiB a kernel gets unasked. Throws Error.
void allow_shared_bytes(const void* kernel, const char* name, int shared_bytes);
// Throws Error if the launch of `name` failed, or, with DSV4_CUDA_SYNC=1, its run.
void check_launch(cudaError_t launched, const char* name, const LaunchShape& shape,
                  cudaStream_t stream);

// Queues kernel(args...) on `stream` of the current device. Throws Error naming the kernel.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const LaunchShape& shape,
            cudaStream_t stream, Args&&... args) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  if (shape.shared_bytes > 48 * 1024) {
    allow_shared_bytes(reinterpret_cast<const void*>(kernel), name, shape.shared_bytes);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute overlaps = {};
  overlaps.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlaps.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &overlaps;
  config.numAttrs = shape.overlaps ? 1 : 0;
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name, shape,
               stream);
}

}  // namespace dsv4::cuda
