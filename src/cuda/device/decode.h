// decode.h: E4M3 and E2M1 codes to pairs of BF16 in registers, exactly, for codes that lie in
// memory order. NVFP4 weights repacked for wgmma: nvfp4_decode.h.
//
// The bits of a code are put where a BF16 has them, which makes a number with a tiny exponent, and
// one multiplication by a power of two brings it to its value: subnormal codes need no case.
#pragma once

#include <cstdint>

#include "cuda/device/convert.h"

namespace dsv4::cuda {

// 2^120 twice: from E4M3's exponent bias to BF16's.
inline constexpr std::uint32_t kE4m3ToBf16 = 0x7B807B80;
// 2^126 twice: from E2M1's.
inline constexpr std::uint32_t kE2m1ToBf16 = 0x7E807E80;

// Four E4M3 codes, the first in the lowest byte, to two pairs. The NaN codes 7F and FF, which
// loading refuses in weights, become +-480.
__device__ __forceinline__ void decode_e4m3x4(std::uint32_t codes, std::uint32_t pairs[2]) {
  constexpr std::uint32_t kSelectors[2] = {0x1404, 0x3424};  // bytes 0, c0, 0, c1; 0, c2, 0, c3
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t high_bytes = __byte_perm(codes, 0, kSelectors[i]);
    const std::uint32_t tiny = (high_bytes & 0x80008000u) | (high_bytes >> 4 & 0x07F007F0u);
    pairs[i] = mul_bf16x2(tiny, kE4m3ToBf16);
  }
}

// Eight E2M1 codes, the first in the lowest four bits, to four pairs.
__device__ __forceinline__ void decode_e2m1x8(std::uint32_t codes, std::uint32_t pairs[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t byte = codes >> (8 * i);
    const std::uint32_t spread = (byte & 0xFu) | (byte & 0xF0u) << 12;
    const std::uint32_t tiny = (spread << 12 & 0x80008000u) | (spread << 6 & 0x01C001C0u);
    pairs[i] = mul_bf16x2(tiny, kE2m1ToBf16);
  }
}

// An E8M0 scale as BF16, twice: a factor for mul_bf16x2. Code 0 is a subnormal, FF NaN. A decoded
// E2M1 or E4M3 times it is exact unless it leaves BF16's range.
__device__ __forceinline__ std::uint32_t decode_e8m0_bf16x2(std::uint8_t code) {
  std::uint32_t bits = static_cast<std::uint32_t>(code) << 7;
  if (code == 0) bits = 0x0040;
  if (code == 0xFF) bits = 0x7FFF;
  return bits * 0x00010001u;
}

}  // namespace dsv4::cuda
