// indexer.h: scores a token's visible compressed rows cheaply and selects the rows to attend to.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/kv_rows.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// index_score[t, j] = sum over heads, ascending, of w[t, h] * relu(query[t, h] . row[j]), with w =
// head_weights * head_weight_factor in FP32, for rows j with compress_ratio * (j + 1) <= p + 1
// (reference: both sums in FP64, rounded once). Selected: the min(index_top_k, visible) highest,
// ties to the lower row; a NaN score counts below every number. row_indices lists them in ascending
// order, then -1. Scores are never held for more than a bounded tile of rows and tokens (the
// workspace). Of index_scores, where wanted, only a token's visible columns are written. relu(NaN)
// is NaN.
struct IndexerParams {
  static constexpr std::string_view kOpName = "indexer";
  PagedRowsView queries;         // slot t * num_heads + h; any row kind, written by ops/kv_write.h
  MatrixView head_weights;       // [tokens, num_heads], kF32
  float head_weight_factor = 1;  // index_head_dim^-1/2 * num_heads^-1/2 in V4
  int num_heads = 0;
  const std::int32_t* positions = nullptr;  // [tokens], -1: inactive
  const std::int32_t* sequences = nullptr;  // [tokens]
  PagedRowsView rows;                       // index rows of all sequences
  const std::int32_t* pages = nullptr;      // [sequences, pages_stride]
  std::int64_t pages_stride = 0;
  int compress_ratio = 0;
  std::int64_t max_visible_rows = 0;  // bound over the step's tokens, known on the host
  std::int64_t index_top_k = 0;
  std::int32_t* row_indices = nullptr;  // out [tokens, index_top_k]
  MutableMatrixView index_scores;       // out [tokens, >= max_visible_rows]; data null: not wanted
};
void check(const IndexerParams& p);
Cost cost(const IndexerParams& p);

}  // namespace dsv4
