// name_index_test.cc: look-up and repeated names.
#include "io/name_index.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dsv4 {
namespace {

TEST(NameIndex, FindsEveryNameAndNoOther) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("layers." + std::to_string(i * 7919 % 1000));
  const NameIndex index(std::vector<std::string_view>(names.begin(), names.end()));
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(index.find(names[i]), static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(index.find(""), std::nullopt);
  EXPECT_EQ(index.find("layers."), std::nullopt);
  EXPECT_EQ(index.find("layers.1000"), std::nullopt);
  EXPECT_EQ(index.find("zzz"), std::nullopt);
  EXPECT_EQ(index.duplicate(), std::nullopt);
}

TEST(NameIndex, EmptyFindsNothing) {
  EXPECT_EQ(NameIndex().find("a"), std::nullopt);
  EXPECT_EQ(NameIndex(std::vector<std::string_view>{}).duplicate(), std::nullopt);
}

TEST(NameIndex, ReportsARepeatedNameInOrder) {
  const NameIndex index({"b", "a", "c", "a"});
  EXPECT_EQ(index.duplicate(), (std::pair<std::int64_t, std::int64_t>{1, 3}));
  EXPECT_EQ(index.find("a"), 1);
}

}  // namespace
}  // namespace dsv4
