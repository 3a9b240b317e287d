// The codecs of numerics/ on the device against the same source on the host, bit for bit, and
// against the conversions of CUDA's own headers.
#include <cuda_bf16.h>
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ios>
#include <random>
#include <vector>

#include "cuda/device/apply_test.h"
#include "numerics/bf16.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"
#include "numerics/silu.h"
#include "testing/codec_oracle.h"

namespace dsv4 {
namespace {

// Results are compared as bytes, so these structs have no padding.
struct EncodedF32 {
  std::uint16_t bf16;
  std::uint8_t e2m1_nearest_even;
  std::uint8_t e2m1_half_step;
  std::uint8_t e4m3;
  std::uint8_t e4m3_nonsaturating;
  std::uint8_t e8m0_ceil;
  std::uint8_t e4m3_exponent;
  std::uint8_t mxfp4_exponent;
  std::uint8_t finite;
};
static_assert(sizeof(EncodedF32) == 10);

struct EncodeF32 {
  using Input = std::uint32_t;
  using Output = EncodedF32;
  DSV4_HOST_DEVICE Output operator()(Input bits) const {
    const float x = f32_from_bits(bits);
    return {encode_bf16(x),
            encode_e2m1(x, E2m1Rounding::kNearestEven),
            encode_e2m1(x, E2m1Rounding::kHalfStep),
            encode_e4m3(x),
            encode_e4m3_nonsaturating(x),
            e8m0_ceil(x),
            e4m3_block_exponent(x),
            mxfp4_block_exponent(x),
            static_cast<std::uint8_t>(is_finite(x))};
  }
};

// FP32 bits, so that NaN compare too.
struct DecodedCode {
  std::uint32_t e2m1, e4m3, e8m0, bf16, nvfp4, mxfp4, e4m3_scaled;
};

// IEEE 754 leaves the NaN of a product open: the GPU gives 7FFFFFFF, the host an operand's.
DSV4_HOST_DEVICE std::uint32_t product_bits(float product) {
  return f32_magnitude_bits(product) > kF32InfinityBits ? kF32QuietNanBits : f32_bits(product);
}

struct SiluF32 {
  using Input = std::uint32_t;
  using Output = std::uint32_t;
  DSV4_HOST_DEVICE Output operator()(Input bits) const {
    return product_bits(silu(f32_from_bits(bits)));
  }
};

// A 16-bit word: decoded whole as BF16, as a code in its low and a block scale in its high byte.
struct DecodeWord {
  using Input = std::uint32_t;
  using Output = DecodedCode;
  DSV4_HOST_DEVICE Output operator()(Input word) const {
    const auto low = static_cast<std::uint8_t>(word);
    const auto high = static_cast<std::uint8_t>(word >> 8);
    return {f32_bits(decode_e2m1(low)),
            f32_bits(decode_e4m3(low)),
            f32_bits(decode_e8m0(low)),
            f32_bits(decode_bf16(static_cast<std::uint16_t>(word))),
            product_bits(decode_nvfp4(low, high, 0.013950892724096775f)),
            product_bits(decode_mxfp4(low, high)),
            product_bits(decode_e4m3_scaled(low, high))};
  }
};

// 128 values: eight NVFP4 blocks in both roundings, four MXFP4 blocks, two cache-row blocks and one
// activation block.
struct BlockInput {
  float x[128];
};
struct BlockOutput {
  std::uint8_t nvfp4[2][8][1 + kNvfp4BlockBytes];
  std::uint8_t mxfp4[4][1 + kMxfp4BlockBytes];
  std::uint8_t cache_row[2][1 + kCacheRowQuantBlock];
  std::uint8_t activation[1 + kActivationQuantBlock];
  std::uint8_t global_scale[4];
};
static_assert(sizeof(BlockOutput) == 144 + 68 + 130 + 129 + 4);

struct EncodeBlocks {
  using Input = BlockInput;
  using Output = BlockOutput;
  DSV4_HOST_DEVICE Output operator()(const Input& in) const {
    Output out{};
    const float global_scale = nvfp4_global_scale(amax(in.x, 128));
    for (int i = 0; i < 4; ++i) {
      out.global_scale[i] = static_cast<std::uint8_t>(f32_bits(global_scale) >> (8 * i));
    }
    for (int b = 0; b < 8; ++b) {
      const float* x = in.x + b * kNvfp4QuantBlock;
      out.nvfp4[0][b][0] =
          encode_nvfp4_block(x, global_scale, out.nvfp4[0][b] + 1, E2m1Rounding::kNearestEven);
      out.nvfp4[1][b][0] =
          encode_nvfp4_block(x, global_scale, out.nvfp4[1][b] + 1, E2m1Rounding::kHalfStep);
    }
    for (int b = 0; b < 4; ++b) {
      out.mxfp4[b][0] = encode_mxfp4_block(in.x + b * kMxfp4QuantBlock, out.mxfp4[b] + 1);
    }
    for (int b = 0; b < 2; ++b) {
      out.cache_row[b][0] = encode_e4m3_block(in.x + b * kCacheRowQuantBlock, kCacheRowQuantBlock,
                                              out.cache_row[b] + 1);
    }
    out.activation[0] = encode_e4m3_block(in.x, kActivationQuantBlock, out.activation + 1);
    return out;
  }
};

// CUDA's own conversions. NaN is left out: E2M1 has none, and the conventions differ.
struct VendorCodes {
  std::uint16_t bf16;
  std::uint8_t e2m1;
  std::uint8_t e4m3;
};

struct VendorEncode {
  using Input = std::uint32_t;
  using Output = VendorCodes;
  DSV4_HOST_DEVICE Output operator()(Input bits) const {
    const float x = f32_from_bits(bits);
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x)),
            static_cast<std::uint8_t>(__nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest) & 0xF),
            __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3)};
  }
};

template <class Function>
void expect_same_bits_as_host(CudaBackend& backend,
                              const std::vector<typename Function::Input>& in) {
  const auto got = cuda::apply_on_device<Function>(backend, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const typename Function::Output want = Function()(in[i]);
    ASSERT_EQ(std::memcmp(&want, &got[i], sizeof(want)), 0) << "input " << i;
  }
}

// The hard patterns, then 2^22 that an odd stride spreads over all of FP32.
std::vector<std::uint32_t> f32_patterns() {
  std::vector<std::uint32_t> patterns = hard_f32_patterns();
  for (std::uint32_t i = 0; i < (1u << 22); ++i) patterns.push_back(i * 2654435761u);
  return patterns;
}

// Finite blocks: half with values of like magnitude about a random power of two, half with any
// finite bits, and the first two all zero and all -0.
std::vector<BlockInput> block_inputs() {
  std::vector<BlockInput> blocks(20000);
  std::mt19937_64 generator(20);
  for (std::size_t b = 2; b < blocks.size(); ++b) {
    const auto base = static_cast<std::uint32_t>(8 + generator() % 236);
    for (float& x : blocks[b].x) {
      auto bits = static_cast<std::uint32_t>(generator());
      if (b % 2 == 0) {
        const std::uint32_t exponent = base + static_cast<std::uint32_t>(generator() % 8);
        bits = (bits & 0x807FFFFFu) | (exponent << kF32MantissaBits);
      }
      if ((bits & kF32InfinityBits) == kF32InfinityBits) bits &= ~0x40000000u;
      x = f32_from_bits(bits);
    }
  }
  for (float& x : blocks[1].x) x = -0.0f;
  return blocks;
}

using CudaNumerics = cuda::CudaTest;

TEST_F(CudaNumerics, EncodingFp32GivesTheHostsBits) {
  expect_same_bits_as_host<EncodeF32>(backend(), f32_patterns());
}

TEST_F(CudaNumerics, SiluGivesTheHostsBits) {
  expect_same_bits_as_host<SiluF32>(backend(), f32_patterns());
}

TEST_F(CudaNumerics, DecodingEveryCodeAndScaleGivesTheHostsBits) {
  std::vector<std::uint32_t> words(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) words[i] = i;
  expect_same_bits_as_host<DecodeWord>(backend(), words);
}

TEST_F(CudaNumerics, BlocksGiveTheHostsBytes) {
  expect_same_bits_as_host<EncodeBlocks>(backend(), block_inputs());
}

void expect_vendor_codes(const std::vector<std::uint32_t>& in,
                         const std::vector<VendorCodes>& vendor) {
  for (std::size_t i = 0; i < in.size(); ++i) {
    if ((in[i] & ~kF32SignMask) > kF32InfinityBits) continue;
    const float x = f32_from_bits(in[i]);
    ASSERT_EQ(encode_bf16(x), vendor[i].bf16) << std::hexfloat << x;
    ASSERT_EQ(encode_e2m1(x), vendor[i].e2m1) << std::hexfloat << x;
    ASSERT_EQ(encode_e4m3(x), vendor[i].e4m3) << std::hexfloat << x;
  }
}

TEST_F(CudaNumerics, TheDevicesOwnConversionsAgree) {
  const std::vector<std::uint32_t> in = f32_patterns();
  expect_vendor_codes(in, cuda::apply_on_device<VendorEncode>(backend(), in));
}

// CUDA's headers emulate the same conversions on the host: needs no device.
TEST(CudaHeaders, TheirHostConversionsAgree) {
  const std::vector<std::uint32_t> in = f32_patterns();
  std::vector<VendorCodes> vendor;
  vendor.reserve(in.size());
  for (const std::uint32_t bits : in) vendor.push_back(VendorEncode()(bits));
  expect_vendor_codes(in, vendor);
}

}  // namespace
}  // namespace dsv4
