// mxfp4.h: MXFP4 as DeepSeek releases it: E2M1 codes, an E8M0 block scale for 32 of them along K.
//
// Inputs are finite (all_finite in amax.h): the callers refuse anything else by the tensor's name.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "numerics/amax.h"
#include "numerics/e2m1.h"
#include "numerics/e8m0.h"
#include "numerics/pack.h"

namespace dsv4 {

inline constexpr int kMxfp4QuantBlock = 32;
inline constexpr int kMxfp4BlockBytes = kMxfp4QuantBlock / 2;  // of packed codes

// E2M1(x / 2^k) to nearest even. Where the quotient is subnormal it is inexact, and its code is
// zero either way.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_mxfp4(float x, std::uint8_t block_scale) {
  return encode_e2m1(x / decode_e8m0(block_scale));
}

// Encodes x [32] into codes [16], packed; returns the E8M0 block scale, mxfp4_block_exponent of the
// block's amax, so that nothing saturates. -0 keeps its sign.
constexpr DSV4_HOST_DEVICE std::uint8_t encode_mxfp4_block(const float* x, std::uint8_t* codes) {
  const std::uint8_t block_scale = mxfp4_block_exponent(amax(x, kMxfp4QuantBlock));
  for (int i = 0; i < kMxfp4BlockBytes; ++i) {
    codes[i] =
        pack_e2m1(encode_mxfp4(x[2 * i], block_scale), encode_mxfp4(x[2 * i + 1], block_scale));
  }
  return block_scale;
}

// e2m1 * 2^k: exact unless it leaves FP32 (block scales 0 and 254 can).
constexpr DSV4_HOST_DEVICE float decode_mxfp4(std::uint8_t code, std::uint8_t block_scale) {
  return decode_e2m1(code) * decode_e8m0(block_scale);
}

}  // namespace dsv4
