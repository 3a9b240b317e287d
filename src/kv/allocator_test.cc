// Numbers must be unique while held, come back, and run out with a message.
#include "kv/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"

namespace dsv4 {
namespace {

TEST(PageAllocator, HandsOutTheLowestFreeNumber) {
  PageAllocator pages(3);
  EXPECT_EQ(pages.allocate("pages"), 0);
  EXPECT_EQ(pages.allocate("pages"), 1);
  EXPECT_EQ(pages.allocate("pages"), 2);
  EXPECT_EQ(pages.num_free(), 0);
  pages.release(1);
  pages.release(0);
  EXPECT_EQ(pages.num_free(), 2);
  EXPECT_EQ(pages.allocate("pages"), 0);
  EXPECT_EQ(pages.allocate("pages"), 1);
}

TEST(PageAllocator, SaysWhichPoolIsEmpty) {
  for (const std::int32_t capacity : {0, 1}) {
    PageAllocator pages(capacity);
    for (std::int32_t i = 0; i < capacity; ++i) pages.allocate("sessions");
    try {
      pages.allocate("sessions");
      FAIL() << "no error at capacity " << capacity;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kOverloaded);
      EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("sessions are in use"),
                                               testing::HasSubstr("for more sessions")));
    }
    EXPECT_EQ(pages.num_free(), 0);
  }
}

TEST(PageAllocator, NeverHandsOutANumberTwice) {
  constexpr std::int32_t kCapacity = 50;
  PageAllocator pages(kCapacity);
  std::set<std::int32_t> held;
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    if (!held.empty() && (random() % 2 == 0 || pages.num_free() == 0)) {
      const auto it = std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
      pages.release(*it);
      held.erase(it);
    } else {
      const std::int32_t page = pages.allocate("pages");
      ASSERT_GE(page, 0);
      ASSERT_LT(page, kCapacity);
      ASSERT_TRUE(held.insert(page).second) << page;
    }
    ASSERT_EQ(pages.num_free(), kCapacity - static_cast<std::int32_t>(held.size()));
  }
}

TEST(PageAllocatorDeathTest, RefusesToReleaseWhatNobodyHolds) {
  PageAllocator pages(2);
  const std::int32_t page = pages.allocate("pages");
  pages.release(page);
  EXPECT_DEATH(pages.release(page), "");
  EXPECT_DEATH(pages.release(1), "");
  EXPECT_DEATH(pages.release(-1), "");
  EXPECT_DEATH(pages.release(2), "");
}

}  // namespace
}  // namespace dsv4
