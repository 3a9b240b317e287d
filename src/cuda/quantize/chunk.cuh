// chunk.cuh: sixteen neighbouring values of a row in a thread's registers: FP32, or BF16 as stored.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "numerics/bf16.h"
#include "numerics/bits.h"

namespace dsv4::cuda {

inline constexpr int kChunk = 16;  // an NVFP4 quant block, or a part of a longer one

// Bits 7, 15, 23 and 31 of `even` and `odd`: the signs of values 0, 2, 4, 6 and 1, 3, 5, 7. Gives
// them as bit 3 of nibble i.
__device__ __forceinline__ std::uint32_t interleave_signs(std::uint32_t even, std::uint32_t odd) {
  return (even >> 4 & 0x08080808u) | (odd & 0x80808080u);
}

struct F32Chunk {
  float x[kChunk] = {};

  __device__ __forceinline__ float value(int i) const { return x[i]; }
  __device__ __forceinline__ void set(int i, float value) { x[i] = value; }
  __device__ __forceinline__ void load(const float* from) {  // at a multiple of 16 bytes
#pragma unroll
    for (int i = 0; i < kChunk; i += 4) {
      const float4 word = *reinterpret_cast<const float4*>(from + i);
      x[i] = word.x;
      x[i + 1] = word.y;
      x[i + 2] = word.z;
      x[i + 3] = word.w;
    }
  }
  // The largest magnitude; NaN counts as nothing.
  __device__ __forceinline__ float amax() const {
    float largest = fabsf(x[0]);
#pragma unroll
    for (int i = 1; i < kChunk; ++i) largest = fmaxf(largest, fabsf(x[i]));
    return largest;
  }
  // Bit 3 of nibble i is the sign of value first + i.
  __device__ __forceinline__ std::uint32_t sign_nibbles(int first) const {
    const auto upper_bytes = [this](int i) {  // of every second value
      const std::uint32_t low = __byte_perm(f32_bits(x[i]), f32_bits(x[i + 2]), 0x0073);
      const std::uint32_t high = __byte_perm(f32_bits(x[i + 4]), f32_bits(x[i + 6]), 0x0073);
      return __byte_perm(low, high, 0x5410);
    };
    return interleave_signs(upper_bytes(first), upper_bytes(first + 1));
  }
};

struct Bf16Chunk {
  std::uint32_t pairs[kChunk / 2] = {};  // the first value of a pair in the lower half

  __device__ __forceinline__ float value(int i) const {
    return f32_from_bits(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xFFFF0000u);
  }
  __device__ __forceinline__ void set(int i, Bf16 value) {
    pairs[i / 2] |= static_cast<std::uint32_t>(value.bits) << (i % 2 == 0 ? 0 : 16);
  }
  __device__ __forceinline__ void load(const Bf16* from) {  // at a multiple of 16 bytes
#pragma unroll
    for (int i = 0; i < kChunk; i += 8) {
      const uint4 word = *reinterpret_cast<const uint4*>(from + i);
      pairs[i / 2] = word.x;
      pairs[i / 2 + 1] = word.y;
      pairs[i / 2 + 2] = word.z;
      pairs[i / 2 + 3] = word.w;
    }
  }
  // Largest and smallest, since taking magnitudes first is an instruction a pair.
  __device__ __forceinline__ float amax() const {
    __nv_bfloat162 largest = pair(0);
    __nv_bfloat162 smallest = pair(0);
#pragma unroll
    for (int i = 1; i < kChunk / 2; ++i) {
      largest = __hmax2(largest, pair(i));
      smallest = __hmin2(smallest, pair(i));
    }
    largest = __hmax2(largest, __hneg2(smallest));
    return __low2float(__hmax2(largest, __lowhigh2highlow(largest)));
  }
  __device__ __forceinline__ std::uint32_t sign_nibbles(int first) const {
    const std::uint32_t* const p = pairs + first / 2;
    const std::uint32_t low = __byte_perm(p[0], p[1], 0x7351);  // upper bytes: 0, 2, 1, 3
    const std::uint32_t high = __byte_perm(p[2], p[3], 0x7351);
    return interleave_signs(__byte_perm(low, high, 0x5410), __byte_perm(low, high, 0x7632));
  }

 private:
  __device__ __forceinline__ __nv_bfloat162 pair(int i) const {
    return *reinterpret_cast<const __nv_bfloat162*>(&pairs[i]);
  }
};

}  // namespace dsv4::cuda
