// kv_write.h: encodes FP32 rows into the slots of a row pool: window rows, compressed rows, index
// rows and index queries.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/kv_row_codec.h"
#include "tensor/kv_rows.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Row t of x goes to slots[t] of `rows`: optionally the Hadamard transform first (natural Sylvester
// order H_2n = [[H_n, H_n], [H_n, -H_n]], times width^-1/2; width a power of two), then `rounding`,
// then the encoding of the row kind (tensor/kv_row_codec.h). RoPE has been applied before.
struct KvWriteParams {
  static constexpr std::string_view kOpName = "kv_write";
  MatrixView x;                         // [n, heads * width], kF32 or kBf16
  std::int64_t rows_per_token = 1;      // heads: row t * heads + h of the pool order is x[t, h]
  const std::int64_t* slots = nullptr;  // [n * rows_per_token], -1: skipped; null: slot i = row i
  bool hadamard = false;
  RowRounding rounding = RowRounding::kNone;
  std::int64_t rope_dim = 0;  // RowRounding::kAttention: the last values that round to BF16
  MutablePagedRowsView rows;
};
void check(const KvWriteParams& p);
Cost cost(const KvWriteParams& p);

}  // namespace dsv4
