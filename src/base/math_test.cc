// Integer arithmetic at its edges: zero, one, one beside a multiple, and the end of 64 bits.
#include "base/math.h"

#include <gtest/gtest.h>

namespace dsv4 {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

TEST(Math, CeilDivBesideEveryMultiple) {
  for (const std::int64_t b : {1, 2, 3, 16, 64, 128}) {
    EXPECT_EQ(ceil_div(0, b), 0);
    for (std::int64_t n = 1; n <= 5; ++n) {
      EXPECT_EQ(ceil_div(n * b, b), n);
      EXPECT_EQ(ceil_div(n * b + 1, b), n + 1);
      EXPECT_EQ(ceil_div(n * b - 1, b), b == 1 ? n - 1 : n);
    }
  }
}

TEST(Math, CeilDivDoesNotOverflowAtTheEnd) {
  EXPECT_EQ(ceil_div(kMax, 1), kMax);
  EXPECT_EQ(ceil_div(kMax, 2), std::int64_t{1} << 62);
  EXPECT_EQ(ceil_div(kMax, kMax), 1);
  EXPECT_EQ(ceil_div(kMax - 1, kMax), 1);
}

TEST(Math, RoundUpBesideEveryMultiple) {
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(1, 8), 8);
  EXPECT_EQ(round_up(7, 8), 8);
  EXPECT_EQ(round_up(8, 8), 8);
  EXPECT_EQ(round_up(9, 8), 16);
  EXPECT_EQ(round_up((std::int64_t{1} << 40) + 1, 3), (std::int64_t{1} << 40) + 2);
}

TEST(Math, PowersOfTwoAndTheirNeighbours) {
  EXPECT_FALSE(is_power_of_two(0));
  EXPECT_FALSE(is_power_of_two(-1));
  EXPECT_FALSE(is_power_of_two(-8));
  EXPECT_FALSE(is_power_of_two(std::numeric_limits<std::int64_t>::min()));
  EXPECT_TRUE(is_power_of_two(1));
  for (int k = 2; k < 63; ++k) {
    const std::int64_t power = std::int64_t{1} << k;
    EXPECT_TRUE(is_power_of_two(power));
    EXPECT_FALSE(is_power_of_two(power - 1));
    EXPECT_FALSE(is_power_of_two(power + 1));
  }
}

TEST(Math, CheckedMulRefusesWhatDoesNotFit) {
  EXPECT_EQ(checked_mul(0, kMax), 0);
  EXPECT_EQ(checked_mul(kMax, 0), 0);
  EXPECT_EQ(checked_mul(1, kMax), kMax);
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(2, kMax / 2), kMax - 1);
  EXPECT_EQ(checked_mul(2, kMax / 2 + 1), std::nullopt);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(checked_mul(kMax, kMax), std::nullopt);
  EXPECT_EQ(checked_mul(-1, 1), std::nullopt);
  EXPECT_EQ(checked_mul(1, -1), std::nullopt);
  EXPECT_EQ(checked_mul(-1, 0), std::nullopt);
  EXPECT_EQ(checked_mul(0, std::numeric_limits<std::int64_t>::min()), std::nullopt);
}

TEST(Math, CheckedAddRefusesWhatDoesNotFit) {
  EXPECT_EQ(checked_add(0, 0), 0);
  EXPECT_EQ(checked_add(kMax, 0), kMax);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add(1, kMax), std::nullopt);
  EXPECT_EQ(checked_add(kMax, kMax), std::nullopt);
  EXPECT_EQ(checked_add(-1, 2), std::nullopt);
  EXPECT_EQ(checked_add(2, -1), std::nullopt);
}

}  // namespace
}  // namespace dsv4
