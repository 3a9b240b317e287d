// Refusals and cost of the indexer.
#include "ops/indexer.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op_checks.h"
#include "ops/row_checks.h"

namespace dsv4 {

void check(const IndexerParams& p) {
  const std::int64_t tokens = p.head_weights.rows;
  check_at_least("IndexerParams.num_heads", p.num_heads, 1);
  check_matrix("IndexerParams.head_weights", p.head_weights, kF32Format);
  check_equal("IndexerParams.head_weights.cols", p.head_weights.cols, "num_heads", p.num_heads);
  check_rows("IndexerParams.rows", p.rows, "its own width", p.rows.layout.width);
  check_rows("IndexerParams.queries", p.queries, "rows.layout.width", p.rows.layout.width);
  check_at_most("IndexerParams.head_weights.rows * num_heads", tokens * p.num_heads,
                "the rows of queries", num_slots(p.queries));
  check_at_least("IndexerParams.compress_ratio", p.compress_ratio, 1);
  check_at_least("IndexerParams.max_visible_rows", p.max_visible_rows, 0);
  check_at_least("IndexerParams.index_top_k", p.index_top_k, 1);
  check_at_least("IndexerParams.pages_stride", p.pages_stride, 0);
  const auto mapped_rows = checked_mul(p.pages_stride, p.rows.page_rows);
  require(mapped_rows.has_value() && p.max_visible_rows <= *mapped_rows, ErrorCode::kBadRequest,
          "IndexerParams.max_visible_rows is {}, must be at most pages_stride * rows.page_rows = "
          "{} * {}",
          p.max_visible_rows, p.pages_stride, p.rows.page_rows);
  if (p.index_scores.data != nullptr) {
    check_matrix("IndexerParams.index_scores", p.index_scores, kF32Format);
    check_equal("IndexerParams.index_scores.rows", p.index_scores.rows, "head_weights.rows",
                tokens);
    check_at_least("IndexerParams.index_scores.cols", p.index_scores.cols, p.max_visible_rows);
  }
  if (tokens == 0) return;
  check_pointer("IndexerParams.positions", p.positions, "[tokens]");
  check_pointer("IndexerParams.sequences", p.sequences, "[tokens]");
  check_pointer("IndexerParams.row_indices", p.row_indices, "[tokens, index_top_k]");
  if (p.max_visible_rows > 0) {
    check_pointer("IndexerParams.pages", p.pages, "[sequences, pages_stride]");
  }
}

// Every token counts as seeing max_visible_rows: how many it sees is known on the device only.
Cost cost(const IndexerParams& p) {
  const std::int64_t tokens = p.head_weights.rows;
  const std::int64_t scores = tokens * p.max_visible_rows;
  Cost cost;
  cost.flops =
      static_cast<double>(scores) * p.num_heads * static_cast<double>(2 * p.rows.layout.width + 2);
  cost.bytes_read = tokens * p.num_heads * p.queries.layout.row_bytes() +
                    std::min(scores, num_slots(p.rows)) * p.rows.layout.row_bytes() +
                    matrix_bytes(p.head_weights) + 8 * tokens;
  cost.bytes_written =
      4 * tokens * p.index_top_k + (p.index_scores.data == nullptr ? 0 : 4 * scores);
  return cost;
}

}  // namespace dsv4
