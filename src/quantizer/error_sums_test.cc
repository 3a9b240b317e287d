// error_sums_test.cc: the sums of every instruction set have the bits of plain lanes, at every
// length and magnitude that FP32 has.
#include "quantizer/error_sums.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "numerics/bf16.h"
#include "numerics/nvfp4.h"
#include "testing/generators.h"

namespace dsv4 {
namespace {

struct NamedKernels {
  std::string name;
  const ErrorKernels& kernels;
};
std::vector<NamedKernels> all_kernels() {
  std::vector<NamedKernels> all;
  const std::int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_BASELINE_SCALAR;
  for (std::int64_t rest = usable; rest != 0; rest &= rest - 1) {
    all.push_back({hwy::TargetName(rest & -rest), error_kernels(rest & -rest)});
  }
  return all;
}

double halving_sum(std::vector<double> lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}
double pairing_sum(const std::vector<double>& l) {
  return ((l[0] + l[4]) + (l[1] + l[5])) + ((l[2] + l[6]) + (l[3] + l[7]));
}

// The largest finite number, both zeros, subnormals, and values whose squares leave FP32.
std::vector<float> hard_values(std::uint64_t seed, std::size_t count) {
  const float special[] = {0.0f,   -0.0f,   3.4028235e38f, -3.4028235e38f,
                           1e-45f, -1e-38f, 1e30f,         1e-30f};
  testing::Random random(seed);
  std::vector<float> values(count);
  for (float& x : values) {
    const auto pick = static_cast<std::size_t>(random.index(16));
    x = pick < 8 ? special[pick] : static_cast<float>(random.heavy_tailed());
  }
  return values;
}

// All scales but NaN, all codes, a third of the values exact; global scales that make subnormals.
template <class Source>
void expect_errors(const NamedKernels& set, ErrorKernels::BlocksKernel<Source> kernel,
                   float global_scale, std::size_t num_blocks) {
  SCOPED_TRACE(fmt::format("{} {} {}", set.name, global_scale, num_blocks));
  const std::size_t n = 16 * num_blocks;
  testing::Random random(3);
  std::vector<std::uint8_t> codes(n / 2), scales(num_blocks);
  for (std::uint8_t& pair : codes) pair = static_cast<std::uint8_t>(random.bits());
  for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(random.index(127));
  std::vector<float> guards(256, 2.5f);
  std::fill_n(guards.begin(), 20, -1.0f);
  const std::vector<float> hard = hard_values(1, n);
  std::vector<Source> x(n);
  std::vector<double> dot(8);
  RowErrors want;
  std::vector<BlockErrors> want_blocks(num_blocks), got_blocks(num_blocks);
  for (std::size_t b = 0; b < num_blocks; ++b) {
    std::vector<double> source(8), error(8);
    for (std::size_t i = 16 * b; i < 16 * b + 16; ++i) {
      const float back = decode_nvfp4(unpack_e2m1(codes.data(), static_cast<std::int64_t>(i)),
                                      scales[b], global_scale);
      float value = i % 3 == 0 ? back : hard[i];
      if constexpr (std::is_same_v<Source, float>) {
        x[i] = value;
      } else {
        x[i] = f32_bits(value) >> 16;
        value = decode_bf16(x[i]);
      }
      const double from = value, difference = static_cast<double>(back) - from;
      const std::size_t lane = i % 16 / 2;
      source[lane] = std::fma(from, from, source[lane]);
      error[lane] = std::fma(difference, difference, error[lane]);
      dot[lane] = std::fma(from, static_cast<double>(back), dot[lane]);
      want.exact_values += f32_bits(value) == f32_bits(back) ? 1 : 0;
      want_blocks[b].is_beyond |= std::fabs(value) > guards[scales[b]];
    }
    want.source_squares += want_blocks[b].source_squares = pairing_sum(source);
    want.error_squares += want_blocks[b].error_squares = pairing_sum(error);
  }
  want.dot = pairing_sum(dot);
  const RowErrors got = kernel(x.data(), codes.data(), scales.data(), global_scale, guards.data(),
                               static_cast<std::int64_t>(num_blocks), got_blocks.data());
  EXPECT_EQ(got.source_squares, want.source_squares);
  EXPECT_EQ(got.error_squares, want.error_squares);
  EXPECT_EQ(got.dot, want.dot);
  EXPECT_EQ(got.exact_values, want.exact_values);
  for (std::size_t b = 0; b < num_blocks; ++b) {
    EXPECT_EQ(got_blocks[b].source_squares, want_blocks[b].source_squares) << b;
    EXPECT_EQ(got_blocks[b].error_squares, want_blocks[b].error_squares) << b;
    EXPECT_EQ(got_blocks[b].is_beyond, want_blocks[b].is_beyond) << b;
  }
}

TEST(ErrorSums, OfBlocksAreTheSameBitsOnEveryInstructionSet) {
  for (const NamedKernels& set : all_kernels()) {
    for (const float global_scale : {1.0f, 0.3f, 1e-40f, 1e35f}) {
      for (const std::size_t num_blocks : {0u, 1u, 7u, 300u}) {
        expect_errors<float>(set, set.kernels.f32_errors, global_scale, num_blocks);
        expect_errors<std::uint16_t>(set, set.kernels.bf16_errors, global_scale, num_blocks);
      }
    }
  }
}

TEST(ErrorSums, OfCodesAreTheSameBitsOnEveryInstructionSet) {
  for (const NamedKernels& set : all_kernels()) {
    SCOPED_TRACE(set.name);
    for (const std::size_t num_blocks : {0u, 1u, 7u, 8u, 9u, 31u, 256u}) {
      testing::Random random(num_blocks);
      std::vector<std::uint8_t> codes(8 * num_blocks);
      for (std::uint8_t& pair : codes) pair = static_cast<std::uint8_t>(random.bits());
      if (num_blocks > 4) std::fill_n(codes.begin() + 8, 8, std::uint8_t{0xFF});  // largest sum
      std::vector<double> weights(num_blocks), lanes(8);
      for (std::size_t b = 0; b < num_blocks; ++b) {
        weights[b] = std::ldexp(random.uniform(1, 2), static_cast<int>(random.index(500)) - 250);
        double sum = 0;
        for (std::size_t i = 0; i < 16; ++i) {
          const double code =
              decode_e2m1(unpack_e2m1(codes.data() + 8 * b, static_cast<std::int64_t>(i)));
          sum += 4 * code * code;
        }
        lanes[b % 8] += sum * weights[b];
      }
      EXPECT_EQ(set.kernels.code_squares(codes.data(), weights.data(),
                                         static_cast<std::int64_t>(num_blocks)),
                halving_sum(lanes));
    }
  }
}

}  // namespace
}  // namespace dsv4
