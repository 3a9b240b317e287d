// dependent_launch.h: what a kernel says about the kernels before and behind it on its stream
// (programmatic dependent launch). One function, one instruction.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-griddepcontrol
#pragma once

namespace dsv4::cuda {

// Waits until the kernels before are done and what they wrote is seen. All threads of a kernel
// launched to overlap (LaunchShape::overlaps) execute it, before any access to global memory and
// before they can return: the kernel behind relies on it for the kernels before.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Lets the kernel behind start once all CTAs have said so or are done, if it is one to overlap.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace dsv4::cuda
