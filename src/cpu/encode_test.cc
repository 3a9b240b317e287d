// The encoders of every instruction set against numerics/, bit by bit: every place of a number
// between two codes, every block scale, what is not finite, and lengths that fill no register.
#include "cpu/encode.h"

#include <gtest/gtest.h>

#include <limits>

#include "cpu/cpu_backend.h"
#include "cpu/targets.h"
#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "testing/comparator.h"
#include "testing/generators.h"

namespace dsv4::testing {
namespace {

struct NamedKernels {
  std::string name;
  const cpu::EncodeKernels& kernels;
};
std::vector<NamedKernels> all_kernels() {
  std::vector<NamedKernels> all;
  const std::int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_BASELINE_SCALAR;
  for (std::int64_t rest = usable; rest != 0; rest &= rest - 1) {
    all.push_back({hwy::TargetName(rest & -rest), cpu::encode_kernels(rest & -rest)});
  }
  return all;
}

// Every upper half of an FP32 with the lower halves that hold ties and their neighbours.
std::vector<float> all_places() {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(f32_from_bits(upper << 16 | lower));
    }
  }
  return values;
}

// The values that a block with largest magnitude `amax` may hold, in blocks of n whose first
// element is `amax`, the last one filled up with zeros.
std::vector<float> blocks_below(const std::vector<float>& values, float amax, std::size_t n) {
  std::vector<float> blocks;
  for (const float value : values) {
    if (!(std::fabs(value) <= amax)) continue;
    if (blocks.size() % n == 0) blocks.push_back(amax);
    blocks.push_back(value);
  }
  while (blocks.size() % n != 0) blocks.push_back(0.0f);
  return blocks;
}

// What encode_row and round_row do to one block, with numerics/ alone.
struct Expected {
  std::uint8_t block_scale;
  std::vector<std::uint8_t> codes;
  std::vector<float> rounded;
};
Expected expected_e4m3(const float* x, int n) {
  Expected e{0, std::vector<std::uint8_t>(n), std::vector<float>(n)};
  e.block_scale = encode_e4m3_block(x, n, e.codes.data());
  decode_e4m3_block(e.codes.data(), n, e.block_scale, e.rounded.data());
  return e;
}
Expected expected_mxfp4(const float* x) {
  Expected e{0, std::vector<std::uint8_t>(kMxfp4BlockBytes), std::vector<float>(kMxfp4QuantBlock)};
  e.block_scale = encode_mxfp4_block(x, e.codes.data());
  for (int i = 0; i < kMxfp4QuantBlock; ++i) {
    const std::uint8_t code = i % 2 == 0 ? e.codes[i / 2] & 0xF : e.codes[i / 2] >> 4;
    e.rounded[i] = decode_mxfp4(code, e.block_scale);
  }
  return e;
}

void expect_e4m3(const cpu::EncodeKernels& kernels, const float* x, int n) {
  const Expected want = expected_e4m3(x, n);
  std::vector<std::uint8_t> codes(n);
  ASSERT_EQ(kernels.encode_e4m3_block(x, n, codes.data()), want.block_scale);
  ASSERT_EQ(codes, want.codes);
  std::vector<float> rounded(x, x + n);
  kernels.round_e4m3_block(rounded.data(), n);
  ASSERT_TRUE(compare_bits(rounded, want.rounded));
}
void expect_mxfp4(const cpu::EncodeKernels& kernels, const float* x) {
  const Expected want = expected_mxfp4(x);
  std::vector<std::uint8_t> codes(kMxfp4BlockBytes);
  ASSERT_EQ(kernels.encode_mxfp4_block(x, codes.data()), want.block_scale);
  ASSERT_EQ(codes, want.codes);
  std::vector<float> rounded(x, x + kMxfp4QuantBlock);
  kernels.round_mxfp4_block(rounded.data());
  ASSERT_TRUE(compare_bits(rounded, want.rounded));
}

TEST(CpuEncode, EveryPlaceBetweenTwoCodes) {
  const std::vector<float> places = all_places();
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    const std::vector<float> e4m3 = blocks_below(places, 448.0f, 64);
    for (std::size_t i = 0; i < e4m3.size(); i += 64) {
      ASSERT_NO_FATAL_FAILURE(expect_e4m3(set.kernels, e4m3.data() + i, 64));
    }
    const std::vector<float> mxfp4 = blocks_below(places, 6.0f, 32);
    for (std::size_t i = 0; i < mxfp4.size(); i += 32) {
      ASSERT_NO_FATAL_FAILURE(expect_mxfp4(set.kernels, mxfp4.data() + i));
    }
  }
}

// Down to zero and up to the largest FP32, where codes decode to infinity.
TEST(CpuEncode, EveryBlockScale) {
  const std::vector<float> normal = normal_values(3, 64);
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    for (std::uint32_t bits = 0; bits < 0x7F800000u; bits += 0x00200001u) {
      std::vector<float> x;
      for (const float value : normal) x.push_back(f32_from_bits(bits) * (value / 4));
      x[7] = f32_from_bits(bits);
      x[8] = -0.0f;
      for (float& value : x) {
        if (!(std::fabs(value) <= f32_from_bits(bits))) value = 0;
      }
      ASSERT_NO_FATAL_FAILURE(expect_e4m3(set.kernels, x.data(), 64));
      ASSERT_NO_FATAL_FAILURE(expect_mxfp4(set.kernels, x.data()));
    }
    std::vector<float> largest(64, std::numeric_limits<float>::max());
    expect_e4m3(set.kernels, largest.data(), 64);
    expect_mxfp4(set.kernels, largest.data());
  }
}

TEST(CpuEncode, BlocksOfAnyLength) {
  const std::vector<float> x = heavy_tailed_values(5, 64);
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    for (int n = 0; n <= 64; ++n) {
      ASSERT_NO_FATAL_FAILURE(expect_e4m3(set.kernels, x.data(), n));
      EXPECT_EQ(set.kernels.amax(x.data(), n), amax(x.data(), n));
    }
  }
}

TEST(CpuEncode, BlocksThatAreNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    for (const float bad : {infinity, -infinity, nan, -nan}) {
      for (const std::size_t place : {0, 15, 16, 31, 40}) {
        std::vector<float> x = normal_values(4, 64);
        x[place] = bad;
        ASSERT_NO_FATAL_FAILURE(expect_e4m3(set.kernels, x.data(), 64));
        ASSERT_NO_FATAL_FAILURE(expect_mxfp4(set.kernels, x.data()));
      }
    }
  }
}

TEST(CpuEncode, Bf16OfEveryPlaceAndNan) {
  const std::vector<float> places = all_places();
  std::vector<std::uint16_t> want;
  for (const float value : places) want.push_back(encode_bf16(value));
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    std::vector<std::byte> got(2 * places.size() + 1);  // at an odd address
    set.kernels.encode_bf16_values(places.data(), static_cast<std::int64_t>(places.size()),
                                   got.data() + 1);
    EXPECT_EQ(std::memcmp(got.data() + 1, want.data(), 2 * want.size()), 0);
  }
}

TEST(CpuEncode, E4m3ValuesUnderAnyDivisor) {
  const std::vector<float> x = heavy_tailed_values(6, 67);
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    for (const float divisor : {1e-4f / 448, 0.3f, 1.0f, 1e30f}) {
      std::vector<std::uint8_t> want, got(x.size());
      for (const float value : x) want.push_back(encode_e4m3(value / divisor));
      set.kernels.encode_e4m3_values(x.data(), 67, divisor, got.data());
      EXPECT_EQ(got, want);
    }
  }
}

// One set of bits from all, at every width; what it computes, ops/kv_write_test.cc checks.
TEST(CpuEncode, HadamardHasOneResult) {
  for (std::int64_t n = 1; n <= 1024; n *= 2) {
    const std::vector<float> x = heavy_tailed_values(7, n);
    std::vector<double> scratch(x.size());
    std::vector<float> want;
    for (const NamedKernels& set : all_kernels()) {
      std::vector<float> got = x;
      set.kernels.hadamard(got.data(), n, scratch.data());
      if (want.empty()) want = got;
      EXPECT_TRUE(compare_bits(got, want)) << set.name << ", " << n;
    }
  }
}

}  // namespace
}  // namespace dsv4::testing
