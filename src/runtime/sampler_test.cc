// The way of rows, tokens and logprobs to the device and back. How a token is chosen is tested with
// the op.
#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/backends.h"
#include "runtime/nano_model.h"

namespace dsv4 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SamplerTest : public testing::Test {
 protected:
  // One call, with `logits` as device memory.
  std::vector<SampledToken> sample(const std::vector<float>& logits, std::int64_t vocab,
                                   const std::vector<SamplingRow>& rows) {
    const auto bytes = static_cast<std::int64_t>(logits.size() * sizeof(float));
    const DeviceBuffer memory = backend->allocate(bytes);
    backend->copy_to_device(memory.data(), logits.data(), bytes);
    backend->synchronize();
    return sampler.sample(
        f32_matrix(memory.as<const float>(), static_cast<std::int64_t>(rows.size()), vocab), rows);
  }
  std::unique_ptr<Backend> backend = open_backend("reference");
  Sampler sampler{*backend};
};

const SamplingRow kGreedy{.temperature = 0};

TEST_F(SamplerTest, EachRowHasItsOwnOptionsAndResult) {
  const std::vector<float> logits = {1, 5, 5, 0,  //
                                     4, 1, 3, 2,  //
                                     0, 1, 2, 3};
  // Row 1 may draw from its best two; a top_p of nearly nothing leaves row 2 the best one.
  const std::vector<SamplingRow> rows = {kGreedy, {.top_k = 2, .seed = 3}, {.top_p = 1e-6f}};
  const std::vector<SampledToken> sampled = sample(logits, 4, rows);
  EXPECT_EQ(sampled[0].token, 1);  // ties go to the lower id
  EXPECT_TRUE(sampled[1].token == 0 || sampled[1].token == 2) << sampled[1].token;
  EXPECT_EQ(sampled[2].token, 3);
  EXPECT_NEAR(sampled[2].logprob, -std::log(1 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-3.0)),
              1e-6);
}

TEST_F(SamplerTest, GrowsAndShrinksFromCallToCall) {
  for (const std::size_t count : {1u, 5u, 2u, 0u, 7u}) {
    std::vector<float> logits(count * 3, 0);
    for (std::size_t i = 0; i < count; ++i) logits[i * 3 + i % 3] = 1;
    const auto sampled = sample(logits, 3, std::vector<SamplingRow>(count, kGreedy));
    ASSERT_EQ(sampled.size(), count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(sampled[i].token, static_cast<int>(i % 3));
  }
}

TEST_F(SamplerTest, RowWithANanGivesNoTokenAndLeavesTheOthersAlone) {
  const auto sampled = sample({1, kNan, 1, 0}, 2, {kGreedy, kGreedy});
  EXPECT_EQ(sampled[0].token, -1);
  EXPECT_TRUE(std::isnan(sampled[0].logprob));
  EXPECT_EQ(sampled[1].token, 0);
}

TEST_F(SamplerTest, RefusesABadRow) {
  EXPECT_EQ(error_of([&] {
              sample({1, 2, 3, 4}, 2, {kGreedy, {.temperature = -1}});
            }),
            name_of(ErrorCode::kBadRequest));
}

}  // namespace
}  // namespace dsv4
