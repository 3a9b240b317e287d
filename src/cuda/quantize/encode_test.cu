// The fast encoders on the device against numerics/, over every input where that is possible: the
// proof that docs/kernels/quantize.md refers to.
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/launch.h"
#include "cuda/quantize/encode.cuh"
#include "cuda/quantize/sources.cuh"

namespace dsv4::cuda {
namespace {

using QuantizeEncoders = CudaTest;

// How many inputs gave other bits, and the first of them.
struct Differences {
  unsigned long long count;
  unsigned long long first;
};

template <class Check>
__global__ void count_differences(Check check, std::uint64_t n, Differences* differences) {
  const std::uint64_t stride = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t i = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    if (check(i)) continue;
    atomicAdd(&differences->count, 1ull);
    atomicMin(&differences->first, static_cast<unsigned long long>(i));
  }
}

// Runs check(i) for all i below n on the device; it must hold for each.
template <class Check>
void expect_all(CudaBackend& backend, std::uint64_t n, Check check) {
  const DeviceBuffer buffer = backend.allocate(sizeof(Differences));
  Differences differences = {0, ~0ull};
  backend.copy_to_device(buffer.data(), &differences, sizeof(differences), {});
  backend.synchronize({});
  launch("count_differences", count_differences<Check>, {.grid = 132 * 16, .block = 256}, nullptr,
         check, n, buffer.as<Differences>());
  ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  backend.copy_to_host(&differences, buffer.data(), sizeof(differences), {});
  backend.synchronize({});
  EXPECT_EQ(differences.count, 0u)
      << "of " << n << ", the first is " << std::hex << differences.first;
}

constexpr std::uint64_t kAllFloats = std::uint64_t{1} << 32;
constexpr std::uint64_t kMantissas = std::uint64_t{1} << kF32MantissaBits;

__device__ bool same_or_both_nan(float a, float b) {
  const bool a_is_nan = f32_magnitude_bits(a) > kF32InfinityBits;
  const bool b_is_nan = f32_magnitude_bits(b) > kF32InfinityBits;
  return a_is_nan || b_is_nan ? a_is_nan == b_is_nan : f32_bits(a) == f32_bits(b);
}

struct ReciprocalIsRounded {
  int exponent;
  __device__ bool operator()(std::uint64_t mantissa) const {
    const float x =
        f32_from_bits(static_cast<std::uint32_t>(exponent + kF32Bias) << kF32MantissaBits |
                      static_cast<std::uint32_t>(mantissa));
    return f32_bits(reciprocal(x)) == f32_bits(__fdiv_rn(1.0f, x));
  }
};

TEST_F(QuantizeEncoders, ReciprocalsAreCorrectlyRounded) {
  for (const int exponent : {-61, -1, 0, 1, 61, 125}) {
    SCOPED_TRACE(exponent);
    expect_all(backend(), kMantissas, ReciprocalIsRounded{exponent});
  }
}

// Codes change where the quotient passes a tie of E2M1. Every divisor of one binade, every tie, and
// the floats within four units of the product of both: what lies between two of those has the code
// of both, and other binades only scale by powers of two.
struct CodesNearTies {
  int exponent;
  __device__ bool operator()(std::uint64_t i) const {
    constexpr float kTies[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f};
    const auto divisor_bits = static_cast<std::uint32_t>(exponent + kF32Bias) << kF32MantissaBits |
                              static_cast<std::uint32_t>(i >> 3);
    const float divisor = f32_from_bits(divisor_bits);
    const std::uint32_t middle = f32_bits(divisor * kTies[i & 7]);
    const Divisor twice(2 * divisor);
    for (std::uint32_t bits = middle - 4; bits <= middle + 4; ++bits) {
      const float x = f32_from_bits(bits);
      const std::uint32_t code = e2m1_magnitude(quotient(x, twice)) - kCodeBits;
      if (code != encode_nvfp4(x, divisor)) return false;
    }
    return true;
  }
};

TEST_F(QuantizeEncoders, CodesAtEveryTieOfEveryDivisorAreThoseOfTheRoundedQuotient) {
  for (const int exponent : {-50, -7, 0, 49}) {
    SCOPED_TRACE(exponent);
    expect_all(backend(), 8 * kMantissas, CodesNearTies{exponent});
  }
}

// The same for E4M3 block scales: the ties are odd 16ths in a binade of its normal and odd halves
// among its subnormal codes.
struct ScalesNearTies {
  int exponent;
  __device__ bool operator()(std::uint64_t i) const {
    const std::uint32_t tie_idx = i & 15;
    const float tie = tie_idx < 8 ? (17 + 2 * tie_idx) * 0x1p-4f : (2 * tie_idx - 15) * 0x1p-10f;
    const float global_scale =
        f32_from_bits(static_cast<std::uint32_t>(exponent + kF32Bias) << kF32MantissaBits |
                      static_cast<std::uint32_t>(i >> 4));
    const float six_global_scales = kE2m1Max * global_scale;
    const Divisor divisor(six_global_scales);
    const std::uint32_t middle = f32_bits(six_global_scales * tie);
    for (std::uint32_t bits = middle - 4; bits <= middle + 4; ++bits) {
      const float amax = f32_from_bits(bits);
      if (hardware_e4m3(quotient(amax, divisor)) != nvfp4_block_scale(amax, global_scale)) {
        return false;
      }
    }
    return true;
  }
};

TEST_F(QuantizeEncoders, BlockScalesAtEveryTieOfEveryGlobalScale) {
  for (const int exponent : {-40, 0, 39}) {
    SCOPED_TRACE(exponent);
    expect_all(backend(), 16 * kMantissas, ScalesNearTies{exponent});
  }
}

// Blocks of sixteen values under a global scale: all of any bits, or all near 1 and the block at
// most 2^7 larger, so that the fast way takes them.
struct BlocksOfAnyBits {
  bool is_near_one;
  __device__ bool operator()(std::uint64_t i) const {
    std::uint64_t state = i * 0x9E3779B97F4A7C15ull + 1;
    const auto next = [&state] {
      state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9ull;
      state ^= state >> 27;
      return static_cast<std::uint32_t>(state >> 16);
    };
    const auto near_one = [&](std::uint32_t bits) {
      return (bits & 0x807FFFFFu) | ((120u + (bits >> 23 & 15u)) << kF32MantissaBits);
    };
    const std::uint32_t scale_bits = next() & ~kF32SignMask;
    const float global_scale = f32_from_bits(is_near_one ? near_one(scale_bits) : scale_bits);
    F32Chunk f32;
    Bf16Chunk bf16;
    for (int k = 0; k < kChunk; ++k) {
      std::uint32_t bits = next();
      if (is_near_one) bits = near_one(bits);
      if ((bits & kF32InfinityBits) == kF32InfinityBits) bits &= ~0x40000000u;
      f32.set(k, f32_from_bits(bits));
      bf16.set(k, Bf16{static_cast<std::uint16_t>(bits >> 16)});
    }
    return is_right(f32, global_scale) && is_right(bf16, global_scale);
  }
  template <class Chunk>
  __device__ bool is_right(const Chunk& chunk, float global_scale) const {
    float x[kChunk];
    for (int k = 0; k < kChunk; ++k) x[k] = chunk.value(k);
    std::uint8_t want[kNvfp4BlockBytes];
    const std::uint8_t want_scale = encode_nvfp4_block(x, global_scale, want);
    const Nvfp4Block got =
        fast_nvfp4_block(chunk, chunk.amax(), Nvfp4Row(global_scale, E2m1Rounding::kNearestEven));
    if (!got.is_encoded) return !is_near_one || want_scale == 0;
    for (int k = 0; k < kNvfp4BlockBytes; ++k) {
      if (want[k] != ((k < 4 ? got.codes.x : got.codes.y) >> (8 * (k % 4)) & 255u)) return false;
    }
    return got.block_scale == want_scale;
  }
};

TEST_F(QuantizeEncoders, BlocksOfAnyBits) {
  for (const bool is_near_one : {false, true}) {
    expect_all(backend(), std::uint64_t{1} << 26, BlocksOfAnyBits{is_near_one});
  }
}

// A block that the fast way must leave alone.
struct LeftToNumerics {
  float value;
  float global_scale;
  E2m1Rounding rounding;
  __device__ bool operator()(std::uint64_t) const {
    F32Chunk chunk;
    chunk.set(5, value);
    return !fast_nvfp4_block(chunk, chunk.amax(), Nvfp4Row(global_scale, rounding)).is_encoded;
  }
};

TEST_F(QuantizeEncoders, ExtremeScalesAndHalfStepRoundingAreLeftToNumerics) {
  const float infinity = f32_from_bits(kF32InfinityBits);
  constexpr E2m1Rounding kEven = E2m1Rounding::kNearestEven;
  const LeftToNumerics blocks[] = {{0, 1, kEven},
                                   {-0.0f, 1, kEven},
                                   {0x1p-12f, 1, kEven},
                                   {infinity, 1, kEven},
                                   {1, infinity, kEven},
                                   {1, 0, kEven},
                                   {1, 0x1p-41f, kEven},
                                   {1, 0x1.1p40f, kEven},
                                   {0x1p60f, 1, kEven},
                                   {1e-40f, 1e-43f, kEven},
                                   {1, 1, E2m1Rounding::kHalfStep}};
  for (const LeftToNumerics& block : blocks) {
    SCOPED_TRACE(testing::Message() << block.value << " under " << block.global_scale);
    expect_all(backend(), 1, block);
  }
}

struct FastGlobalScale {
  __device__ bool operator()(std::uint64_t bits) const {
    const float amax = f32_from_bits(static_cast<std::uint32_t>(bits));
    return f32_bits(fast_global_scale(amax)) == f32_bits(nvfp4_global_scale(amax));
  }
};

TEST_F(QuantizeEncoders, GlobalScalesOfEveryAmax) {
  expect_all(backend(), kF32InfinityBits + std::uint64_t{1}, FastGlobalScale{});
}

struct Mxfp4CodesOfAnyFloat {
  std::uint8_t block_scale;
  __device__ bool operator()(std::uint64_t bits) const {
    const float x = f32_from_bits(static_cast<std::uint32_t>(bits));
    if (!is_finite(x)) return true;
    F32Chunk chunk;
    chunk.set(3, x);
    const std::uint32_t code = mxfp4_codes(chunk, block_scale).x >> 12 & 15u;
    return code == encode_mxfp4(x, block_scale);
  }
};

TEST_F(QuantizeEncoders, Mxfp4CodesOfEveryFloat) {
  for (const int block_scale : {1, 2, 100, 127, 128, 252, 253}) {
    SCOPED_TRACE(block_scale);
    expect_all(backend(), kAllFloats, Mxfp4CodesOfAnyFloat{static_cast<std::uint8_t>(block_scale)});
  }
}

struct HardwareE4m3 {
  __device__ bool operator()(std::uint64_t bits) const {
    const float x = f32_from_bits(static_cast<std::uint32_t>(bits));
    return f32_magnitude_bits(x) > kF32InfinityBits || hardware_e4m3(x) == encode_e4m3(x);
  }
};

struct HardwareDecodedE4m3 {
  __device__ bool operator()(std::uint64_t code) const {
    return same_or_both_nan(hardware_decode_e4m3(static_cast<std::uint8_t>(code)),
                            decode_e4m3(static_cast<std::uint8_t>(code)));
  }
};

TEST_F(QuantizeEncoders, TheHardwaresE4m3IsOursForEveryFloatAndCode) {
  expect_all(backend(), kAllFloats, HardwareE4m3{});
  expect_all(backend(), 256, HardwareDecodedE4m3{});
}

struct E4m3CodesOfAnyFloat {
  std::uint8_t block_scale;
  __device__ bool operator()(std::uint64_t bits) const {
    const float x = f32_from_bits(static_cast<std::uint32_t>(bits));
    if (!is_finite(x)) return true;
    F32Chunk chunk;
    chunk.set(6, x);
    const std::uint32_t code = e4m3_codes(chunk, block_scale).y >> 16 & 255u;
    return code == encode_e4m3_scaled(x, block_scale);
  }
};

TEST_F(QuantizeEncoders, E4m3CodesOfEveryFloat) {
  for (const int block_scale : {105, 119, 127, 128, 246, 247}) {  // 105: the floor of the amax
    SCOPED_TRACE(block_scale);
    expect_all(backend(), kAllFloats, E4m3CodesOfAnyFloat{static_cast<std::uint8_t>(block_scale)});
  }
}

struct FastSwigluOfAnyGate {
  float up;
  float limit;
  __device__ bool operator()(std::uint64_t bits) const {
    const float gate = f32_from_bits(static_cast<std::uint32_t>(bits));
    if (f32_magnitude_bits(gate) > kF32InfinityBits) return true;
    const float no_clamp = f32_from_bits(kF32InfinityBits);
    return same_or_both_nan(fast_swiglu(gate, up, limit > 0 ? limit : no_clamp, 0.7f),
                            swiglu(gate, up, limit, 0.7f));
  }
};

TEST_F(QuantizeEncoders, FastSwigluOfEveryGateIsThatOfNumerics) {
  expect_all(backend(), kAllFloats, FastSwigluOfAnyGate{1, 0});
  expect_all(backend(), kAllFloats, FastSwigluOfAnyGate{-20, 10});
  expect_all(backend(), kAllFloats, FastSwigluOfAnyGate{3, 100});
}

}  // namespace
}  // namespace dsv4::cuda
