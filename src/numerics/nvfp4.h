// nvfp4.h: NVFP4: E2M1 codes, an E4M3 block scale for 16 of them along K, one FP32 global scale.
//
// Every step is one FP32 operation rounded to nearest even, in the order written: other orders,
// such as x * (1 / p) or (x / g) / s, give other bytes. Inputs are finite (all_finite in amax.h),
// global scales finite and >= 0: the callers refuse anything else by the tensor's name.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/amax.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/pack.h"

namespace dsv4 {

inline constexpr int kNvfp4QuantBlock = 16;
inline constexpr int kNvfp4BlockBytes = kNvfp4QuantBlock / 2;  // of packed codes
inline constexpr float kNvfp4Max = kE2m1Max * kE4m3Max;        // 2688, in units of the global scale

// g = amax / 2688, so that the tensor's largest value is the largest code under the largest block
// scale; 1 for an all-zero tensor. An amax below about 1.9e-42 underflows to g = 0: all codes 0.
constexpr DSV4_HOST_DEVICE float nvfp4_global_scale(float tensor_amax) {
  return tensor_amax > 0.0f ? tensor_amax / kNvfp4Max : 1.0f;
}

// s = E4M3(min(block_amax / (6 g), 448)), as its byte; 0 for an all-zero block.
constexpr DSV4_HOST_DEVICE std::uint8_t nvfp4_block_scale(float block_amax, float global_scale) {
  if (!(block_amax > 0.0f)) return 0;
  return encode_e4m3(block_amax / (kE2m1Max * global_scale));
}

// p = FP32(s) * g, what the values of a block are divided by before E2M1.
constexpr DSV4_HOST_DEVICE float nvfp4_divisor(std::uint8_t block_scale, float global_scale) {
  return decode_e4m3(block_scale) * global_scale;
}

// E2M1(x / p), and 0 without a sign where p is 0.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_nvfp4(
    float x, float divisor, E2m1Rounding rounding = E2m1Rounding::kNearestEven) {
  return divisor > 0.0f ? encode_e2m1(x / divisor, rounding) : std::uint8_t{0};
}

// Encodes x [16] into codes [8], packed, under a block scale chosen before.
constexpr DSV4_HOST_DEVICE void encode_nvfp4_codes(
    const float* x, std::uint8_t block_scale, float global_scale, std::uint8_t* codes,
    E2m1Rounding rounding = E2m1Rounding::kNearestEven) {
  const float divisor = nvfp4_divisor(block_scale, global_scale);
  for (int i = 0; i < kNvfp4BlockBytes; ++i) {
    codes[i] = pack_e2m1(encode_nvfp4(x[2 * i], divisor, rounding),
                         encode_nvfp4(x[2 * i + 1], divisor, rounding));
  }
}

// Encodes x [16] into codes [8], packed; returns the block scale.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_nvfp4_block(
    const float* x, float global_scale, std::uint8_t* codes,
    E2m1Rounding rounding = E2m1Rounding::kNearestEven) {
  const std::uint8_t block_scale = nvfp4_block_scale(amax(x, kNvfp4QuantBlock), global_scale);
  encode_nvfp4_codes(x, block_scale, global_scale, codes, rounding);
  return block_scale;
}

// (e2m1 * e4m3) * g. The first product has at most six significant bits and is exact, so the value
// is rounded once; e2m1 * (e4m3 * g) would round twice.
constexpr DSV4_HOST_DEVICE float decode_nvfp4(std::uint8_t code, std::uint8_t block_scale,
                                              float global_scale) {
  return (decode_e2m1(code) * decode_e4m3(block_scale)) * global_scale;
}

// Four over six: a block may also be scaled so that its largest value becomes 4 and not 6, where
// codes lie closer. The usual global scale leaves the block scale room for that: its largest block
// scale is 256, and the other candidate's 384.
inline constexpr float kNvfp4FourOverSixMax = kE2m1Max * 256.0f;

// g = amax / 1536; otherwise as nvfp4_global_scale.
constexpr DSV4_HOST_DEVICE float nvfp4_four_over_six_global_scale(float tensor_amax) {
  return tensor_amax > 0.0f ? tensor_amax / kNvfp4FourOverSixMax : 1.0f;
}

// The sum of (x - decoded)^2 over x [16]. Difference and square are FP64; square l += square l + 8,
// then + 4, + 2, + 1.
constexpr DSV4_HOST_DEVICE double nvfp4_block_error(const float* x, const std::uint8_t* codes,
                                                    std::uint8_t block_scale, float global_scale) {
  double squares[kNvfp4QuantBlock] = {};
  for (int i = 0; i < kNvfp4QuantBlock; ++i) {
    const float decoded = decode_nvfp4(unpack_e2m1(codes, i), block_scale, global_scale);
    const double error = static_cast<double>(x[i]) - static_cast<double>(decoded);
    squares[i] = error * error;
  }
  for (int width = kNvfp4QuantBlock / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) squares[i] += squares[i + width];
  }
  return squares[0];
}

// Encodes x [16] into codes [8], packed, under the better of two block scales, which it returns:
// with q = block amax / (6 g), s6 = E4M3(min(q, 448)) and s4 = E4M3(min(1.5 q, 448)). s4 only if
// its nvfp4_block_error is smaller. The largest block scale is E4M3's own; a g of amax / 1536 makes
// s6 256 at most.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_nvfp4_block_four_over_six(
    const float* x, float global_scale, std::uint8_t* codes,
    E2m1Rounding rounding = E2m1Rounding::kNearestEven) {
  const std::uint8_t to_six = encode_nvfp4_block(x, global_scale, codes, rounding);
  const float block_amax = amax(x, kNvfp4QuantBlock);
  if (!(block_amax > 0.0f)) return to_six;
  const std::uint8_t to_four = encode_e4m3(1.5f * (block_amax / (kE2m1Max * global_scale)));
  std::uint8_t other_codes[kNvfp4BlockBytes] = {};
  encode_nvfp4_codes(x, to_four, global_scale, other_codes, rounding);
  if (!(nvfp4_block_error(x, other_codes, to_four, global_scale) <
        nvfp4_block_error(x, codes, to_six, global_scale))) {
    return to_six;
  }
  for (int i = 0; i < kNvfp4BlockBytes; ++i) codes[i] = other_codes[i];
  return to_four;
}

}  // namespace dsv4
