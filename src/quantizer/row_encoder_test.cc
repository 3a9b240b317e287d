// row_encoder_test.cc: which blocks and values count as out of range, on both sides of each limit.
// Sums and casts: error_sums_test.cc, fp4_cast_test.cc.
#include "quantizer/row_encoder.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/matrix_view.h"

namespace dsv4 {
namespace {

float next(float x) { return std::nextafter(x, 1e30f); }

TEST(ErrorMeter, CountsFromEachLimitOn) {
  constexpr std::uint8_t kLargestScale = 0x7E, kSmallestScale = 1;  // 448, 2^-9
  struct Case {
    float amax;
    std::uint8_t block_scale, code;
    int too_large, too_small, saturated, zeroed;
  };
  const Case cases[] = {
      {6 * 464.0f, kLargestScale, 7, 0, 0, 0, 0},
      {next(6 * 464.0f), kLargestScale, 7, 1, 0, 0, 0},
      {7 * 448.0f, kLargestScale, 7, 1, 0, 0, 0},
      {next(7 * 448.0f), kLargestScale, 7, 1, 0, 1, 0},
      {6 * 0x1p-10f, kSmallestScale, 6, 0, 1, 0, 0},
      {next(6 * 0x1p-10f), kSmallestScale, 6, 0, 0, 0, 0},
      {6 * 0x1p-10f, 0, 0, 0, 1, 0, 1},
      {0x1p-20f, kSmallestScale, 0, 0, 1, 0, 1},
      {7 * 0x1p-9f, kSmallestScale, 7, 0, 0, 0, 0},
      {next(7 * 0x1p-9f), kSmallestScale, 7, 0, 0, 1, 0},
      {0, 0, 0, 0, 0, 0, 0},
  };
  // Under 2^-117 every block is looked at, above it only those that pass a guard.
  for (const float global_scale : {1.0f, 0x1p-30f, 0x1p-116f, 0x1p-118f}) {
    const ErrorMeter meter(global_scale);
    for (const Case& c : cases) {
      SCOPED_TRACE(::testing::Message() << c.amax << " * " << global_scale);
      float x[16] = {};
      x[5] = -c.amax * global_scale;
      const std::uint8_t codes[8] = {0, 0, static_cast<std::uint8_t>(c.code << 4)};
      BlockErrors errors;
      ErrorTally row;
      meter.add_row(f32_matrix(x, 1, 16), 0, codes, &c.block_scale, 0, &errors, row);
      EXPECT_EQ(row.scales_too_large, c.too_large);
      EXPECT_EQ(row.scales_too_small, c.too_small);
      EXPECT_EQ(row.saturated_values, c.saturated);
      EXPECT_EQ(row.zeroed_blocks, c.zeroed);
      EXPECT_EQ(row.quant_blocks, 1);
    }
  }
}

}  // namespace
}  // namespace dsv4
