// The arrays of a step: where each token stands, and where its rows go.
#include "model/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/cache_fixtures.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

template <class T>
std::vector<T> values(const T* data, std::int64_t count) {
  return std::vector<T>(data, data + count);
}

TEST(StepPlan, PlacesEveryTokenOfEverySession) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(/*page_rows=*/2, /*ring_rows=*/40), 1000, 3);
  SequenceCache first(cache), second(cache);
  first.reserve(39);
  first.advance(39);
  first.reserve(3);
  second.reserve(1);
  const std::int32_t tokens[] = {5, 6, 7, 8};
  const StepSequence sequences[] = {{&first, 39, 3}, {&second, 0, 1}};
  const std::int32_t rows[] = {2, 3};
  StepArrays arrays(backend);
  const StepPlan plan = arrays.build(cache.schema, tokens, sequences, rows);

  EXPECT_EQ(plan.num_tokens, 4);
  EXPECT_EQ(plan.num_sequences, 2);
  EXPECT_EQ(plan.num_logits, 2);
  EXPECT_THAT(values(plan.token_ids, 4), ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(values(plan.positions, 4), ElementsAre(39, 40, 41, 0));
  EXPECT_THAT(values(plan.sequences, 4), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(values(plan.token_offsets, 3), ElementsAre(0, 3, 4));
  EXPECT_THAT(values(plan.all_tokens, 2), ElementsAre(0, 4));
  EXPECT_THAT(values(plan.state_idx, 2), ElementsAre(0, 1));
  EXPECT_THAT(values(plan.ring_slots, 4), ElementsAre(39, 0, 1, 40));
  EXPECT_THAT(values(plan.logits_rows, 2), ElementsAre(2, 3));

  // Token 39 closes group 9 of ratio 4: row 9 lies in page 4, row 1 of it.
  const StepPlan::Ratio& four = plan.ratios.at(4);
  const std::int64_t slot = first.page_table(4)[4] * 2 + 1;
  EXPECT_THAT(values(four.slots, 4), ElementsAre(slot, -1, -1, -1));
  EXPECT_THAT(values(four.row_positions, 4), ElementsAre(36, -1, -1, -1));
  EXPECT_EQ(four.max_visible_rows, 10);
  ASSERT_EQ(four.pages_stride, 5);
  EXPECT_EQ(values(four.pages, 5),
            std::vector<std::int32_t>(first.page_table(4).begin(), first.page_table(4).end()));
  EXPECT_THAT(values(four.pages + 5, 5), ElementsAre(-1, -1, -1, -1, -1));

  const StepPlan::Ratio& hca = plan.ratios.at(128);
  EXPECT_THAT(values(hca.slots, 4), ElementsAre(-1, -1, -1, -1));
  EXPECT_EQ(hca.max_visible_rows, 0);
  EXPECT_EQ(hca.pages_stride, 0);
}

TEST(StepPlan, OfNothingIsEmpty) {
  MemoryBackend backend;
  KvCache cache(backend, small_schema(2), 100, 1);
  StepArrays arrays(backend);
  const StepPlan plan = arrays.build(cache.schema, {}, {}, {});
  EXPECT_EQ(plan.num_tokens, 0);
  EXPECT_EQ(plan.num_sequences, 0);
  EXPECT_EQ(plan.num_logits, 0);
  EXPECT_EQ(plan.ratios.size(), 2u);
}

}  // namespace
}  // namespace dsv4
