// warpgroup.h: what the warpgroups of one CTA share: registers, and barriers among some of them.
// One function, one instruction. Fences and mbarriers: cuda::ptx has them (<cuda/ptx>).
#pragma once

namespace dsv4::cuda {

// Take registers for this warp, waiting until others of the CTA have given them, and give some
// back. A multiple of 8 in 24 .. 256; all warps of a warpgroup execute the same one. The sum over
// the CTA's warps may not exceed what the kernel got at its launch, or the wait never ends.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#miscellaneous-instructions-setmaxnreg
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Barrier `barrier_idx` (1 .. 15; 0 is __syncthreads) among `num_threads` threads, a multiple of 32
// that counts those that only arrive. Memory written before it is seen behind it.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-bar
__device__ __forceinline__ void bar_sync(int barrier_idx, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier_idx), "r"(num_threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int barrier_idx, int num_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier_idx), "r"(num_threads) : "memory");
}

}  // namespace dsv4::cuda
