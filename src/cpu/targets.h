// targets.h: the instruction sets that the CPU backend is compiled for, and which of them runs.
//
// Include it before any Highway header. A file with kernels compiles itself once a target
// (hwy/foreach_target.h) and picks one with DSV4_CPU_KERNEL. The choice
// belongs to a backend, not to the process, so that a test can compare targets: Highway's own
// HWY_DYNAMIC_DISPATCH, which keeps it in a global, is not used.
#pragma once

#include <cstddef>
#include <cstdint>

// Named are those that the kernels know, since every release of Highway brings others. Left out:
// x86 below AVX2, which has no fused multiply-add; scalable vectors, which cannot be members; what
// newer processors add to AVX-512. AVX3 is AVX-512 with F, BW, CD, DQ and VL.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_NEON | HWY_EMU128 | HWY_SCALAR))
#include <hwy/targets.h>

namespace dsv4::cpu {

// Where HWY_EXPORT's tables hold the best kernel among `targets`, a mask of HWY_* bits.
inline std::size_t kernel_index(std::int64_t targets) {
  hwy::ChosenTarget chosen;
  chosen.Update(targets);
  return chosen.GetIndex();
}

}  // namespace dsv4::cpu

// The variant of an HWY_EXPORTed function for a backend's targets.
#define DSV4_CPU_KERNEL(function, targets) \
  (*(HWY_DISPATCH_TABLE(function)[::dsv4::cpu::kernel_index(targets)]))
