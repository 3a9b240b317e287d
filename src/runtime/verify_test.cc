// The arithmetic of the judgement: what a relative error is, which rank a figure takes, and that
// nothing passes by being NaN. That whole models pass and fail: tests/golden_test.cc.
#include "runtime/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dsv4 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(ErrorSummary, IsTheNormOfTheDifferenceOverThatOfTheWanted) {
  // ||(0, 5)|| / ||(3, 4)||
  const ErrorSummary errors =
      summarize_errors(std::vector<float>{3, 9}, std::vector<float>{3, 4}, 2);
  EXPECT_EQ(errors.rows, 1);
  EXPECT_DOUBLE_EQ(errors.median, 1.0);
  EXPECT_DOUBLE_EQ(errors.p95, 1.0);
  EXPECT_DOUBLE_EQ(errors.max, 1.0);
}

TEST(ErrorSummary, TakesTheNearestRank) {
  // Row i of n has the error i.
  const auto errors_of = [](int n) {
    std::vector<float> got;
    for (int i = n; i >= 1; --i) got.push_back(1.0f + static_cast<float>(i));
    return summarize_errors(got, std::vector<float>(static_cast<std::size_t>(n), 1.0f), 1);
  };
  struct Expected {
    int n;
    double median, p95;
  };
  for (const Expected& e : {Expected{1, 1, 1},
                            {2, 1, 2},
                            {3, 2, 3},
                            {19, 10, 19},
                            {20, 10, 19},
                            {21, 11, 20},
                            {100, 50, 95},
                            {101, 51, 96}}) {
    SCOPED_TRACE(e.n);
    const ErrorSummary errors = errors_of(e.n);
    EXPECT_EQ(errors.rows, e.n);
    EXPECT_EQ(errors.median, e.median);
    EXPECT_EQ(errors.p95, e.p95);
    EXPECT_EQ(errors.max, e.n);
  }
}

TEST(ErrorSummary, IsZeroForEqualRowsAlsoOfZeros) {
  const std::vector<float> zeros(4, 0.0f);
  EXPECT_EQ(summarize_errors(zeros, zeros, 2).max, 0.0);
  EXPECT_EQ(summarize_errors(std::vector<float>{0, -0.0f}, std::vector<float>{0, 0}, 2).max, 0.0);
}

TEST(ErrorSummary, IsInfiniteWhereARowHasNoRelativeError) {
  for (const auto& [got, want] : {std::pair(1.0f, 0.0f),
                                  {kNan, 1.0f},
                                  {1.0f, kNan},
                                  {kNan, kNan},
                                  {kInf, 1.0f},
                                  {kInf, kInf},
                                  {kNan, 0.0f}}) {
    const ErrorSummary errors =
        summarize_errors(std::vector<float>{1, got}, std::vector<float>{1, want}, 1);
    EXPECT_TRUE(std::isinf(errors.max)) << got << " for " << want;
    EXPECT_EQ(errors.median, 0.0);
  }
}

VerifyCheck check_of(ErrorSummary errors, ErrorLimits limits, int layer_idx = -1) {
  return {"x", layer_idx, errors, limits};
}

TEST(VerifyCheck, PassesAtItsLimitsAndNotAbove) {
  const ErrorLimits limits{1e-6, 1e-4, 1e-1};
  EXPECT_TRUE(check_of({1, 1e-6, 1e-4, 1e-1}, limits).passed());
  EXPECT_FALSE(check_of({1, 1.1e-6, 1e-4, 1e-1}, limits).passed());
  EXPECT_FALSE(check_of({1, 1e-6, 1.1e-4, 1e-1}, limits).passed());
  EXPECT_FALSE(check_of({1, 1e-6, 1e-4, 1.1e-1}, limits).passed());
}

TEST(VerifyCheck, NeverPassesAnInfiniteError) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(check_of({1, 0, 0, infinity}, {}).passed());
  EXPECT_FALSE(check_of({1, 0, 0, infinity}, {.median = 1e-1}).passed());
  EXPECT_TRUE(check_of({1, 0, 0, 1e300}, {}).passed());
}

TEST(VerifyReport, NamesTheFirstLayerThatDeparts) {
  const ErrorLimits limits{.max = 1};
  VerifyReport report;
  report.checks = {check_of({1, 0, 0, 0}, limits, 0), check_of({1, 0, 0, 2}, limits, 3),
                   check_of({1, 0, 0, 2}, limits, 4), check_of({1, 0, 0, 2}, limits)};
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first_departing_layer(), 3);
  EXPECT_EQ(report.summary(), "3 of 4 checks failed; the first layer that departs is 3");
  EXPECT_THAT(report.checks[1].to_string(), testing::EndsWith("FAIL"));

  report.checks = {check_of({1, 0, 0, 0}, limits, 0), check_of({1, 0, 0, 2}, limits)};
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.first_departing_layer(), std::nullopt);
  EXPECT_EQ(report.summary(), "1 of 2 checks failed; every layer alone is right");

  report.checks.pop_back();
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.summary(), "all 1 checks passed");
}

}  // namespace
}  // namespace dsv4
