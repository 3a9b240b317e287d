// async_copy.h: copies from global to shared memory that a thread starts and does not wait for,
// of 16 bytes each. One function, one instruction. Bulk copies and mbarriers: cuda::ptx.
//
// The copies write as the thread's own stores would, so wgmma, which reads through the async proxy,
// needs fence.proxy.async between.
#pragma once

#include <cstdint>

namespace dsv4::cuda {

// Copies `bytes` (0 or 16) to shared address `to` and fills 16 up with zeros. With 0 nothing is
// read. Both addresses are multiples of 16.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async
__device__ __forceinline__ void cp_async_16(std::uint32_t to, const void* from,
                                            std::uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// Arrives at an mbarrier once this thread's copies so far have arrived; the barrier's count has to
// include it.
__device__ __forceinline__ void cp_async_mbarrier_arrive(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier)))
               : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Waits for the end of the barrier's phase of this parity. The loop is part of the instruction's
// text: written around cuda::ptx::mbarrier_try_wait_parity it would make the compiler believe that
// the warp's threads part there, and keep what they share out of uniform registers.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier-test-wait-try-wait
__device__ __forceinline__ void mbarrier_wait_parity(std::uint64_t* barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nwait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_%=;\n}" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(barrier))),
      "r"(parity)
      : "memory");
}

}  // namespace dsv4::cuda
