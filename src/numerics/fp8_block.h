// fp8_block.h: E4M3 codes that share a power-of-two scale: weights in 128 x 128 tiles, activations
// in blocks of 128 along K, cache rows in blocks of 64.
//
// Inputs are finite (all_finite in amax.h): the callers refuse anything else.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/amax.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"

namespace dsv4 {

inline constexpr int kWeightTile = 128;            // rows and columns of a weight under one scale
inline constexpr int kActivationQuantBlock = 128;  // along K, per token
inline constexpr int kCacheRowQuantBlock = 64;     // of the dims without RoPE

// E4M3(x / 2^k). Where the quotient is subnormal it is inexact, and its code is zero either way.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_e4m3_scaled(float x, std::uint8_t block_scale) {
  return encode_e4m3(x / decode_e8m0(block_scale));
}

// Encodes x [n] into codes [n]; returns the E8M0 block scale, e4m3_block_exponent of the amax, so
// that nothing saturates.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_e4m3_block(const float* x, int n,
                                                          std::uint8_t* codes) {
  const std::uint8_t block_scale = e4m3_block_exponent(amax(x, n));
  for (int i = 0; i < n; ++i) codes[i] = encode_e4m3_scaled(x[i], block_scale);
  return block_scale;
}

// e4m3 * 2^k: exact unless it leaves FP32; for scales that encode_e4m3_block chose it never does.
constexpr DSV4_HOST_DEVICE float decode_e4m3_scaled(std::uint8_t code, std::uint8_t block_scale) {
  return decode_e4m3(code) * decode_e8m0(block_scale);
}

// Decodes codes [n] into x [n].
constexpr DSV4_HOST_DEVICE void decode_e4m3_block(const std::uint8_t* codes, int n,
                                                  std::uint8_t block_scale, float* x) {
  for (int i = 0; i < n; ++i) x[i] = decode_e4m3_scaled(codes[i], block_scale);
}

}  // namespace dsv4
