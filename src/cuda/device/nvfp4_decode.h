// nvfp4_decode.h: FP4 weights repacked for wgmma, to BF16 in registers, exactly.
//
// A 32-bit word holds the eight codes that a thread feeds to one wgmma step (wgmma.h: a[0] to
// a[3]), pair i in the same bits of both halves:
//   pair  sign  magnitude's bits 2, 1, 0   brought to bits 15 and 8 .. 6 by
//   0     15    8, 7, 6                    nothing
//   1     12    5, 4, 3                    x 8
//   2      9    2, 1, 0                    x 64
//   3     11    10, 14, 13                 >> 10, & 1B, x 4108 (three shifts that do not collide)
// and a mask: a BF16 of code x 2^-126. Multiplications run beside the logic unit, which binds; as
// constants the compiler would turn them back into shifts, so they are arguments.
//
// A block scale becomes a BF16 of scale x 2^119 (NVFP4) or the scale itself (MXFP4), and one
// multiplication of two weights gives code x scale x 2^-7 or x 2^-126, which no rounding touches.
// What is left over is in the row factors (cuda/moe/expert_layout.h).
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "base/host_device.h"

namespace dsv4::cuda {

// E2M1 code `code` as pair `pair` of a word, in its lower half.
constexpr DSV4_HOST_DEVICE std::uint32_t place_e2m1(std::uint32_t code, int pair) {
  const std::uint32_t sign = code >> 3, magnitude = code & 7;
  switch (pair) {
    case 0:
      return sign << 15 | magnitude << 6;
    case 1:
      return sign << 12 | magnitude << 3;
    case 2:
      return sign << 9 | magnitude;
    default:
      return sign << 11 | (magnitude >> 2) << 10 | (magnitude >> 1 & 1) << 14 |
             (magnitude & 1) << 13;
  }
}

struct E2m1Multipliers {
  std::uint32_t pair1 = 8;
  std::uint32_t pair2 = 64;
  std::uint32_t pair3 = 0x4108;
  std::uint32_t mask = 0x81C081C0;
};

// The word's pairs times `row` for rows g (lower half of scales) and g + 8 (upper half): a[0..3].
__device__ __forceinline__ void decode_fragments(std::uint32_t word, std::uint32_t scales,
                                                 const E2m1Multipliers& m, std::uint32_t (&a)[4]) {
  const auto pair = [](std::uint32_t bits) { return reinterpret_cast<__nv_bfloat162&>(bits); };
  const auto product = [&](std::uint32_t codes, __nv_bfloat162 scale) {
    const __nv_bfloat162 weights = __hmul2(pair(codes & m.mask), scale);
    return reinterpret_cast<const std::uint32_t&>(weights);
  };
  // Written so, either half is an operand of the multiplication and takes no instruction.
  const __nv_bfloat162 row_g = __low2bfloat162(pair(scales)),
                       row_g8 = __high2bfloat162(pair(scales));
  a[0] = product(word, row_g);
  a[1] = product(word * m.pair1, row_g8);
  a[2] = product(word * m.pair2, row_g);
  a[3] = product((word >> 10 & 0x001B001B) * m.pair3, row_g8);
}

// bits & mask | ones, one instruction where the compiler makes two of two constants.
__device__ __forceinline__ std::uint32_t and_or(std::uint32_t bits, std::uint32_t mask,
                                                std::uint32_t ones) {
  std::uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(bits), "r"(mask), "r"(ones));
  return result;
}

// Block scales in shared memory: NVFP4's as unsigned E5M3 (four of a row in a word rotated left by
// 4), MXFP4's as E8M0 (two of row g, two of row g + 8, in a word rotated left by 7). Then two bytes
// that lie side by side hold one scale where a BF16 has it.
template <int kQuantBlock>
struct FragmentScales;

// Of 64 columns: four blocks of 16.
template <>
struct FragmentScales<16> {
  std::uint32_t row_g, row_g8;

  __device__ __forceinline__ void load(std::uint32_t address) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(row_g), "=r"(row_g8) : "r"(address));
  }
  // For columns 16 kStep .. 16 kStep + 15.
  template <int kStep>
  __device__ __forceinline__ std::uint32_t bf16x2() const {
    constexpr std::uint32_t kBytes[4] = {0x5410, 0x6521, 0x7632, 0x4703};
    return and_or(__byte_perm(row_g, row_g8, kBytes[kStep]), 0x0FF00FF0, 0x70007000);
  }
};

// Two blocks of 32.
template <>
struct FragmentScales<32> {
  std::uint32_t rows;

  __device__ __forceinline__ void load(std::uint32_t address) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(rows) : "r"(address));
  }
  template <int kStep>
  __device__ __forceinline__ std::uint32_t bf16x2() const {
    constexpr std::uint32_t kBytes[2] = {0x3210, 0x0321};
    return __byte_perm(rows, 0, kBytes[kStep / 2]) & 0x7F807F80;
  }
};

// E4M3 scale without its sign, not NaN and not 0, as E5M3: bias 22 and no subnormals.
constexpr DSV4_HOST_DEVICE std::uint32_t e5m3_scale(std::uint32_t e4m3) {
  if (e4m3 >= 8) return e4m3 + (15 << 3);
  const std::uint32_t shift = e4m3 >= 4 ? 1 : e4m3 >= 2 ? 2 : 3;  // m / 512 = 1.f x 2^-(6 + shift)
  return (e4m3 << shift & 7) | (16 - shift) << 3;
}

constexpr DSV4_HOST_DEVICE std::uint32_t rotate_left(std::uint32_t word, int bits) {
  return word << bits | word >> (32 - bits);
}

}  // namespace dsv4::cuda
