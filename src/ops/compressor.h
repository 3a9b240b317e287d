// compressor.h: pools the KV of compression groups into compressed rows, across any chunking.
//
// Two ops share one picture. CompressParams emits the rows of groups that the step's tokens close
// and leaves the state alone; CompressorCommitParams folds accepted tokens into the state. A
// rejected token is simply never committed.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// The tokens of a step and the state they continue, common to both ops.
//
// For a token at p: v = values row, s = scores row + ape[p % ratio], FP32, of width
// c = 2 row_dim (overlapping) or row_dim.
//   not overlapping (HCA): the running softmax of group p / ratio, a left fold over its tokens per
//     channel: m' = max(m, s), sum' = sum e^(m-m') + e^(s-m'), acc' = acc e^(m-m') + e^(s-m') v.
//     State: m [c], sum [c], acc [c]. The first token of a group starts afresh.
//   overlapping (CSA, indexer): 2 ratio entries per channel: channels [0, d) of the previous
//   group's
//     tokens, [d, 2d) of this group's; softmax over them in ascending position. Group -1 does not
//     exist. State: ring of 2 ratio tokens, token p at p % (2 ratio): v [c], s [c] (ape added).
// State of a group that no committed token has touched is never read: it may hold anything.
struct CompressorTokens {
  int compress_ratio = 0;
  bool overlapping = false;
  std::int64_t row_dim = 0;                 // d
  MatrixView values;                        // [tokens, c], kF32
  MatrixView scores;                        // [tokens, c], kF32, without ape
  const float* ape = nullptr;               // [compress_ratio, c]
  const std::int32_t* positions = nullptr;  // [tokens], consecutive within a sequence; -1: inactive
                                            // (only behind the active tokens of its sequence)
  int num_sequences = 0;
  const std::int32_t* token_offsets = nullptr;  // [num_sequences + 1], each sequence's tokens
  const std::int32_t* state_idx = nullptr;      // [num_sequences], which state it continues
  std::int64_t state_stride = 0;                // floats from state to state
};
// Floats of one state: 3 c, or 2 ratio * 2 c.
std::int64_t compressor_state_floats(int compress_ratio, bool overlapping, std::int64_t row_dim);

// rows[t] is written iff token t closes a group ((p + 1) % ratio == 0): the pooled row after
// RMSNorm(norm_weight, eps), before RoPE. Other rows of `rows` are left as they are.
struct CompressParams {
  static constexpr std::string_view kOpName = "compress";
  CompressorTokens tokens;
  const float* states = nullptr;  // [.., state_stride]
  MatrixView norm_weight;         // [1, row_dim]
  float eps = 0;
  MutableMatrixView rows;  // [tokens, row_dim], kF32
};
void check(const CompressParams& p);
Cost cost(const CompressParams& p);

struct CompressorCommitParams {
  static constexpr std::string_view kOpName = "compressor_commit";
  CompressorTokens tokens;
  const std::int32_t* num_accepted =
      nullptr;              // [num_sequences] leading tokens to fold; null: all active
  float* states = nullptr;  // [.., state_stride], updated
};
void check(const CompressorCommitParams& p);
Cost cost(const CompressorCommitParams& p);

}  // namespace dsv4
