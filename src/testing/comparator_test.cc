// What the comparators refuse: a comparator that accepts too much makes every other test worthless.
#include "testing/comparator.h"

#include <cmath>
#include <limits>

#include "numerics/e2m1.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Tolerance loose() {
  Tolerance tolerance;
  tolerance.absolute = 1000;
  return tolerance;
}

std::string message(const ::testing::AssertionResult& result) { return result.message(); }

TEST(Comparator, AcceptsWhatIsWithinTolerance) {
  Tolerance tolerance;
  tolerance.absolute = 0.25;
  EXPECT_TRUE(compare(std::vector<float>{1, 2.25f, -3}, std::vector<float>{1, 2, -3}, tolerance));
  EXPECT_TRUE(compare(std::vector<float>{}, std::vector<float>{}, tolerance));
  EXPECT_TRUE(compare(std::vector<float>{kNan, kInf, -kInf}, std::vector<float>{kNan, kInf, -kInf},
                      tolerance));
}

TEST(Comparator, TheToleranceItselfPassesAndTheNextValueFails) {
  Tolerance tolerance;
  tolerance.absolute = 0.25;
  const std::vector<double> want = {2};
  EXPECT_TRUE(compare(std::vector<double>{2.25}, want, tolerance));
  EXPECT_FALSE(compare(std::vector<double>{std::nextafter(2.25, 3)}, want, tolerance));
}

TEST(Comparator, RefusesANanHoweverLooseTheTolerance) {
  EXPECT_FALSE(compare(std::vector<float>{kNan}, std::vector<float>{1}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{kNan}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{kNan, 1}, std::vector<float>{1, kNan}, loose()));
}

TEST(Comparator, RefusesAnInfinityHoweverLooseTheTolerance) {
  EXPECT_FALSE(compare(std::vector<float>{kInf}, std::vector<float>{1}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{kInf}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{kInf}, std::vector<float>{-kInf}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{kInf}, std::vector<float>{kNan}, loose()));
}

TEST(Comparator, RefusesAToleranceThatIsNoNumber) {
  for (const double bad : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()}) {
    Tolerance tolerance;
    tolerance.absolute = bad;
    EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{2}, tolerance)) << bad;
  }
  // Relative to an infinite magnitude, too.
  Tolerance tolerance;
  tolerance.of_magnitude = 1;
  tolerance.magnitudes = {std::numeric_limits<double>::infinity()};
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{2}, tolerance));
}

TEST(Comparator, RefusesASwappedPair) {
  const std::vector<float> want = {1, 1.001f, 5};
  const std::vector<float> got = {1.001f, 1, 5};
  EXPECT_FALSE(compare(got, want, rounding_tolerance(4, Format::kF32)));
  EXPECT_FALSE(compare_bits(got, want));
}

TEST(Comparator, RefusesAResultOneCodeOff) {
  // A sum of 64 products of E2M1 codes, one code of 64 a step too high (4 -> 6).
  const double right = 63 * decode_e2m1(2) + decode_e2m1(6);
  const double wrong = 63 * decode_e2m1(2) + decode_e2m1(7);
  const Tolerance tolerance = sum_tolerance(64, {right}, Format::kF32);
  EXPECT_TRUE(compare(std::vector<double>{right}, std::vector<double>{right}, tolerance));
  EXPECT_FALSE(compare(std::vector<double>{wrong}, std::vector<double>{right}, tolerance));
}

TEST(Comparator, RefusesAnotherLength) {
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{1, 1}, loose()));
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{}, loose()));
  Tolerance tolerance = loose();
  tolerance.magnitudes = {1, 1};
  EXPECT_FALSE(compare(std::vector<float>{1}, std::vector<float>{1}, tolerance));
  EXPECT_FALSE(compare_bits(std::vector<float>{1}, std::vector<float>{1, 1}));
}

TEST(Comparator, NamesTheWorstElementAndBothValues) {
  Tolerance tolerance;
  tolerance.absolute = 0.5;
  const std::string text =
      message(compare(std::vector<float>{1, 7, 4}, std::vector<float>{2, 4, 4}, tolerance));
  EXPECT_NE(text.find("2 of 3"), std::string::npos) << text;
  EXPECT_NE(text.find("[1]: got 7, want 4, error 3, tolerance 0.5"), std::string::npos) << text;
}

TEST(Comparator, AMisplacedNanIsTheWorstElement) {
  const std::string text =
      message(compare(std::vector<float>{1e30f, kNan}, std::vector<float>{0, 4}, loose()));
  EXPECT_NE(text.find("[1]: got nan, want 4"), std::string::npos) << text;
}

TEST(Comparator, BitsTellZeroesAndNansApart) {
  EXPECT_TRUE(compare_bits(std::vector<float>{0.0f, kNan}, std::vector<float>{0.0f, kNan}));
  EXPECT_FALSE(compare_bits(std::vector<float>{0.0f}, std::vector<float>{-0.0f}));
  EXPECT_FALSE(compare_bits(std::vector<float>{kNan}, std::vector<float>{-kNan}));
  const std::string text =
      message(compare_bits(std::vector<float>{1, 1.5f}, std::vector<float>{1, -1.5f}));
  EXPECT_NE(text.find("first [1]: got 0x3fc00000, want 0xbfc00000"), std::string::npos) << text;
}

TEST(Tolerances, ALostTermOfAverageSizeIsBeyondTheAccumulationBound) {
  for (const std::int64_t terms : {1, 16, 255, 256, 257, 4096, 7168, 16000}) {
    EXPECT_LT(accumulation_bound(terms), 1.0 / static_cast<double>(terms)) << terms;
  }
}

TEST(Tolerances, AFloatSumInAnyOrderIsWithinTheAccumulationBound) {
  // The worst order for rounding: every addition of a half ulp is lost, as a chain of one chunk.
  float sum = 1;
  double exact = 1;
  for (std::int64_t i = 1; i < kChunkTerms; ++i) {
    sum += 0x1p-24f;
    exact += 0x1p-24;
  }
  EXPECT_CLOSE(std::vector<float>{sum}, std::vector<double>{exact},
               sum_tolerance(kChunkTerms, {exact}, Format::kF32));
}

}  // namespace
}  // namespace dsv4::testing
