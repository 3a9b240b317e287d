// Four over six: every backend against the rule of ops/quantize.h, byte for byte.
#include <gtest/gtest.h>

#include <limits>

#include "ops/quantize.h"
#include "testing/quantize_oracle.h"

namespace dsv4::testing {
namespace {

// Zero blocks, tiny ones, and blocks that are exact under either block scale, where six must win.
std::vector<float> hard_values(const QuantizeCase& c) {
  std::vector<float> values = quantize_values(c);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i / 16 % 11 == 3) values[i] = i % 3 == 0 ? -0.0f : 0.0f;
    if (i / 16 % 13 == 5) values[i] *= 1e-6f;
    if (i / 16 % 17 == 7) values[i] = c.static_global_scales[0] * (i % 2 == 0 ? 6.0f : -1.5f);
  }
  return values;
}

TEST_EACH_BACKEND(FourOverSix, MatchesTheRuleByteForByte) {
  for (const QuantizeCase& c : four_over_six_cases()) {
    SCOPED_TRACE(c.name);
    const HostMatrix x(c.x, c.rows, c.cols, hard_values(c));
    expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
  }
}

// Every finite BF16, in blocks of like magnitude.
TEST_EACH_BACKEND(FourOverSix, EveryBf16Value) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float value = decode_bf16(static_cast<std::uint16_t>(i));
    values.push_back(std::isfinite(value) ? value : 0);
  }
  QuantizeCase c{"bf16", 512, 128, bf16_spec(), nvfp4_spec(true)};
  c.four_over_six = true;
  for (const float g : {1e-3f, 1e-38f, 1e-42f, 3e35f, 1.2e38f}) {
    SCOPED_TRACE(g);
    c.static_global_scales = {g};
    const HostMatrix x(c.x, c.rows, c.cols, values);
    expect_same_matrix(run_quantize(backend, c, x), quantize_ref(c, x));
  }
}

TEST_EACH_BACKEND(FourOverSix, BothScalesAreTaken) {
  const QuantizeCase c = four_over_six_cases().front();
  QuantizeCase plain = c;
  plain.four_over_six = false;
  const HostMatrix x(c.x, c.rows, c.cols, hard_values(c));
  const HostMatrix got = run_quantize(backend, c, x);
  const HostMatrix six = run_quantize(backend, plain, x);
  std::int64_t num_six = 0, num_four = 0;
  for (std::size_t i = 0; i < 2 * 512 / 16; ++i) {  // the two rows whose global scale fits
    ++(got.block_scales[i] == six.block_scales[i] ? num_six : num_four);
  }
  EXPECT_GT(num_six, 10);
  EXPECT_GT(num_four, 10);
}

TEST_EACH_BACKEND(FourOverSix, ANanOrInfinityStaysInItsRow) {
  QuantizeCase c{"nan", 3, 128, f32_spec(), nvfp4_spec(true)};
  c.four_over_six = true;
  c.static_global_scales = {0.0025f};
  std::vector<float> values = normal_values(8, 3 * 128);
  const HostMatrix clean = run_quantize(backend, c, HostMatrix(c.x, 3, 128, values));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    values[128 + 7] = bad;
    const HostMatrix got = run_quantize(backend, c, HostMatrix(c.x, 3, 128, values));
    expect_same_matrix(got.row(0), clean.row(0));
    expect_same_matrix(got.row(2), clean.row(2));
  }
}

}  // namespace
}  // namespace dsv4::testing
