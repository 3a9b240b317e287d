// encode.cuh: sixteen values of a thread to codes, with the bits of numerics/ and few instructions.
//
// Why the bits are the same: docs/kernels/quantize.md; proof by trying all inputs: encode_test.cu.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "cuda/device/float.h"
#include "cuda/quantize/chunk.cuh"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "numerics/nvfp4.h"

namespace dsv4::cuda {

// 1 / x rounded to nearest, for normal x up to 2^126 in magnitude; 0 beyond.
__device__ __forceinline__ float reciprocal(float x) {
  const float y = rcp_approx_ftz(x);
  return __fmaf_rn(__fmaf_rn(-x, y, 1.0f), y, y);
}

// 1 / d in two parts, for 2^-100 < d < 2^100. Without the square of the error one divisor in 2^23,
// that of all ones, goes wrong at ties that are powers of two.
struct Divisor {
  float high, low;
  __device__ __forceinline__ explicit Divisor(float d) {
    high = reciprocal(d);
    const float error = __fmaf_rn(-d, high, 1.0f);
    low = high * __fmaf_rn(error, error, error);
  }
};

// x / d, on the same side of each tie of E2M1 and E4M3 as the quotient rounded to FP32. NaN where x
// times a part overflows.
__device__ __forceinline__ float quotient(float x, const Divisor& d) {
  return __fmaf_rn(x, d.high, x * d.low);
}

// The E2M1 code of |2 h| to nearest even, saturating, added to kCodeBits as an integer.
//
// The code rises by 4 while h goes from 0 to 1, by 2 from 1 to 2 and by 1 from 2 to 3. Adding to a
// float whose last place is 1 rounds to nearest even, and each piece starts at an even code.
inline constexpr std::uint32_t kCodeBits = 0x4B400000u;  // 1.5 * 2^23
__device__ __forceinline__ std::uint32_t e2m1_magnitude(float h) {
  const float magnitude = fabsf(h);
  float code = __fmaf_rn(__saturatef(magnitude), 4.0f, f32_from_bits(kCodeBits));
  code = __fmaf_rn(__saturatef(magnitude - 1.0f), 2.0f, code);
  return f32_bits(code + __saturatef(magnitude - 2.0f));
}

// Eight E2M1 codes from value `first` on, the first in the low nibble. half_quotient(x) gives half
// of what is encoded.
template <class Chunk, class HalfQuotient>
__device__ __forceinline__ std::uint32_t pack_eight(const Chunk& chunk, int first,
                                                    const HalfQuotient& half_quotient) {
  constexpr std::uint32_t kSumOfCodeBits = kCodeBits + (kCodeBits << 4) + (kCodeBits << 8);
  static_assert(kCodeBits << 12 == 0);
  std::uint32_t magnitudes = 0;
#pragma unroll
  for (int i = 7; i >= 0; --i) {
    magnitudes = magnitudes * 16 + e2m1_magnitude(half_quotient(chunk.value(first + i)));
  }
  return (magnitudes - kSumOfCodeBits) | chunk.sign_nibbles(first);
}

// As encode_e4m3 for every x that is not NaN.
__device__ __forceinline__ std::uint8_t hardware_e4m3(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

// As decode_e4m3 for every code.
__device__ __forceinline__ float hardware_decode_e4m3(std::uint8_t code) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

// As nvfp4_global_scale, without a division where the scale is of ordinary size.
__device__ __forceinline__ float fast_global_scale(float row_amax) {
  constexpr float kHigh = 1.0f / kNvfp4Max;
  constexpr float kLow = static_cast<float>(1.0 / kNvfp4Max - kHigh);
  const float scale = __fmaf_rn(row_amax, kHigh, row_amax * kLow);
  return scale >= 0x1p-40f ? scale : nvfp4_global_scale(row_amax);
}

// What the quant blocks of a row share.
struct Nvfp4Row {
  float global_scale;
  bool is_fast;  // everything near a tie is a normal number
  Divisor six_global_scales;

  __device__ __forceinline__ Nvfp4Row(float scale, E2m1Rounding rounding)
      : global_scale(scale),
        is_fast(scale >= 0x1p-40f && scale <= 0x1p40f && rounding == E2m1Rounding::kNearestEven),
        six_global_scales(kE2m1Max * scale) {}
};

struct Nvfp4Block {
  uint2 codes;
  std::uint8_t block_scale;
  bool is_encoded;  // false: not the fast way's to encode, use numerics/
};

// As encode_nvfp4_block; block_amax is chunk.amax().
template <class Chunk>
__device__ __forceinline__ Nvfp4Block fast_nvfp4_block(const Chunk& chunk, float block_amax,
                                                       const Nvfp4Row& row) {
  Nvfp4Block block;
  block.block_scale = hardware_e4m3(quotient(block_amax, row.six_global_scales));
  const float twice_divisor = hardware_decode_e4m3(block.block_scale) * (2 * row.global_scale);
  // False for a scale of 0 or NaN and for an infinite amax, too.
  block.is_encoded = row.is_fast && twice_divisor * 0x1p39f > block_amax;
  if (block.is_encoded) {
    const Divisor divisor(twice_divisor);
    const auto half_quotient = [&divisor](float value) { return quotient(value, divisor); };
    block.codes = {pack_eight(chunk, 0, half_quotient), pack_eight(chunk, 8, half_quotient)};
  }
  return block;
}

// 2^-k for a block scale 2^k, k <= 126: x * 2^-k is x / 2^k.
__device__ __forceinline__ float inverse_e8m0(std::uint8_t block_scale) {
  return f32_from_bits((254u - block_scale) << kF32MantissaBits);
}

// The codes of half an MXFP4 quant block.
template <class Chunk>
__device__ __forceinline__ uint2 mxfp4_codes(const Chunk& chunk, std::uint8_t block_scale) {
  const float factor = 0.5f * inverse_e8m0(block_scale);
  const auto half_quotient = [factor](float value) { return __fmul_rn(value, factor); };
  return {pack_eight(chunk, 0, half_quotient), pack_eight(chunk, 8, half_quotient)};
}

// The codes of sixteen values of an E4M3 block.
template <class Chunk>
__device__ __forceinline__ uint4 e4m3_codes(const Chunk& chunk, std::uint8_t block_scale) {
  const float factor = inverse_e8m0(block_scale);
  const auto pair = [&](int i) -> std::uint32_t {
    return __nv_cvt_float2_to_fp8x2(
        make_float2(chunk.value(i) * factor, chunk.value(i + 1) * factor), __NV_SATFINITE,
        __NV_E4M3);
  };
  return {pair(0) | pair(2) << 16, pair(4) | pair(6) << 16, pair(8) | pair(10) << 16,
          pair(12) | pair(14) << 16};
}

}  // namespace dsv4::cuda
