// The indexer on every backend: scores against the formula, and the selection against a sort of the
// scores that the same backend reports.
#include "ops/indexer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "testing/cases/indexer_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The rows to select by the contract: repeatedly the highest score left, the lowest row among
// equals, numbers before NaN; then in ascending order, then -1.
std::vector<std::int32_t> select_by_search(const std::vector<float>& scores, std::int64_t top_k) {
  std::vector<bool> taken(scores.size());
  const auto available = static_cast<std::int64_t>(scores.size());
  for (std::int64_t n = 0; n < std::min(top_k, available); ++n) {
    std::int64_t best = -1;
    for (std::size_t j = 0; j < scores.size(); ++j) {
      if (taken[j]) continue;
      const bool better = best < 0 || scores[j] > scores[best] ||
                          (std::isnan(scores[best]) && !std::isnan(scores[j]));
      if (better) best = static_cast<std::int64_t>(j);
    }
    taken[best] = true;
  }
  std::vector<std::int32_t> selected;
  for (std::size_t j = 0; j < scores.size(); ++j) {
    if (taken[j]) selected.push_back(static_cast<std::int32_t>(j));
  }
  selected.resize(static_cast<std::size_t>(top_k), -1);
  return selected;
}

// Scores of one token's visible rows.
std::vector<float> token_scores(const IndexerCase& c, const IndexerInputs& in,
                                const IndexerResult& result, std::int64_t t) {
  const auto begin = result.index_scores.begin() + t * (in.max_visible_rows + 1);
  return {begin, begin + IndexerInputs::visible(c, in.positions[t])};
}

void expect_selection(const IndexerCase& c, const IndexerInputs& in, const IndexerResult& result) {
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const auto begin = result.row_indices.begin() + t * c.index_top_k;
    const std::vector<std::int32_t> got(begin, begin + c.index_top_k);
    if (in.positions[t] < 0) {  // poison is -1 as well: nothing was written
      EXPECT_EQ(got, std::vector<std::int32_t>(got.size(), -1));
      continue;
    }
    EXPECT_EQ(got, select_by_search(token_scores(c, in, result, t), c.index_top_k))
        << "token " << t;
  }
}

struct Expectation {
  std::vector<double> scores;
  Tolerance fp32, fp64;
};

// Scores from the formula in long double; NaN, as the poison that stays, where nothing is visible.
Expectation expect_by_formula(const IndexerCase& c, IndexerInputs in) {
  Expectation e;
  e.fp32.relative = e.fp64.relative = one_ulp(Format::kF32);
  e.fp32.of_magnitude = accumulation_bound(c.width) + accumulation_bound(c.num_heads);
  e.fp64.of_magnitude = static_cast<double>(c.width + c.num_heads + 2) * 0x1p-53;
  const std::vector<float> weights = in.head_weights.values();
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const std::int64_t visible = IndexerInputs::visible(c, in.positions[t]);
    for (std::int64_t j = 0; j <= in.max_visible_rows; ++j) {
      long double score = 0;
      double magnitude = 0;
      for (std::int64_t h = 0; h < c.num_heads && j < visible; ++h) {
        const std::vector<float> q = in.queries.get(t * c.num_heads + h);
        const std::vector<float> row = in.rows.get(in.slot_of(c, in.sequences[t], j));
        long double product = 0;
        double product_magnitude = 0;
        for (std::int64_t i = 0; i < c.width; ++i) {
          product += static_cast<long double>(q[i]) * row[i];
          product_magnitude += std::fabs(double{q[i]} * row[i]);
        }
        const float weight = weights[t * c.num_heads + h] * IndexerInputs::kHeadWeightFactor;
        if (product > 0) score += weight * product;
        magnitude += std::fabs(double{weight}) * product_magnitude;
      }
      e.scores.push_back(j < visible ? static_cast<double>(score) : std::nan(""));
      e.fp32.magnitudes.push_back(magnitude);
    }
  }
  e.fp64.magnitudes = e.fp32.magnitudes;
  return e;
}

TEST_EACH_BACKEND(Indexer, MatchesReference) {
  for (const IndexerCase& c : indexer_cases()) {
    SCOPED_TRACE(c.name);
    const IndexerInputs in(c);
    const IndexerResult got = run_indexer(backend, c, in);
    const IndexerResult want = run_indexer(reference_backend(), c, in);
    EXPECT_CLOSE(got.index_scores, want.index_scores, expect_by_formula(c, in).fp32);
    expect_selection(c, in, got);
    if (c.whole_numbers) {  // every score is exact, so nothing excuses another selection
      EXPECT_EQ(got.index_scores.size(), want.index_scores.size());
      EXPECT_EQ(got.row_indices, want.row_indices);
    }
  }
}

TEST(Indexer, ReferenceFollowsTheFormula) {
  for (const IndexerCase& c : indexer_cases()) {
    SCOPED_TRACE(c.name);
    const IndexerInputs in(c);
    const Expectation e = expect_by_formula(c, in);
    EXPECT_CLOSE(run_indexer(reference_backend(), c, in).index_scores, e.scores, e.fp64);
  }
}

// One head of width 32 (the smallest FP4 row): row j scores scores[j], exactly.
struct ScoredRows {
  explicit ScoredRows(const std::vector<float>& scores, std::int64_t top_k) {
    c.num_heads = 1;
    c.width = 32;
    c.page_rows = 16;
    c.index_top_k = top_k;
    c.positions = {static_cast<std::int32_t>(4 * scores.size()) - 1};
    in.emplace(c);
    std::vector<float> x(32);
    x[0] = 1;
    in->queries.set(0, x);
    in->head_weights = HostMatrix(f32_spec(), 1, 1, {1});
    for (std::size_t j = 0; j < scores.size(); ++j) {
      x[0] = scores[j];
      in->rows.set(in->slot_of(c, 0, static_cast<std::int64_t>(j)), x);
    }
  }
  IndexerCase c;
  std::optional<IndexerInputs> in;
};

void expect_selected(Backend& backend, const std::vector<float>& scores, std::int64_t top_k,
                     const std::vector<std::int32_t>& want) {
  const ScoredRows rows(scores, top_k);
  const IndexerResult got = run_indexer(backend, rows.c, *rows.in);
  EXPECT_EQ(got.row_indices, want);
  expect_selection(rows.c, *rows.in, got);
}

TEST_EACH_BACKEND(Indexer, TiesAtTheCutGoToTheLowestRow) {
  expect_selected(backend, {1, 2, 2, 2, 3}, 3, {1, 2, 4});
  expect_selected(backend, {2, 2, 2, 2, 2}, 2, {0, 1});
  expect_selected(backend, {0, 0, 0, 0, 0}, 4, {0, 1, 2, 3});
  expect_selected(backend, {1, 1, 2, 1}, 2, {0, 2});
  expect_selected(backend, {-1, -5, 0, 0}, 3, {0, 1, 2});  // ReLU makes all of them 0
  std::vector<float> many(700, 1.0f);
  many[699] = 2;
  std::vector<std::int32_t> want(512);
  std::iota(want.begin(), want.end(), 0);
  want.back() = 699;
  expect_selected(backend, many, 512, want);
}

TEST_EACH_BACKEND(Indexer, EveryCutThroughManyTies) {
  std::vector<float> scores;
  Random random(1);
  for (int j = 0; j < 70; ++j) scores.push_back(static_cast<float>(random.index(4)));
  for (std::int64_t top_k = 1; top_k <= 72; ++top_k) {
    expect_selected(backend, scores, top_k, select_by_search(scores, top_k));
  }
}

TEST_EACH_BACKEND(Indexer, NanScoresComeLast) {
  expect_selected(backend, {kNan, 1, kNan, 0, 2}, 3, {1, 3, 4});
  expect_selected(backend, {kNan, 1, kNan, 0, 2}, 4, {0, 1, 3, 4});
  expect_selected(backend, {kNan, kNan, kNan}, 2, {0, 1});
  expect_selected(backend, {5, kNan}, 1, {0});
  expect_selected(backend, {kNan, 5}, 1, {1});
  expect_selected(backend, {kNan}, 2, {0, -1});
}

// Infinite scores are scores: -inf still counts above NaN, and rows of -inf are selected in order.
TEST_EACH_BACKEND(Indexer, InfiniteScores) {
  expect_selected(backend, {1, kInf, 2, kInf}, 2, {1, 3});
  ScoredRows rows({3e38f, 3e38f, 1, kNan}, 3);
  rows.in->head_weights = HostMatrix(f32_spec(), 1, 1, {-3e38f});
  IndexerResult got = run_indexer(backend, rows.c, *rows.in);
  EXPECT_EQ(got.row_indices, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(got.index_scores[0], -kInf);
  expect_selection(rows.c, *rows.in, got);
}

TEST_EACH_BACKEND(Indexer, AloneOrInABatchTheSameBits) {
  for (IndexerCase c : indexer_cases()) {
    if (c.positions.size() < 2) continue;
    SCOPED_TRACE(c.name);
    const IndexerInputs batch_in(c);
    const IndexerResult batch = run_indexer(backend, c, batch_in);
    const IndexerCase all = c;
    for (std::size_t t = 0; t < all.positions.size(); ++t) {
      if (all.positions[t] < 0) continue;
      c.positions = {all.positions[t]};
      c.sequences = {batch_in.sequences[t]};
      const IndexerInputs in(c);
      const IndexerResult alone = run_indexer(backend, c, in);
      const auto token = static_cast<std::int64_t>(t);
      EXPECT_SAME_BITS(token_scores(c, in, alone, 0), token_scores(all, batch_in, batch, token));
      const auto begin = batch.row_indices.begin() + token * c.index_top_k;
      EXPECT_EQ(alone.row_indices, std::vector<std::int32_t>(begin, begin + c.index_top_k));
    }
  }
}

// What is asked for beside the selection does not change it, nor does running again.
TEST_EACH_BACKEND(Indexer, SameSelectionWithoutScoresAndOnEveryRun) {
  for (const IndexerCase& c : indexer_cases()) {
    SCOPED_TRACE(c.name);
    const IndexerInputs in(c);
    const std::vector<std::int32_t> want = run_indexer(backend, c, in).row_indices;
    for (int i = 0; i < 20; ++i) {
      DeviceIndexer device(backend, c, in);
      if (i % 2 == 0) device.params.index_scores = {};
      ASSERT_EQ(device.run(backend).row_indices, want);
    }
  }
}

// A bound larger than any token needs must change nothing either.
TEST_EACH_BACKEND(Indexer, LooseBoundOnVisibleRows) {
  IndexerCase c = indexer_cases()[0];
  const IndexerInputs in(c);
  const std::vector<std::int32_t> want = run_indexer(backend, c, in).row_indices;
  DeviceIndexer device(backend, c, in);
  device.params.index_scores = {};
  device.params.max_visible_rows = in.pages_stride * c.page_rows;
  EXPECT_EQ(device.run(backend).row_indices, want);
}

// Page 2100 of pages a MiB apart lies past 2^31 bytes; untouched pages take no memory.
TEST_EACH_BACKEND(Indexer, PagesBeyond32BitOffsets) {
  if (!backend.uses_host_memory()) GTEST_SKIP() << "needs memory that is mapped but not backed";
  constexpr std::int64_t kStride = std::int64_t{1} << 20;
  constexpr std::int64_t kPages = 2'200;
  void* const memory = mmap(nullptr, kPages * kStride, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse mapping";
  auto* const pool = static_cast<std::byte*>(memory);
  IndexerCase c;
  c.positions = {150};
  const IndexerInputs in(c);
  const IndexerResult want = run_indexer(backend, c, in);
  DeviceIndexer device(backend, c, in);
  std::vector<std::int32_t> pages = in.pages;
  for (std::int32_t& page : pages) {
    if (page < 0) continue;
    std::copy_n(in.rows.bytes.begin() + page * in.rows.page_stride_bytes, in.rows.page_stride_bytes,
                pool + (2'100 + page) * kStride);
    page += 2'100;
  }
  device.pages.write(pages);
  device.params.rows.data = pool;
  device.params.rows.page_stride_bytes = kStride;
  device.params.rows.num_pages = kPages;
  const IndexerResult got = device.run(backend);
  EXPECT_EQ(got.row_indices, want.row_indices);
  EXPECT_SAME_BITS(got.index_scores, want.index_scores);
  munmap(memory, kPages * kStride);
}

TEST_EACH_BACKEND(Indexer, RefusalsNameTheField) {
  IndexerCase c;
  c.positions = {40, 41};
  const IndexerInputs in(c);
  const auto refusal = [&](auto change) -> std::string {
    DeviceIndexer device(backend, c, in);
    change(device.params);
    return refusal_of([&] { device.run(backend); });
  };
  using P = IndexerParams;
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal([](P&) {}), "accepted");
  EXPECT_THAT(refusal([](P& p) { p.num_heads = 0; }), HasSubstr("num_heads is 0"));
  EXPECT_THAT(refusal([](P& p) { p.num_heads = 3; }), HasSubstr("head_weights.cols is 4"));
  EXPECT_THAT(refusal([](P& p) { p.head_weights.format = Format::kBf16; }),
              HasSubstr("head_weights.format is BF16"));
  EXPECT_THAT(refusal([](P& p) { p.queries.layout.width = 32; }),
              HasSubstr("queries.layout.width is 32"));
  EXPECT_THAT(refusal([](P& p) { p.queries.num_pages = 1; }), HasSubstr("rows of queries = 4"));
  EXPECT_THAT(refusal([](P& p) { p.compress_ratio = 0; }), HasSubstr("compress_ratio is 0"));
  EXPECT_THAT(refusal([](P& p) { p.index_top_k = 0; }), HasSubstr("index_top_k is 0"));
  EXPECT_THAT(refusal([](P& p) { p.max_visible_rows = 1000; }),
              HasSubstr("max_visible_rows is 1000"));
  EXPECT_THAT(refusal([](P& p) { p.max_visible_rows = -1; }), HasSubstr("max_visible_rows is -1"));
  EXPECT_THAT(refusal([](P& p) { p.pages_stride = -1; }), HasSubstr("pages_stride is -1"));
  EXPECT_THAT(refusal([](P& p) { p.pages = nullptr; }), HasSubstr("pages is null"));
  EXPECT_THAT(refusal([](P& p) { p.row_indices = nullptr; }), HasSubstr("row_indices is null"));
  EXPECT_THAT(refusal([](P& p) { p.index_scores.cols = 2; }), HasSubstr("index_scores.cols is 2"));
}

}  // namespace
}  // namespace dsv4::testing
