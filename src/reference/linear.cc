// Linear layers and the embedding lookup.
#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {

void ReferenceBackend::compute(const LinearParams& p, const OpContext&) {
  const std::int64_t rows = active_rows(p.row_count, p.x.rows);
  const std::int64_t part_rows = p.w.rows / p.num_parts;
  std::vector<std::vector<float>> x;
  for (std::int64_t m = 0; m < rows; ++m) x.push_back(decoded_row(p.x, m));
  // Each weight row is decoded once for all tokens, so the output fills by columns.
  for (std::int64_t n = 0; n < p.w.rows; ++n) {
    const std::vector<float> w = decoded_row(p.w, n);
    const std::int64_t part = n / part_rows;
    const MutableMatrixView y_column = plain_columns(p.y, n, 1);
    for (std::int64_t m = 0; m < rows; ++m) {
      const auto sum = static_cast<float>(
          dot(x[static_cast<std::size_t>(m)].data() + part * p.w.cols, w.data(), p.w.cols));
      store_matrix_row(y_column, m, &sum);
    }
  }
}

void ReferenceBackend::compute(const EmbeddingParams& p, const OpContext&) {
  for (std::int64_t token = 0; token < p.out.rows; ++token) {
    const std::int32_t token_id = p.token_ids[token];
    if (token_id == -1) continue;
    DSV4_CHECK(token_id >= 0 && token_id < p.table.rows, "token id {} of a vocabulary of {}",
               token_id, p.table.rows);
    const std::vector<float> row = decoded_row(p.table, token_id);
    for (int copy = 0; copy < p.num_copies; ++copy) {
      store_matrix_row(plain_columns(p.out, copy * p.table.cols, p.table.cols), token, row.data());
    }
  }
}

}  // namespace dsv4
