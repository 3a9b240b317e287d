// The routing that the experts' rows are measured under: which experts a step reaches decides their
// useful bytes.
#include "bench/cuda_moe_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace dsv4::bench {
namespace {

constexpr int kExperts = 256;

std::int64_t num_reached(const ExpertTokens& experts) {
  return std::count_if(experts.begin(), experts.end(), [](const auto& e) { return !e.empty(); });
}

TEST(ExpertRouting, EveryTokenHasDistinctExperts) {
  testing::Random random(1);
  for (const Routing routing : {Routing::kUniform, Routing::kSkewed}) {
    for (const int num_experts : {kExpertsPerToken, 7, kExperts}) {
      for (const std::int64_t tokens : {0, 1, 2, 300}) {
        const ExpertTokens experts = route(tokens, num_experts, routing, random);
        ASSERT_EQ(experts.size(), static_cast<std::size_t>(num_experts));
        std::vector<int> experts_of(static_cast<std::size_t>(tokens), 0);
        for (const auto& rows : experts) {
          // Ascending, none twice.
          EXPECT_EQ(std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()),
                    rows.end());
          for (const std::int32_t token : rows) ++experts_of.at(static_cast<std::size_t>(token));
        }
        EXPECT_EQ(std::count(experts_of.begin(), experts_of.end(), kExpertsPerToken), tokens);
      }
    }
  }
}

// An expert stays without any of T tokens with probability (1 - 6/256)^T.
TEST(ExpertRouting, UniformReachesAsManyExpertsAsChanceDoes) {
  constexpr int kDraws = 200;
  testing::Random random(2);
  for (const std::int64_t tokens : {8, 32, 128}) {
    double sum = 0;
    for (int i = 0; i < kDraws; ++i) {
      sum += static_cast<double>(num_reached(route(tokens, kExperts, Routing::kUniform, random)));
    }
    const double empty =
        std::pow(1 - static_cast<double>(kExpertsPerToken) / kExperts, static_cast<double>(tokens));
    // Independent experts would have this variance; distinct ones of a token have less.
    const double deviation = std::sqrt(kExperts * empty * (1 - empty) / kDraws);
    EXPECT_NEAR(sum / kDraws, kExperts * (1 - empty), 5 * deviation) << tokens;
  }
}

// The first of the order has 1 / 6.1 of every draw, so more than six tenths of the tokens.
TEST(ExpertRouting, SkewedCrowdsOneExpertThatIsNotAlwaysTheSame) {
  constexpr std::int64_t kTokens = 1024;
  testing::Random random(3);
  std::vector<std::ptrdiff_t> crowded;
  for (int i = 0; i < 2; ++i) {
    const ExpertTokens experts = route(kTokens, kExperts, Routing::kSkewed, random);
    const auto most =
        std::max_element(experts.begin(), experts.end(),
                         [](const auto& a, const auto& b) { return a.size() < b.size(); });
    EXPECT_GT(most->size(), static_cast<std::size_t>(kTokens * 6 / 10));
    crowded.push_back(most - experts.begin());
  }
  EXPECT_NE(crowded[0], crowded[1]);
}

TEST(ExpertRouting, SharedExpertsAreSeen) {
  EXPECT_TRUE(share_an_expert({{}, {0}, {1}}, {{0}, {}, {5}}));
  EXPECT_FALSE(share_an_expert({{}, {0}, {1}}, {{0}, {}, {}}));
}

}  // namespace
}  // namespace dsv4::bench
