// attention.h: V4's attention over cached rows (keys = values, two pools), and dense attention.
//
// Both: softmax over a head's attended rows together, with exp(attn_sink - max) in the denominator
// only; LSE is the natural log of the sum of exp(score) without the sink. With no attended row the
// output is 0 and the LSE -inf. Attended rows are taken in ascending order, window before
// compressed; the reference finds the maximum first, then sums in FP64. How a backend splits rows
// may depend on the token's own number of rows only. A sink of +-inf or +-3e38 is legal (+inf:
// output 0).
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/kv_rows.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Multi-query attention over cache rows that are keys and values at once.
//
// A token at position p of sequence s attends to
//   raw rows of positions max(0, p - window + 1) .. p; position q lies in row q % page_rows of page
//     raw_pages[s]: the page is the sequence's ring;
//   compressed rows j with compress_ratio * (j + 1) <= p + 1: all of them, or those of row_indices;
//     row j lies in row j % page_rows of page comp_pages[s, j / page_rows].
struct AttentionParams {
  static constexpr std::string_view kOpName = "attention";
  MatrixView q;  // [tokens, num_heads * head_dim], kF32 or kBf16
  int num_heads = 0;
  const std::int32_t* positions = nullptr;  // [tokens], -1: inactive
  const std::int32_t* sequences = nullptr;  // [tokens], index of the token's sequence

  PagedRowsView raw_rows;                   // width head_dim
  const std::int32_t* raw_pages = nullptr;  // [sequences]
  std::int64_t window = 0;                  // at most raw_rows.page_rows; 0: no raw rows

  int compress_ratio = 0;  // 0: no compressed rows, the rest of this part is not read
  PagedRowsView comp_rows;
  const std::int32_t* comp_pages = nullptr;  // [sequences, comp_pages_stride]
  std::int64_t comp_pages_stride = 0;
  const std::int32_t* row_indices = nullptr;  // [tokens, num_indices] ascending, then -1; null: all
  std::int64_t num_indices = 0;

  const float* attn_sink = nullptr;  // [num_heads]; null: none
  float softmax_scale = 0;           // head_dim^-1/2 in V4
  MutableMatrixView out;             // [tokens, num_heads * head_dim], kF32 or kBf16
  float* lse = nullptr;              // [tokens, num_heads]; null: not wanted
};
void check(const AttentionParams& p);
Cost cost(const AttentionParams& p);

// Dense attention over sequences laid end to end, any head counts (query heads h uses KV head
// h / (num_heads / num_kv_heads)). Causal: query i of the n of its sequence attends to keys up to
// (keys - n) + i, so that queries align with the end of the keys. window > 0: only the last
// `window` of those.
struct DenseAttentionParams {
  static constexpr std::string_view kOpName = "dense_attention";
  MatrixView q;  // [q_tokens, num_heads * head_dim]
  MatrixView k;  // [kv_tokens, num_kv_heads * head_dim]
  MatrixView v;  // [kv_tokens, num_kv_heads * value_dim]
  int num_heads = 0;
  int num_kv_heads = 0;
  int num_sequences = 0;
  const std::int32_t* q_offsets = nullptr;   // [num_sequences + 1]
  const std::int32_t* kv_offsets = nullptr;  // [num_sequences + 1]
  bool causal = true;
  std::int64_t window = 0;  // 0: no window; needs causal
  const float* attn_sink = nullptr;
  float softmax_scale = 0;
  MutableMatrixView out;  // [q_tokens, num_heads * value_dim]
  float* lse = nullptr;   // [q_tokens, num_heads]
};
void check(const DenseAttentionParams& p);
Cost cost(const DenseAttentionParams& p);

}  // namespace dsv4
