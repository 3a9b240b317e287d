// What E2m1Rounding::kHalfStep costs against kNearestEven in NVFP4: the figures of
// docs/numerics.md.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

constexpr int kNumValues = 1 << 20;

// Standard normal by Box-Muller: std::normal_distribution differs between standard libraries.
std::vector<float> normal_values(std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  const auto uniform = [&generator] {  // (0, 1]
    return (static_cast<double>(generator() >> 11) + 1.0) * 0x1p-53;
  };
  constexpr double kTwoPi = 6.283185307179586;
  std::vector<float> x(kNumValues);
  for (int i = 0; i < kNumValues; i += 2) {
    const double radius = std::sqrt(-2.0 * std::log(uniform()));
    const double angle = kTwoPi * uniform();
    x[i] = static_cast<float>(radius * std::cos(angle));
    x[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  return x;
}

struct Encoded {
  std::vector<float> values;
  double relative_rms_error;  // ||decoded - x|| / ||x||
};

Encoded encode_and_decode(const std::vector<float>& x, E2m1Rounding rounding) {
  const float global_scale = nvfp4_global_scale(amax(x.data(), kNumValues));
  Encoded result;
  result.values.reserve(x.size());
  double error = 0.0;
  double norm = 0.0;
  for (int begin = 0; begin < kNumValues; begin += kNvfp4QuantBlock) {
    std::uint8_t codes[kNvfp4BlockBytes];
    const std::uint8_t scale = encode_nvfp4_block(&x[begin], global_scale, codes, rounding);
    for (int i = 0; i < kNvfp4QuantBlock; ++i) {
      const float value = decode_nvfp4(unpack_e2m1(codes, i), scale, global_scale);
      const double difference = double{value} - double{x[begin + i]};
      error += difference * difference;
      norm += double{x[begin + i]} * double{x[begin + i]};
      result.values.push_back(value);
    }
  }
  result.relative_rms_error = std::sqrt(error / norm);
  return result;
}

TEST(HalfStep, NeverComesCloserThanNearestEven) {
  const std::vector<float> x = normal_values(1);
  const Encoded nearest = encode_and_decode(x, E2m1Rounding::kNearestEven);
  const Encoded half = encode_and_decode(x, E2m1Rounding::kHalfStep);
  for (int i = 0; i < kNumValues; ++i) {
    const double excess = std::fabs(double{half.values[i]} - double{x[i]}) -
                          std::fabs(double{nearest.values[i]} - double{x[i]});
    // x / p is rounded before its code is chosen, so a quotient within an ulp of a tie may go
    // either way: the excess may be negative by ulps of x, not by a part of a step.
    ASSERT_GE(excess, -std::fabs(double{x[i]}) * 0x1p-22) << i;
  }
}

TEST(HalfStep, CostsWhatTheDocumentationSays) {
  const std::vector<float> x = normal_values(1);
  const Encoded nearest = encode_and_decode(x, E2m1Rounding::kNearestEven);
  const Encoded half = encode_and_decode(x, E2m1Rounding::kHalfStep);
  int changed = 0;
  for (int i = 0; i < kNumValues; ++i) changed += nearest.values[i] != half.values[i] ? 1 : 0;
  const double share = static_cast<double>(changed) / kNumValues;
  RecordProperty("nearest_even_relative_rms_error", std::to_string(nearest.relative_rms_error));
  RecordProperty("half_step_relative_rms_error", std::to_string(half.relative_rms_error));
  RecordProperty("share_of_values_changed", std::to_string(share));

  EXPECT_GT(half.relative_rms_error, nearest.relative_rms_error);
  // The printed figures, to their last digit.
  EXPECT_NEAR(nearest.relative_rms_error, 0.09516, 5e-6);
  EXPECT_NEAR(half.relative_rms_error, 0.10995, 5e-6);
  EXPECT_NEAR(share, 0.09126, 5e-6);
}

}  // namespace
}  // namespace dsv4
