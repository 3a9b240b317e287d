// Where rows go: the ring wraps, and a page slot belongs to the group that a token closes.
#include "kv/flush.h"

#include <gtest/gtest.h>

#include <vector>

#include "kv/cache_fixtures.h"

namespace dsv4 {
namespace {

TEST(RingSlots, WrapWithinTheSessionsOwnRing) {
  MemoryBackend backend;
  constexpr std::int64_t kRingRows = 40;
  KvCache cache(backend, small_schema(2, kRingRows), 100, 2);
  SequenceCache first(cache), second(cache);
  ASSERT_EQ(second.state_idx(), 1);
  for (const std::int64_t begin : {0, 1, 38, 39, 40, 41, 79, 80, 1'000'000'007}) {
    SCOPED_TRACE(begin);
    std::vector<std::int64_t> slots(3);
    ring_slots(first, kRingRows, begin, slots);
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(slots[static_cast<std::size_t>(i)], (begin + i) % kRingRows);
    }
    ring_slots(second, kRingRows, begin, slots);
    for (std::int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(slots[static_cast<std::size_t>(i)], kRingRows + (begin + i) % kRingRows);
    }
  }
  ring_slots(first, kRingRows, 5, {});  // no tokens
}

// A page past the first 2^31 / ring_rows states would overflow 32 bits.
TEST(RingSlots, AreCountedIn64Bits) {
  MemoryBackend backend;
  CacheSchema schema = small_schema(2);
  for (LayerCacheSchema& layer : schema.layers) layer = {};  // no memory
  KvCache cache(backend, schema, 0, 2);
  SequenceCache first(cache), second(cache);
  std::vector<std::int64_t> slots(1);
  ring_slots(second, std::int64_t{1} << 33, 5, slots);
  EXPECT_EQ(slots[0], (std::int64_t{1} << 33) + 5);
}

struct Case {
  int ratio;
  std::int64_t page_rows;
};

class ClosedRowSlots : public testing::TestWithParam<Case> {};

TEST_P(ClosedRowSlots, BelongToTheTokenThatClosesTheGroup) {
  const auto [ratio, page_rows] = GetParam();
  MemoryBackend backend;
  constexpr std::int64_t kTokens = 9000;
  KvCache cache(backend, small_schema(page_rows), 2 * kTokens, 2);
  SequenceCache other(cache), sequence(cache);
  // Pages of two sessions in turn, so that a table is not the identity.
  for (std::int64_t i = 0; i < kTokens; i += 100) {
    other.reserve(100);
    other.advance(100);
    sequence.reserve(100);
    sequence.advance(100);
  }
  std::vector<std::int64_t> slots(kTokens);
  std::vector<std::int32_t> positions(kTokens);
  closed_row_slots(sequence, ratio, page_rows, 0, slots, positions);
  std::int64_t row = 0;
  for (std::int64_t p = 0; p < kTokens; ++p) {
    const auto i = static_cast<std::size_t>(p);
    if ((p + 1) % ratio != 0) {
      ASSERT_EQ(slots[i], -1) << p;
      ASSERT_EQ(positions[i], -1) << p;
      continue;
    }
    const std::int32_t page = sequence.page_table(ratio)[static_cast<std::size_t>(row / page_rows)];
    ASSERT_EQ(slots[i], page * page_rows + row % page_rows) << p;
    ASSERT_EQ(positions[i], p + 1 - ratio) << p;
    ++row;
  }
  EXPECT_EQ(row, kTokens / ratio);

  // A step that begins in the middle says the same.
  for (const std::int64_t begin : {1, 3, 4, 127, 128, 255, 8000}) {
    std::vector<std::int64_t> part_slots(130);
    std::vector<std::int32_t> part_positions(130);
    closed_row_slots(sequence, ratio, page_rows, begin, part_slots, part_positions);
    for (std::size_t i = 0; i < part_slots.size(); ++i) {
      ASSERT_EQ(part_slots[i], slots[static_cast<std::size_t>(begin) + i]);
      ASSERT_EQ(part_positions[i], positions[static_cast<std::size_t>(begin) + i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(RatiosAndPages, ClosedRowSlots,
                         testing::Values(Case{4, 1}, Case{4, 2}, Case{4, 16}, Case{4, 64},
                                         Case{128, 2}, Case{128, 16}, Case{128, 64}),
                         [](const auto& case_info) {
                           return "ratio" + std::to_string(case_info.param.ratio) + "_pages_of_" +
                                  std::to_string(case_info.param.page_rows);
                         });

}  // namespace
}  // namespace dsv4
