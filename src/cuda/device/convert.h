// convert.h: conversions of two values at once. One function, one instruction. They round to
// nearest even and agree bit for bit with numerics/, but for NaN where it is said.
//
// Pairs are packed as everywhere: the first value in the low half.
#pragma once

#include <cstdint>

namespace dsv4::cuda {

// Two BF16; a NaN becomes 7FFF.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
__device__ __forceinline__ std::uint32_t cvt_bf16x2(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Two E4M3, saturating; a NaN becomes 7F.
__device__ __forceinline__ std::uint16_t cvt_e4m3x2(float first, float second) {
  std::uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(second), "f"(first));
  return pair;
}

// Two FP16 out of two E4M3, exact; a NaN becomes 7FFF.
__device__ __forceinline__ std::uint32_t cvt_f16x2_e4m3x2(std::uint16_t codes) {
  std::uint32_t pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
  return pair;
}

// Each half of `pair`, as FP32. Exact.
__device__ __forceinline__ float first_of_bf16x2(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float second_of_bf16x2(std::uint32_t pair) {
  return __uint_as_float(pair & 0xFFFF0000u);
}

// The product of two pairs of BF16, each rounded; subnormals are kept.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#half-precision-floating-point-instructions-mul
__device__ __forceinline__ std::uint32_t mul_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

}  // namespace dsv4::cuda
