// A session takes what it needs and nothing more, gives everything back, and a refusal changes
// nothing.
#include "kv/handle.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "kv/cache_fixtures.h"

namespace dsv4 {
namespace {

constexpr int kRatios[] = {4, 128};

std::size_t num_pages(const SequenceCache& sequence, int ratio) {
  return sequence.page_table(ratio).size();
}

template <class Action>
std::optional<ErrorCode> error_code(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

class PageRows : public testing::TestWithParam<std::int64_t> {};

// A page is taken when its first row is closed: token by token and at once.
TEST_P(PageRows, TablesGrowWithTheFirstRowOfAPage) {
  const std::int64_t page_rows = GetParam();
  MemoryBackend backend;
  constexpr std::int64_t kTokens = 9000;
  KvCache cache(backend, small_schema(page_rows), 2 * kTokens, 2);
  SequenceCache slow(cache);
  for (std::int64_t tokens = 1; tokens <= kTokens; ++tokens) {
    slow.reserve(1);
    slow.advance(1);
    ASSERT_EQ(slow.length(), tokens);
    for (const int ratio : kRatios) {
      const std::int64_t rows = tokens / ratio;
      ASSERT_EQ(num_pages(slow, ratio),
                static_cast<std::size_t>((rows + page_rows - 1) / page_rows))
          << tokens << " tokens, ratio " << ratio;
    }
  }
  for (const std::int64_t edge : {4 * page_rows, 128 * page_rows}) {
    for (const std::int64_t tokens : {edge - 1, edge, edge + 3, edge + 4, edge + 127, edge + 128}) {
      SequenceCache at_once(cache);
      at_once.reserve(tokens);
      for (const int ratio : kRatios) {
        const std::int64_t rows = tokens / ratio;
        EXPECT_EQ(num_pages(at_once, ratio),
                  static_cast<std::size_t>((rows + page_rows - 1) / page_rows))
            << tokens << " tokens, ratio " << ratio;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PageRows, testing::Values(1, 2, 16, 64));

// The pool is sized so that the capacity fits however it is spread over the sessions.
TEST(SequenceCache, CapacityHoldsHoweverItIsSpread) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 3);
  for (const auto& split : {std::array<std::int64_t, 3>{1000, 0, 0},
                            {333, 333, 334},
                            {1, 998, 1},
                            {7, 9, 984},
                            {505, 494, 1}}) {
    SequenceCache a(cache), b(cache), c(cache);
    a.reserve(split[0]);
    b.reserve(split[1]);
    c.reserve(split[2]);
  }
}

TEST(SequenceCache, PagesOfSessionsAreDisjoint) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 2);
  SequenceCache a(cache), b(cache);
  for (int i = 0; i < 20; ++i) {
    for (SequenceCache* sequence : {&a, &b}) {
      sequence->reserve(17);
      sequence->advance(17);
    }
  }
  for (const int ratio : kRatios) {
    std::set<std::int32_t> pages(a.page_table(ratio).begin(), a.page_table(ratio).end());
    pages.insert(b.page_table(ratio).begin(), b.page_table(ratio).end());
    EXPECT_EQ(pages.size(), num_pages(a, ratio) + num_pages(b, ratio));
  }
  EXPECT_NE(a.state_idx(), b.state_idx());
}

TEST(SequenceCache, AReservationThatDoesNotFitChangesNothing) {
  MemoryBackend backend;
  // 16 pages of ratio 4 and 1 of ratio 128: 136 tokens of ratio 4, 2 rows of ratio 128.
  KvCache cache(backend, small_schema(2), 120, 1);
  SequenceCache sequence(cache);
  sequence.reserve(100);
  sequence.advance(100);
  const std::vector<std::int32_t> before(sequence.page_table(4).begin(),
                                         sequence.page_table(4).end());
  const std::int32_t free_4 = cache.paged.pages(4).num_free();
  const std::int32_t free_128 = cache.paged.pages(128).num_free();
  // Ratio 128 still fits (one page), ratio 4 does not: neither may be taken.
  EXPECT_EQ(error_code([&] { sequence.reserve(100); }), ErrorCode::kOverloaded);
  EXPECT_EQ(cache.paged.pages(4).num_free(), free_4);
  EXPECT_EQ(cache.paged.pages(128).num_free(), free_128);
  EXPECT_EQ(sequence.length(), 100);
  EXPECT_EQ(std::vector<std::int32_t>(sequence.page_table(4).begin(), sequence.page_table(4).end()),
            before);
  EXPECT_EQ(num_pages(sequence, 128), 0u);
  sequence.reserve(20);  // what does fit
  sequence.advance(20);
  EXPECT_EQ(sequence.length(), 120);
}

TEST(SequenceCache, ReservingAgainTakesNothing) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 1);
  SequenceCache sequence(cache);
  sequence.reserve(300);
  const std::size_t pages = num_pages(sequence, 4);
  sequence.reserve(300);
  sequence.reserve(0);
  sequence.reserve(299);
  EXPECT_EQ(num_pages(sequence, 4), pages);
  sequence.advance(300);
  EXPECT_EQ(sequence.length(), 300);
}

TEST(SequenceCacheDeathTest, UnreserveKeepsWhatCountedTokensNeed) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 1);
  const std::int32_t free_4 = cache.paged.pages(4).num_free();
  SequenceCache sequence(cache);
  sequence.reserve(300);
  sequence.advance(9);  // two rows of ratio 4: one page
  const std::int32_t first_page = sequence.page_table(4)[0];
  sequence.unreserve();
  EXPECT_EQ(num_pages(sequence, 4), 1u);
  EXPECT_EQ(sequence.page_table(4)[0], first_page);
  EXPECT_EQ(num_pages(sequence, 128), 0u);
  EXPECT_EQ(cache.paged.pages(4).num_free(), free_4 - 1);
  EXPECT_EQ(sequence.length(), 9);
  EXPECT_DEATH(sequence.advance(1), "");
  sequence.reserve(300);
  sequence.advance(300);
}

TEST(SequenceCache, GivesEverythingBack) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 1);
  const std::int32_t free_4 = cache.paged.pages(4).num_free();
  const std::int32_t free_128 = cache.paged.pages(128).num_free();
  {
    SequenceCache sequence(cache);
    sequence.reserve(500);
    sequence.advance(300);
    EXPECT_LT(cache.paged.pages(4).num_free(), free_4);
    EXPECT_EQ(error_code([&] { SequenceCache second(cache); }), ErrorCode::kOverloaded);
    sequence.clear();
    EXPECT_EQ(sequence.length(), 0);
    EXPECT_EQ(cache.paged.pages(4).num_free(), free_4);
    EXPECT_EQ(cache.paged.pages(128).num_free(), free_128);
    EXPECT_EQ(num_pages(sequence, 4), 0u);
    EXPECT_EQ(cache.state.states().num_free(), 0);  // the state stays with the session
    sequence.reserve(1000);
  }
  EXPECT_EQ(cache.paged.pages(4).num_free(), free_4);
  EXPECT_EQ(cache.paged.pages(128).num_free(), free_128);
  EXPECT_EQ(cache.state.states().num_free(), 1);
}

TEST(SequenceCache, MovesWithAllThatItHolds) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 2);
  const std::int32_t free_4 = cache.paged.pages(4).num_free();
  {
    SequenceCache a(cache);
    a.reserve(100);
    a.advance(90);
    const std::int32_t state = a.state_idx();
    const std::size_t pages = num_pages(a, 4);
    SequenceCache b(std::move(a));
    EXPECT_EQ(b.state_idx(), state);
    EXPECT_EQ(b.length(), 90);
    EXPECT_EQ(num_pages(b, 4), pages);

    SequenceCache c(cache);
    c.reserve(40);
    c = std::move(b);  // what c held goes back
    EXPECT_EQ(c.state_idx(), state);
    EXPECT_EQ(c.length(), 90);
    EXPECT_EQ(cache.paged.pages(4).num_free(), free_4 - static_cast<std::int32_t>(pages));
    EXPECT_EQ(cache.state.states().num_free(), 1);
    c.advance(10);  // the reservation moved, too
  }
  EXPECT_EQ(cache.paged.pages(4).num_free(), free_4);
  EXPECT_EQ(cache.state.states().num_free(), 2);
}

TEST(SequenceCacheDeathTest, CannotCountTokensWithoutRoom) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 1000, 1);
  SequenceCache sequence(cache);
  EXPECT_DEATH(sequence.advance(1), "");
  sequence.reserve(8);
  EXPECT_DEATH(sequence.advance(9), "");
  sequence.advance(8);
}

TEST(KvCache, GivesItsMemoryBack) {
  MemoryBackend backend;
  { KvCache cache(backend, small_schema(2), 1000, 1); }
  EXPECT_EQ(backend.allocated_bytes(), 0);
}

// The pages, the rings and the open groups, and nothing else.
TEST(KvCache, AllocatesWhatItsSchemaSays) {
  MemoryBackend backend;
  const CacheSchema schema = small_schema(16);
  KvCache cache(backend, schema, 4096, 3);
  std::int64_t bytes = 3 * schema.fixed_bytes();
  for (const int ratio : kRatios) {
    bytes += cache.paged.pages(ratio).capacity() * schema.page_bytes(ratio);
  }
  EXPECT_EQ(backend.allocated_bytes(), bytes);
}

}  // namespace
}  // namespace dsv4
