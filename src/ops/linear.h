// linear.h: y = x W^T for weights and activations of any format, and the embedding lookup.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// With G = num_parts (1: an ordinary linear; the output groups of the attention's low-rank output
// projection otherwise): y[m, g N + n] = sum over k of x[m, g K + k] * w[g N + n, k].
//
// Quantised operands are decoded exactly and multiplied in at least FP32; weight formats: all;
// activations: kF32, kBf16, or quantised by ops/quantize.h (kE4m3 1 x 128, kNvfp4 1 x 16).
// Order: k ascending; the reference accumulates in FP64 and rounds once to y's format.
struct LinearParams {
  static constexpr std::string_view kOpName = "linear";
  MatrixView x;                             // [M, G * K]
  MatrixView w;                             // [G * N, K], K-major
  MutableMatrixView y;                      // [M, G * N], kF32 or kBf16
  int num_parts = 1;                        // G
  const std::int32_t* row_count = nullptr;  // [1] active rows of x; null: all
};
void check(const LinearParams& p);
Cost cost(const LinearParams& p);

// out[t] = num_copies copies of table[token_ids[t]], side by side (the residual copies of
// hyper-connections). A token id of -1 marks an inactive row. Ids were checked at the door.
struct EmbeddingParams {
  static constexpr std::string_view kOpName = "embedding";
  const std::int32_t* token_ids = nullptr;  // [tokens]
  MatrixView table;                         // [vocab, dim]
  int num_copies = 1;
  MutableMatrixView out;  // [tokens, num_copies * dim], kF32 or kBf16
};
void check(const EmbeddingParams& p);
Cost cost(const EmbeddingParams& p);

}  // namespace dsv4
