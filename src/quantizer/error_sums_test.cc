// error_sums_test.cc: the sums of every instruction set have the bits of plain lanes, at every
// length and magnitude that FP32 has.
#include "quantizer/error_sums.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <string>
#include <vector>

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

double tree_sum(std::vector<double> lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
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

void expect_block(const BlockErrors& got, const float* x, const float* decoded) {
  std::vector<double> source(8), error(8);
  std::int32_t exact = 0;
  float amax = 0;
  for (std::size_t i = 0; i < 16; ++i) {
    const double value = x[i], difference = static_cast<double>(decoded[i]) - value;
    source[i % 8] = std::fma(value, value, source[i % 8]);
    error[i % 8] = std::fma(difference, difference, error[i % 8]);
    exact += f32_bits(x[i]) == f32_bits(decoded[i]) ? 1 : 0;
    amax = std::fmax(amax, std::fabs(x[i]));
  }
  EXPECT_EQ(got.source_squares, tree_sum(source));
  EXPECT_EQ(got.error_squares, tree_sum(error));
  EXPECT_EQ(got.source_amax, amax);
  EXPECT_EQ(got.exact_values, exact);
}

// All scales but NaN, all codes, a third of the values exact; global scales that make subnormals.
TEST(ErrorSums, OfBlocksAreTheSameBitsOnEveryInstructionSet) {
  for (const NamedKernels& set : all_kernels()) {
    for (const float global_scale : {1.0f, 0.3f, 1e-40f, 1e35f}) {
      for (const std::int64_t num_blocks : {0, 1, 7, 300}) {
        SCOPED_TRACE(fmt::format("{} {} {}", set.name, global_scale, num_blocks));
        const auto n = static_cast<std::size_t>(16 * num_blocks);
        testing::Random random(3);
        std::vector<std::uint8_t> codes(n / 2), scales(n / 16);
        for (std::uint8_t& pair : codes) pair = static_cast<std::uint8_t>(random.bits());
        for (std::uint8_t& scale : scales) scale = static_cast<std::uint8_t>(random.index(127));
        std::vector<float> x = hard_values(1, n), y(n);
        for (std::size_t i = 0; i < n; ++i) {
          y[i] = decode_nvfp4(unpack_e2m1(codes.data(), static_cast<std::int64_t>(i)),
                              scales[i / 16], global_scale);
          if (i % 3 == 0) x[i] = y[i];
        }
        std::vector<BlockErrors> got(static_cast<std::size_t>(num_blocks));
        std::vector<double> dot(8);
        for (std::size_t i = 0; i < n; ++i)
          dot[i % 8] = std::fma(double{x[i]}, double{y[i]}, dot[i % 8]);
        EXPECT_EQ(set.kernels.block_errors(x.data(), codes.data(), scales.data(), global_scale,
                                           num_blocks, got.data()),
                  tree_sum(dot));
        for (std::size_t b = 0; b < got.size(); ++b) {
          expect_block(got[b], x.data() + 16 * b, y.data() + 16 * b);
        }
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
                tree_sum(lanes));
    }
  }
}

}  // namespace
}  // namespace dsv4
