// indexer_cases.h: shapes of the indexer, shared by tests and benches, and inputs for them in which
// every row that no token sees is NaN.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ops/indexer.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"
#include "testing/test_rows.h"

namespace dsv4::testing {

struct IndexerCase {
  std::string name;
  int num_heads = 4;
  std::int64_t width = 64;
  RowKind query_kind = RowKind::kF32;
  RowKind row_kind = RowKind::kF32;
  int compress_ratio = 4;
  std::int64_t page_rows = 16;
  std::int64_t index_top_k = 8;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequences;  // empty: all tokens are of sequence 0
  // Small whole numbers instead of normal ones: every score is exact in FP32, and ties abound.
  bool whole_numbers = false;
};

inline std::vector<IndexerCase> indexer_cases() {
  std::vector<IndexerCase> cases;
  const auto add = [&](const std::string& name, auto change) {
    IndexerCase c;
    c.name = name;
    change(c);
    cases.push_back(c);
  };
  add("groups_end", [](auto& c) { c.positions = {0, 1, 2, 3, 4, 6, 7, 8, 62, 63, 64}; });
  for (const std::int64_t page_rows : {2, 16, 32, 64, 256}) {
    add("pages_of_" + std::to_string(page_rows), [&](auto& c) {
      c.page_rows = page_rows;
      // 63, 64, 65, 127, 128 and 129 rows, each in a sequence of its own.
      c.positions = {4 * 63 - 1, 4 * 64 - 1, 4 * 65 - 1, 4 * 127 - 1, 4 * 128 - 1, 4 * 129 - 1};
      c.sequences = {0, 1, 2, 3, 4, 5};
      c.index_top_k = 64;
    });
  }
  for (const RowKind kind : {RowKind::kBf16, RowKind::kIndexerFp8, RowKind::kIndexerFp4}) {
    add("row_kind_" + std::to_string(static_cast<int>(kind)), [&](auto& c) {
      c.num_heads = 64;
      c.width = 128;
      c.query_kind = c.row_kind = kind;
      c.page_rows = 64;
      c.index_top_k = 40;
      c.positions = {400, 401, 402, 403};
    });
  }
  add("fp4_queries_over_fp8_rows", [](auto& c) {
    c.query_kind = RowKind::kIndexerFp4;
    c.row_kind = RowKind::kIndexerFp8;
    c.positions = {255};
  });
  add("one_head", [](auto& c) {
    c.num_heads = 1;
    c.positions = {99};
  });
  for (const std::int64_t top_k : {1, 24, 25, 26, 64}) {
    add("top_" + std::to_string(top_k) + "_of_25", [&](auto& c) {
      c.index_top_k = top_k;
      c.positions = {99, 100};
      c.whole_numbers = true;
    });
  }
  add("released_selection", [](auto& c) {
    c.index_top_k = 512;
    c.positions = {4 * 511 - 1, 4 * 512 - 1, 4 * 513 - 1, 2999};
    c.whole_numbers = true;
    c.page_rows = 64;
  });
  add("nothing_visible_in_a_batch", [](auto& c) {
    for (std::int32_t s = 0; s < 32; ++s) {
      c.positions.push_back(s % 3);
      c.sequences.push_back(s);
    }
  });
  add("inactive_tokens", [](auto& c) {
    c.positions = {-1, 40, -1};
    c.sequences = {-1, 0, -1};
  });
  add("no_token", [](auto&) {});
  return cases;
}

// Numbers that depend on the seed only: the same row in whatever batch it appears.
inline std::vector<float> indexer_values(const IndexerCase& c, std::uint64_t seed,
                                         std::int64_t count) {
  if (!c.whole_numbers) return normal_values(seed, count);
  Random random(seed);
  std::vector<float> x;
  // Rarely not zero, so that many rows score exactly 0.
  for (std::int64_t i = 0; i < count; ++i) {
    x.push_back(random.index(8) == 0 ? static_cast<float>(random.index(5) - 2) : 0.0f);
  }
  return x;
}

struct IndexerInputs {
  explicit IndexerInputs(const IndexerCase& c)
      : tokens(static_cast<std::int64_t>(c.positions.size())),
        positions(c.positions),
        sequences(c.sequences.empty() ? std::vector<std::int32_t>(c.positions.size())
                                      : c.sequences),
        num_sequences(tokens == 0 ? 1 : *std::max_element(sequences.begin(), sequences.end()) + 1),
        max_visible_rows(
            tokens == 0 ? 0 : visible(c, *std::max_element(positions.begin(), positions.end()))),
        pages_stride(ceil_div(max_visible_rows, c.page_rows) + 1),
        queries({c.query_kind, c.width}, std::max(c.num_heads, 1),
                std::max<std::int64_t>(tokens, 1)),
        head_weights(f32_spec().padded(3), tokens, c.num_heads, weights(c)),
        rows({c.row_kind, c.width}, c.page_rows, num_sequences * pages_stride + 1, 128) {
    pages.assign(static_cast<std::size_t>(num_sequences * pages_stride), -1);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (positions[t] < 0) continue;
      for (std::int64_t h = 0; h < c.num_heads; ++h) {
        const auto seed = static_cast<std::uint64_t>(positions[t] * 1000 + h);
        queries.set(t * c.num_heads + h, indexer_values(c, seed, c.width));
      }
      for (std::int64_t j = 0; j < visible(c, positions[t]); ++j) {
        const auto seed = static_cast<std::uint64_t>((sequences[t] + 7) << 24 | j);
        rows.set(slot_of(c, sequences[t], j), indexer_values(c, seed, c.width));
      }
    }
  }
  static std::int64_t visible(const IndexerCase& c, std::int64_t pos) {
    std::int64_t count = 0;
    while (c.compress_ratio * (count + 1) <= pos + 1) ++count;
    return count;
  }
  // Where row j of a sequence lies; its page enters the table.
  std::int64_t slot_of(const IndexerCase& c, std::int64_t sequence, std::int64_t j) {
    const std::int64_t entry = sequence * pages_stride + j / c.page_rows;
    const std::int64_t page = rows.num_pages - 1 - entry;
    pages[entry] = static_cast<std::int32_t>(page);
    return page * c.page_rows + j % c.page_rows;
  }
  static std::vector<float> weights(const IndexerCase& c) {
    std::vector<float> result;
    for (const std::int32_t pos : c.positions) {
      for (int h = 0; h < c.num_heads; ++h) {
        const auto seed = static_cast<std::uint64_t>(pos * 1000 + h + 500);
        result.push_back(c.whole_numbers ? static_cast<float>(Random(seed).index(5) - 2)
                                         : normal_values(seed, 1)[0]);
      }
    }
    return result;
  }

  std::int64_t tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequences;
  std::int64_t num_sequences;
  std::int64_t max_visible_rows;
  std::int64_t pages_stride;
  HostRows queries;
  // Not a power of two: leaving it out, or rounding elsewhere, shows.
  static constexpr float kHeadWeightFactor = 0.3f;
  HostMatrix head_weights;
  HostRows rows;
  std::vector<std::int32_t> pages;
};

struct IndexerResult {
  std::vector<std::int32_t> row_indices;
  std::vector<float> index_scores;
};

// The inputs on a device.
class DeviceIndexer {
 public:
  DeviceIndexer(Backend& backend, const IndexerCase& c, const IndexerInputs& in)
      : queries(backend, in.queries),
        head_weights(backend, in.head_weights),
        positions(backend, in.positions),
        sequences(backend, in.sequences),
        rows(backend, in.rows),
        pages(backend, in.pages),
        row_indices(backend, in.tokens * c.index_top_k),
        index_scores(backend,
                     HostMatrix(f32_spec().padded(2), in.tokens, in.max_visible_rows + 1)) {
    params.queries = queries.view();
    params.head_weights = head_weights.view();
    params.head_weight_factor = IndexerInputs::kHeadWeightFactor;
    params.num_heads = c.num_heads;
    params.positions = positions.data();
    params.sequences = sequences.data();
    params.rows = rows.view();
    params.pages = pages.data();
    params.pages_stride = in.pages_stride;
    params.compress_ratio = c.compress_ratio;
    params.max_visible_rows = in.max_visible_rows;
    params.index_top_k = c.index_top_k;
    params.row_indices = row_indices.data();
    params.index_scores = index_scores.mutable_view();
  }
  IndexerResult run(Backend& backend) {
    run_op(backend, params);
    return {row_indices.read(), index_scores.values()};
  }

  IndexerParams params;
  DeviceRows queries;
  DeviceMatrix head_weights;
  DeviceArray<std::int32_t> positions;
  DeviceArray<std::int32_t> sequences;
  DeviceRows rows;
  DeviceArray<std::int32_t> pages;
  DeviceArray<std::int32_t> row_indices;
  DeviceMatrix index_scores;
};

inline IndexerResult run_indexer(Backend& backend, const IndexerCase& c, const IndexerInputs& in) {
  return DeviceIndexer(backend, c, in).run(backend);
}

}  // namespace dsv4::testing
