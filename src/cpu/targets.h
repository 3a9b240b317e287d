// targets.h: the instruction sets that the CPU backend is compiled for, and which of them runs.
//
// Include it before any Highway header. A file with kernels compiles itself once a target
// (hwy/foreach_target.h) and picks one with DSV4_CPU_KERNEL. The choice
// belongs to a backend, not to the process, so that a test can compare targets: Highway's own
// HWY_DYNAMIC_DISPATCH, which keeps it in a global, is not used.
#pragma once

// Left out: x86 below AVX2, which has no fused multiply-add; scalable vectors, which cannot be
// members. AVX3 is AVX-512 with F, BW, CD, DQ and VL.
#include <cstddef>
#include <cstdint>
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS                                                           \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_WASM | \
   HWY_WASM_EMU256 | HWY_RVV | HWY_PPC8)
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
