// stored_scale_test.cc: reciprocals of scales that decode to what was meant, where there are such.
#include "quantizer/stored_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

TEST(StoredScale, HasTheReciprocalThatDecodesToItWhereThereIsOne) {
  constexpr Nvfp4Layout kReciprocal = Nvfp4Layout::kCompressedTensors;
  EXPECT_EQ(stored_scale(0.1f, Nvfp4Layout::kModelOpt, "m"), 0.1f);
  for (int exponent = -126; exponent <= 126; ++exponent) {
    EXPECT_EQ(stored_scale(std::ldexp(1.0f, exponent), kReciprocal, "m"),
              std::ldexp(1.0f, -exponent));
  }
  std::int64_t inexact = 0;
  for (int i = 0; i < 1000; ++i) {
    const float scale = 1.0f + static_cast<float>(i) / 1000.0f;
    const float stored = stored_scale(scale, kReciprocal, "m");
    const float decodes = 1.0f / stored;
    EXPECT_NEAR(decodes, scale, 0x1p-23f);
    inexact += decodes != scale;
    // Stored again it does not drift.
    EXPECT_EQ(1.0f / stored_scale(decodes, kReciprocal, "m"), decodes) << scale;
  }
  EXPECT_GT(inexact, 0);  // or the note about it would be needless
  // No neighbour decodes to what the stored one does not: all mantissas, and both ends.
  for (const int exponent : {-127, 0, 126, 127}) {
    for (std::int64_t i = 0; i < 1 << 23; i += 3) {
      const float scale = std::ldexp(1.0f + static_cast<float>(i) * 0x1p-23f, exponent);
      const float stored = stored_scale(scale, kReciprocal, "m");
      if (1.0f / stored == scale) continue;
      ASSERT_NE(1.0f / std::nextafter(stored, 0.0f), scale);
      ASSERT_NE(1.0f / std::nextafter(stored, 1e39), scale);
    }
  }
  for (const float scale : {1e-45f, std::numeric_limits<float>::denorm_min() * 4}) {
    EXPECT_THROW(stored_scale(scale, kReciprocal, "m"), Error);
  }
}

}  // namespace
}  // namespace dsv4
