// float.h: floating-point instructions that CUDA C++ has no name for. One function, one
// instruction.
#pragma once

namespace dsv4::cuda {

// https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-rcp
__device__ __forceinline__ float rcp_approx_ftz(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace dsv4::cuda
