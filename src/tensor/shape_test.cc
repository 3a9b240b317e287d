// Shapes of zero to four extents, and the refusal of a fifth.
#include "tensor/shape.h"

#include <gtest/gtest.h>

namespace dsv4 {
namespace {

TEST(Shape, ScalarHasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.num_elements(), 1);
  EXPECT_EQ(scalar.to_string(), "[]");
  EXPECT_TRUE(scalar.dims().empty());
}

TEST(Shape, ElementsAreTheProductAndZeroWins) {
  EXPECT_EQ(Shape({7}).num_elements(), 7);
  EXPECT_EQ(Shape({2, 3, 5, 7}).num_elements(), 210);
  EXPECT_EQ(Shape({2, 0, 5}).num_elements(), 0);
  EXPECT_EQ(Shape({std::int64_t{1} << 31, 4}).num_elements(), std::int64_t{1} << 33);
}

TEST(Shape, EqualOnlyWithTheSameRank) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2, 3}), Shape({2, 3, 0}));
  EXPECT_NE(Shape({2}), Shape({2, 1}));
}

TEST(Shape, PrintsItsExtents) {
  EXPECT_EQ(Shape({256, 128}).to_string(), "[256, 128]");
  EXPECT_EQ(Shape({0}).to_string(), "[0]");
}

TEST(Shape, FromASpanOfAFilesExtents) {
  const std::int64_t dims[] = {4, 5};
  const Shape shape{std::span<const std::int64_t>(dims)};
  EXPECT_EQ(shape.rank(), 2);
  EXPECT_EQ(shape[0], 4);
  EXPECT_EQ(shape[1], 5);
  EXPECT_EQ(shape.dims().size(), 2u);
}

TEST(ShapeDeathTest, RefusesAFifthExtent) { EXPECT_DEATH(Shape({1, 1, 1, 1, 1}), ""); }

}  // namespace
}  // namespace dsv4
