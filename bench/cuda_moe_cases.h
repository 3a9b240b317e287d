// cuda_moe_cases.h: the released models' expert GEMMs, what they may take, and who routes which
// token where.
//
// The targets are the project's. The peer is Marlin's NVFP4 x BF16, the only other expert GEMM that
// reads NVFP4 on Hopper, measured on an H200 whose memory gave 4.38 TB/s (2026-11-29): the same
// shapes and kind of routing, not the same run.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "testing/generators.h"

namespace dsv4::bench {

inline constexpr int kExpertsPerToken = 6;

struct Figures {
  double target_us, marlin_us;
};
// One GEMM of one model.
struct ExpertGemm {
  bool gate_up;
  int num_experts;
  std::int64_t n, k;                        // of one matrix
  std::map<std::int64_t, Figures> figures;  // by tokens
  std::string shape() const {
    return fmt::format("E{}xN{}xK{}", num_experts, gate_up ? 2 * n : n, k);
  }
};

inline std::vector<ExpertGemm> flash() {
  return {{true,
           256,
           2048,
           4096,
           {{1, {20, 26.3}},
            {8, {108, 157}},
            {32, {310, 460}},
            {128, {560, 823}},
            {1024, {750, 1313}},
            {8192, {2600, 6814}}}},
          {false,
           256,
           4096,
           2048,
           {{1, {12, 16.4}},
            {8, {56, 84}},
            {32, {158, 238}},
            {128, {285, 429}},
            {1024, {380, 706}},
            {8192, {1300, 3699}}}}};
}
inline std::vector<ExpertGemm> pro() {
  return {{true,
           384,
           3072,
           7168,
           {{1, {44, 58.8}},
            {8, {275, 388}},
            {32, {930, 1378}},
            {128, {2020, 3010}},
            {1024, {2600, 4775}},
            {8192, {7000, 19173}}}},
          {false,
           384,
           7168,
           3072,
           {{1, {26, 33.8}},
            {8, {135, 208}},
            {32, {450, 690}},
            {128, {985, 1498}},
            {1024, {1300, 2486}},
            {8192, {3400, 10177}}}}};
}

// Tokens of each expert, ascending.
using ExpertTokens = std::vector<std::vector<std::int32_t>>;

enum class Routing { kUniform, kSkewed };

// Every token takes distinct experts at random: all alike, or expert e of a shuffled order with
// probability in proportion to 1 / (e + 1).
inline ExpertTokens route(std::int64_t tokens, int num_experts, Routing routing,
                          testing::Random& random) {
  std::vector<double> ends;  // of each expert's share
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_experts));
  std::iota(order.begin(), order.end(), 0);
  for (int e = 0; e < num_experts; ++e) {
    std::swap(order[e], order[e + random.index(num_experts - e)]);
    ends.push_back((e == 0 ? 0 : ends.back()) + (routing == Routing::kUniform ? 1 : 1.0 / (e + 1)));
  }
  ExpertTokens experts(static_cast<std::size_t>(num_experts));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int taken = 0; taken < kExpertsPerToken;) {
      const double at = random.uniform(0, ends.back());
      auto& rows =
          experts[order[std::upper_bound(ends.begin(), ends.end() - 1, at) - ends.begin()]];
      if (!rows.empty() && rows.back() == t) continue;
      rows.push_back(static_cast<std::int32_t>(t));
      ++taken;
    }
  }
  return experts;
}

inline bool share_an_expert(const ExpertTokens& a, const ExpertTokens& b) {
  for (std::size_t e = 0; e < a.size(); ++e) {
    if (!a[e].empty() && !b[e].empty()) return true;
  }
  return false;
}

}  // namespace dsv4::bench
