// quantize_four_over_six_test.cc: the better of two block scales on every instruction set, also
// where the two are next to equally good. Rows and whole matrices: quantize_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cpu/encode.h"
#include "cpu/quantize_test_rows.h"
#include "testing/cases/quantize_cases.h"

namespace dsv4::testing {
namespace {

TEST(CpuFourOverSix, BlocksOnEveryInstructionSet) {
  const std::vector<float> values = heavy_tailed_values(31, 1 << 16);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float g : {0.01f, 1e-38f, 1e-44f, 2e38f}) {
    for (const E2m1Rounding rounding : kRoundings) {
      for (std::size_t begin = 0; begin < values.size(); begin += 16) {
        float x[16];
        for (std::size_t i = 0; i < 16; ++i) {
          x[i] = values[begin + i] * static_cast<float>(g / 0.01) * (begin % 9 == 0 ? 1e-5f : 1);
        }
        if (begin / 16 % 97 == 5) x[begin % 11] = begin % 2 == 0 ? infinity : std::nanf("");
        if (begin / 16 % 89 == 5) std::fill(x, x + 16, -0.0f);
        std::uint8_t want[8], got[8];
        const std::uint8_t want_scale = encode_nvfp4_block_four_over_six(x, g, want, rounding);
        for (const std::int64_t target : all_targets()) {
          ASSERT_EQ(
              cpu::encode_kernels(target).encode_nvfp4_block_four_over_six(x, g, got, rounding),
              want_scale)
              << hwy::TargetName(target) << " block " << begin / 16 << " g " << g;
          ASSERT_EQ(std::memcmp(got, want, 8), 0)
              << hwy::TargetName(target) << " block " << begin / 16 << " g " << g;
        }
      }
    }
  }
}

// The squared errors of both candidates of a block, as the contract has them, and added up in FP32.
struct CandidateErrors {
  double exact[2];
  float in_fp32[2];

  // Of both together; 0 where none is off.
  double distance() const {
    const double sum = exact[0] + exact[1];
    return sum > 0 ? std::fabs(exact[0] - exact[1]) / sum : 0;
  }
  bool fools_fp32() const { return (exact[1] < exact[0]) != (in_fp32[1] < in_fp32[0]); }
};

CandidateErrors errors_of_candidates(const std::uint16_t* bits, float g) {
  CandidateErrors errors = {};
  float x[16];
  for (int i = 0; i < 16; ++i) x[i] = decode_bf16(bits[i]);
  const float ratio = amax(x, 16) / (kE2m1Max * g);
  for (int k = 0; k < 2; ++k) {
    const std::uint8_t scale = encode_e4m3(k == 0 ? ratio : 1.5f * ratio);
    std::uint8_t codes[8];
    encode_nvfp4_codes(x, scale, g, codes);
    errors.exact[k] = nvfp4_block_error(x, codes, scale, g);
    float quarters[4], squares[16];
    for (int i = 0; i < 16; ++i) {
      const float error = x[i] - decode_nvfp4(unpack_e2m1(codes, i), scale, g);
      squares[i] = error * error;
    }
    for (int q = 0; q < 4; ++q) {
      const float* const of = squares + 4 * q;
      quarters[q] = (of[0] + of[2]) + (of[1] + of[3]);
    }
    errors.in_fp32[k] = (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
  }
  return errors;
}

// A kernel may compare errors in FP32 where that is sure to decide as FP64 does. Blocks are moved
// to where it is not.
TEST(CpuFourOverSix, CandidatesThatAreNextToEqual) {
  const float g = 0.013f;
  std::vector<std::uint16_t> x;
  for (const float value : heavy_tailed_values(33, 16 * 100)) x.push_back(encode_bf16(value));
  std::mt19937 random(33);
  int fooled = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += 16) {
    std::uint16_t* const block = x.data() + begin;
    CandidateErrors best = errors_of_candidates(block, g);
    for (int i = 0; i < 40000 && !best.fools_fp32(); ++i) {
      std::uint16_t moved[16];
      std::copy_n(block, 16, moved);
      for (int k = 0; k < 3; ++k) moved[random() % 16] ^= static_cast<std::uint16_t>(random() % 32);
      const CandidateErrors errors = errors_of_candidates(moved, g);
      if (!errors.fools_fp32() && !(errors.distance() < best.distance())) continue;
      best = errors;
      std::copy_n(moved, 16, block);
    }
    fooled += best.fools_fp32();
  }
  EXPECT_GT(fooled, 2);
  expect_numerics_bytes(x, g, E2m1Rounding::kNearestEven);
  // The same, so small that squares underflow in FP32, and so large that they are infinite.
  for (const int exponent : {-60, -75, 61, 66}) {
    std::vector<std::uint16_t> scaled;
    for (const std::uint16_t bits : x) {
      scaled.push_back(encode_bf16(std::ldexp(decode_bf16(bits), exponent)));
    }
    expect_numerics_bytes(scaled, std::ldexp(g, exponent), E2m1Rounding::kNearestEven);
  }
}

}  // namespace
}  // namespace dsv4::testing
