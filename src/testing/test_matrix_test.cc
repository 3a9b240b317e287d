// The fixtures must find what they exist for: damaged guards and padding, and padding read as data.
#include "testing/test_matrix.h"

#include <gtest/gtest-spi.h>

#include <cmath>
#include <set>

#include "testing/comparator.h"
#include "testing/each_backend.h"
#include "testing/generators.h"

namespace dsv4::testing {
namespace {

TEST_EACH_BACKEND(DeviceArray, BringsBackWhatItWasGiven) {
  const std::vector<std::int32_t> values = {1, -2, 3};
  const DeviceArray<std::int32_t> array(backend, values);
  EXPECT_EQ(array.size(), 3);
  EXPECT_SAME_BITS(array.read(), values);
  const DeviceArray<float> empty(backend, 0);
  EXPECT_TRUE(empty.read().empty());
}

TEST_EACH_BACKEND(DeviceArray, NewMemoryIsNan) {
  const DeviceArray<float> array(backend, 5);
  for (const float value : array.read()) EXPECT_TRUE(std::isnan(value));
}

// EXPECT_NONFATAL_FAILURE takes no local variables.
void write_beside_array(std::int64_t idx) {
  Backend& backend = reference_backend();
  const DeviceArray<float> array(backend, 4);
  backend.fill(array.data() + idx, 0, sizeof(float));
}

TEST(DeviceArray, FindsAWriteBehindItsEnd) {
  EXPECT_NONFATAL_FAILURE(write_beside_array(4), "guard byte 0 behind");
}

TEST(DeviceArray, FindsAWriteBeforeItsBegin) {
  EXPECT_NONFATAL_FAILURE(write_beside_array(-1), "guard byte 252 before");
}

void write_into_padding() {
  Backend& backend = reference_backend();
  const DeviceMatrix matrix(backend, HostMatrix(f32_spec().padded(2), 3, 4));
  backend.fill(static_cast<float*>(matrix.mutable_view().data) + 4, 0, 1);
  matrix.read();
}

TEST(DeviceMatrix, FindsAWriteIntoItsPadding) {
  EXPECT_NONFATAL_FAILURE(write_into_padding(), "padding");
}

TEST_EACH_BACKEND(DeviceMatrix, BringsBackEveryFormatWithPadding) {
  for (MatrixSpec spec : weight_specs()) {
    spec = spec.padded(6);
    SCOPED_TRACE(spec.name);
    const HostMatrix host(spec, 3, 256, normal_values(1, 3 * 256));
    const DeviceMatrix device(backend, host);
    EXPECT_SAME_BITS(device.values(), host.values());
    EXPECT_EQ(host.damaged_padding_bytes(), 0);
  }
}

TEST(HostMatrix, QuantisedValuesLieWithinTheFormatsStep) {
  // Half a step of the coarsest code under the largest block scale of the format, relative to the
  // largest value: E4M3 2^-4 (twice that where the scale is rounded up to a power of two), E2M1
  // 1/6 of the block's largest value, MXFP4 twice that; BF16 2^-8.
  const auto bound = [](const MatrixSpec& spec) {
    switch (spec.format) {
      case Format::kF32:
        return 0.0;
      case Format::kBf16:
        return 0x1p-8;
      case Format::kE4m3:
        return spec.scale_dtype == DType::kF32 ? 0x1p-4 : 0x1p-3;
      case Format::kMxfp4:
        return 2.0 / 6;
      default:
        return 1.0 / 6 + 0x1p-4;
    }
  };
  const std::vector<float> values = normal_values(2, 130 * 160);
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  for (const MatrixSpec& spec : weight_specs()) {
    SCOPED_TRACE(spec.name);
    Tolerance tolerance;
    tolerance.absolute = bound(spec) * largest;
    EXPECT_CLOSE(HostMatrix(spec, 130, 160, values).values(), values, tolerance);
  }
}

TEST(HostMatrix, APoisonedOutputDecodesToNan) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec(), fp8_spec(1, 128, DType::kE8M0)}) {
    SCOPED_TRACE(spec.name);
    for (const float value : HostMatrix(spec, 2, 128).values()) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(HostMatrix, ARowIsTheSameRow) {
  for (const MatrixSpec& spec : activation_specs()) {
    SCOPED_TRACE(spec.name);
    const HostMatrix host(spec.padded(4), 3, 256, heavy_tailed_values(3, 3 * 256));
    const std::vector<float> all = host.values();
    EXPECT_SAME_BITS(host.row(2).values(), std::vector<float>(all.begin() + 512, all.end()));
  }
}

TEST(Generators, TheSameOnEveryPlatform) {
  // From the definition, computed with arbitrary-precision integers.
  Random random(7);
  EXPECT_EQ(random.bits(), 0xd5757f9b8f6632ceu);
  EXPECT_EQ(random.bits(), 0xa791e1e11c1c97cfu);
}

TEST(Generators, DistributionsHaveTheirMoments) {
  constexpr std::int64_t kCount = 100000;
  double sum = 0;
  double squares = 0;
  for (const float x : normal_values(5, kCount)) {
    sum += x;
    squares += double{x} * x;
  }
  // Five standard errors: 5 / sqrt(n) of the mean; the squares' deviation is below sqrt(2).
  const double five_errors = 5 / std::sqrt(static_cast<double>(kCount));
  EXPECT_LE(std::fabs(sum / kCount), five_errors);
  EXPECT_LE(std::fabs(squares / kCount - 1), five_errors * std::sqrt(2.0));
  std::set<float> distinct;
  for (const float x : uniform_values(6, 1000, -2, 3)) {
    EXPECT_GE(x, -2);
    EXPECT_LE(x, 3);
    distinct.insert(x);
  }
  EXPECT_GT(distinct.size(), 990u);
}

}  // namespace
}  // namespace dsv4::testing
