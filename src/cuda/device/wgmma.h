// wgmma.h: the warpgroup's matrix multiplication with weights from registers. One function, one
// instruction.
//
// D [64, N] += A [64, 16] B [16, N] in FP32, of BF16. The four warps of a warpgroup hold 16 rows of
// A and D each. With g = lane / 4 and c = lane % 4 a thread holds, of its warp's rows,
//   a[0]: row g, columns 2c and 2c + 1       a[1]: row g + 8, the same columns
//   a[2]: row g, columns 2c + 8 and 2c + 9   a[3]: row g + 8, those
//   d[4n + h]: row g, column 8n + 2c + h     d[4n + 2 + h]: row g + 8, the same column
// B lies in shared memory, K-major (one column's 16 values are consecutive), as b describes it.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-instructions
#pragma once

#include <cstdint>

namespace dsv4::cuda {

// Orders the warpgroup's earlier accesses to registers before its next wgmma.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending groups are in flight. Registers of A may be written again, and D
// read, only then: the compiler does not watch over that.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The lower half of a descriptor of K-major B in the 128-byte swizzle: rows of 64 values of one
// column each, 128 bytes apart, the 16-byte pieces of row r exchanged by XOR with r % 8. `address`
// in shared memory, a multiple of 1,024. Columns 16 j .. 16 j + 15 of A's next k start at + 2 j.
__device__ __forceinline__ std::uint32_t wgmma_descriptor(std::uint32_t address) {
  return (address & 0x3FFFF) >> 4 | 1u << 16;
}
// The upper half: 1,024 bytes from eight rows to the next eight, and the kind of swizzle.
inline constexpr std::uint32_t kWgmmaDescriptorUpper = 0x40000000u | 1024 >> 4;

// Wgmma<N>::run(d, a, lower half of b's descriptor), N = 8, 16, ..., 160.
template <int kN>
struct Wgmma;

// The instruction's operands d and their names: those of 8 n columns are those of 8 (n - 1) and
// four more.
#define DSV4_SUMS(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define DSV4_NAMES_1 "%0, %1, %2, %3"
#define DSV4_NAMES_2 \
  DSV4_NAMES_1       \
  ", "               \
  "%4, %5, %6, %7"
#define DSV4_NAMES_3 \
  DSV4_NAMES_2       \
  ", "               \
  "%8, %9, %10, %11"
#define DSV4_NAMES_4 \
  DSV4_NAMES_3       \
  ", "               \
  "%12, %13, %14, %15"
#define DSV4_NAMES_5 \
  DSV4_NAMES_4       \
  ", "               \
  "%16, %17, %18, %19"
#define DSV4_NAMES_6 \
  DSV4_NAMES_5       \
  ", "               \
  "%20, %21, %22, %23"
#define DSV4_NAMES_7 \
  DSV4_NAMES_6       \
  ", "               \
  "%24, %25, %26, %27"
#define DSV4_NAMES_8 \
  DSV4_NAMES_7       \
  ", "               \
  "%28, %29, %30, %31"
#define DSV4_NAMES_9 \
  DSV4_NAMES_8       \
  ", "               \
  "%32, %33, %34, %35"
#define DSV4_NAMES_10 \
  DSV4_NAMES_9        \
  ", "                \
  "%36, %37, %38, %39"
#define DSV4_NAMES_11 \
  DSV4_NAMES_10       \
  ", "                \
  "%40, %41, %42, %43"
#define DSV4_NAMES_12 \
  DSV4_NAMES_11       \
  ", "                \
  "%44, %45, %46, %47"
#define DSV4_NAMES_13 \
  DSV4_NAMES_12       \
  ", "                \
  "%48, %49, %50, %51"
#define DSV4_NAMES_14 \
  DSV4_NAMES_13       \
  ", "                \
  "%52, %53, %54, %55"
#define DSV4_NAMES_15 \
  DSV4_NAMES_14       \
  ", "                \
  "%56, %57, %58, %59"
#define DSV4_NAMES_16 \
  DSV4_NAMES_15       \
  ", "                \
  "%60, %61, %62, %63"
#define DSV4_NAMES_17 \
  DSV4_NAMES_16       \
  ", "                \
  "%64, %65, %66, %67"
#define DSV4_NAMES_18 \
  DSV4_NAMES_17       \
  ", "                \
  "%68, %69, %70, %71"
#define DSV4_NAMES_19 \
  DSV4_NAMES_18       \
  ", "                \
  "%72, %73, %74, %75"
#define DSV4_NAMES_20 \
  DSV4_NAMES_19       \
  ", "                \
  "%76, %77, %78, %79"
#define DSV4_SUMS_1 DSV4_SUMS(0)
#define DSV4_SUMS_2 DSV4_SUMS_1, DSV4_SUMS(4)
#define DSV4_SUMS_3 DSV4_SUMS_2, DSV4_SUMS(8)
#define DSV4_SUMS_4 DSV4_SUMS_3, DSV4_SUMS(12)
#define DSV4_SUMS_5 DSV4_SUMS_4, DSV4_SUMS(16)
#define DSV4_SUMS_6 DSV4_SUMS_5, DSV4_SUMS(20)
#define DSV4_SUMS_7 DSV4_SUMS_6, DSV4_SUMS(24)
#define DSV4_SUMS_8 DSV4_SUMS_7, DSV4_SUMS(28)
#define DSV4_SUMS_9 DSV4_SUMS_8, DSV4_SUMS(32)
#define DSV4_SUMS_10 DSV4_SUMS_9, DSV4_SUMS(36)
#define DSV4_SUMS_11 DSV4_SUMS_10, DSV4_SUMS(40)
#define DSV4_SUMS_12 DSV4_SUMS_11, DSV4_SUMS(44)
#define DSV4_SUMS_13 DSV4_SUMS_12, DSV4_SUMS(48)
#define DSV4_SUMS_14 DSV4_SUMS_13, DSV4_SUMS(52)
#define DSV4_SUMS_15 DSV4_SUMS_14, DSV4_SUMS(56)
#define DSV4_SUMS_16 DSV4_SUMS_15, DSV4_SUMS(60)
#define DSV4_SUMS_17 DSV4_SUMS_16, DSV4_SUMS(64)
#define DSV4_SUMS_18 DSV4_SUMS_17, DSV4_SUMS(68)
#define DSV4_SUMS_19 DSV4_SUMS_18, DSV4_SUMS(72)
#define DSV4_SUMS_20 DSV4_SUMS_19, DSV4_SUMS(76)

#define DSV4_WGMMA(kN, names, a0, a1, a2, a3, b, ...)                                           \
  template <>                                                                                   \
  struct Wgmma<kN> {                                                                            \
    static __device__ __forceinline__ void run(float (&d)[kN / 2], const std::uint32_t (&a)[4], \
                                               std::uint32_t descriptor) {                      \
      asm volatile(                                                                             \
          "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n"                                        \
          "wgmma.mma_async.sync.aligned.m64n" #kN "k16.f32.bf16.bf16 {" names "}, {" a0 ", " a1 \
          ", " a2 ", " a3 "}, " b ", add, 1, 1, 0;\n}\n"                                        \
          : __VA_ARGS__                                                                         \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),                                         \
            "l"(static_cast<std::uint64_t>(kWgmmaDescriptorUpper) << 32 | descriptor));         \
    }                                                                                           \
  };

DSV4_WGMMA(8, DSV4_NAMES_1, "%4", "%5", "%6", "%7", "%8", DSV4_SUMS_1)
DSV4_WGMMA(16, DSV4_NAMES_2, "%8", "%9", "%10", "%11", "%12", DSV4_SUMS_2)
DSV4_WGMMA(24, DSV4_NAMES_3, "%12", "%13", "%14", "%15", "%16", DSV4_SUMS_3)
DSV4_WGMMA(32, DSV4_NAMES_4, "%16", "%17", "%18", "%19", "%20", DSV4_SUMS_4)
DSV4_WGMMA(40, DSV4_NAMES_5, "%20", "%21", "%22", "%23", "%24", DSV4_SUMS_5)
DSV4_WGMMA(48, DSV4_NAMES_6, "%24", "%25", "%26", "%27", "%28", DSV4_SUMS_6)
DSV4_WGMMA(56, DSV4_NAMES_7, "%28", "%29", "%30", "%31", "%32", DSV4_SUMS_7)
DSV4_WGMMA(64, DSV4_NAMES_8, "%32", "%33", "%34", "%35", "%36", DSV4_SUMS_8)
DSV4_WGMMA(72, DSV4_NAMES_9, "%36", "%37", "%38", "%39", "%40", DSV4_SUMS_9)
DSV4_WGMMA(80, DSV4_NAMES_10, "%40", "%41", "%42", "%43", "%44", DSV4_SUMS_10)
DSV4_WGMMA(88, DSV4_NAMES_11, "%44", "%45", "%46", "%47", "%48", DSV4_SUMS_11)
DSV4_WGMMA(96, DSV4_NAMES_12, "%48", "%49", "%50", "%51", "%52", DSV4_SUMS_12)
DSV4_WGMMA(104, DSV4_NAMES_13, "%52", "%53", "%54", "%55", "%56", DSV4_SUMS_13)
DSV4_WGMMA(112, DSV4_NAMES_14, "%56", "%57", "%58", "%59", "%60", DSV4_SUMS_14)
DSV4_WGMMA(120, DSV4_NAMES_15, "%60", "%61", "%62", "%63", "%64", DSV4_SUMS_15)
DSV4_WGMMA(128, DSV4_NAMES_16, "%64", "%65", "%66", "%67", "%68", DSV4_SUMS_16)
DSV4_WGMMA(136, DSV4_NAMES_17, "%68", "%69", "%70", "%71", "%72", DSV4_SUMS_17)
DSV4_WGMMA(144, DSV4_NAMES_18, "%72", "%73", "%74", "%75", "%76", DSV4_SUMS_18)
DSV4_WGMMA(152, DSV4_NAMES_19, "%76", "%77", "%78", "%79", "%80", DSV4_SUMS_19)
DSV4_WGMMA(160, DSV4_NAMES_20, "%80", "%81", "%82", "%83", "%84", DSV4_SUMS_20)

#undef DSV4_WGMMA
#undef DSV4_SUMS
#undef DSV4_NAMES_1
#undef DSV4_SUMS_1
#undef DSV4_NAMES_2
#undef DSV4_SUMS_2
#undef DSV4_NAMES_3
#undef DSV4_SUMS_3
#undef DSV4_NAMES_4
#undef DSV4_SUMS_4
#undef DSV4_NAMES_5
#undef DSV4_SUMS_5
#undef DSV4_NAMES_6
#undef DSV4_SUMS_6
#undef DSV4_NAMES_7
#undef DSV4_SUMS_7
#undef DSV4_NAMES_8
#undef DSV4_SUMS_8
#undef DSV4_NAMES_9
#undef DSV4_SUMS_9
#undef DSV4_NAMES_10
#undef DSV4_SUMS_10
#undef DSV4_NAMES_11
#undef DSV4_SUMS_11
#undef DSV4_NAMES_12
#undef DSV4_SUMS_12
#undef DSV4_NAMES_13
#undef DSV4_SUMS_13
#undef DSV4_NAMES_14
#undef DSV4_SUMS_14
#undef DSV4_NAMES_15
#undef DSV4_SUMS_15
#undef DSV4_NAMES_16
#undef DSV4_SUMS_16
#undef DSV4_NAMES_17
#undef DSV4_SUMS_17
#undef DSV4_NAMES_18
#undef DSV4_SUMS_18
#undef DSV4_NAMES_19
#undef DSV4_SUMS_19
#undef DSV4_NAMES_20
#undef DSV4_SUMS_20

}  // namespace dsv4::cuda
