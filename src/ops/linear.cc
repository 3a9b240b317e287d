// Refusals and costs of the linear layer and the embedding.
#include "ops/linear.h"

#include "base/error.h"
#include "base/math.h"
#include "ops/op_checks.h"

namespace dsv4 {

void check(const LinearParams& p) {
  check_activations("LinearParams.x", p.x, kActivationFormats);
  check_matrix("LinearParams.w", p.w, kWeightFormats);
  check_matrix("LinearParams.y", p.y, kPlainFormats);
  check_at_least("LinearParams.num_parts", p.num_parts, 1);
  require(p.w.rows % p.num_parts == 0, ErrorCode::kBadRequest,
          "LinearParams.w.rows is {}, must be a multiple of num_parts = {}", p.w.rows, p.num_parts);
  const auto k_total = checked_mul(p.w.cols, p.num_parts);
  require(k_total.has_value(), ErrorCode::kBadRequest,
          "LinearParams.w.cols is {}, times num_parts it passes 2^63", p.w.cols);
  check_equal("LinearParams.x.cols", p.x.cols, "num_parts * w.cols", *k_total);
  check_equal("LinearParams.y.rows", p.y.rows, "x.rows", p.x.rows);
  check_equal("LinearParams.y.cols", p.y.cols, "w.rows", p.w.rows);
}

Cost cost(const LinearParams& p) {
  return {2.0 * static_cast<double>(p.x.rows) * static_cast<double>(p.w.rows) *
              static_cast<double>(p.w.cols),
          matrix_bytes(p.x) + matrix_bytes(p.w), matrix_bytes(p.y)};
}

void check(const EmbeddingParams& p) {
  check_matrix("EmbeddingParams.table", p.table, kWeightFormats);
  check_matrix("EmbeddingParams.out", p.out, kPlainFormats);
  check_at_least("EmbeddingParams.num_copies", p.num_copies, 1);
  const auto copies = checked_mul(p.table.cols, p.num_copies);
  require(copies.has_value(), ErrorCode::kBadRequest,
          "EmbeddingParams.table.cols is {}, times num_copies it passes 2^63", p.table.cols);
  check_equal("EmbeddingParams.out.cols", p.out.cols, "num_copies * table.cols", *copies);
  if (p.out.rows > 0) check_pointer("EmbeddingParams.token_ids", p.token_ids, "[out.rows]");
}

Cost cost(const EmbeddingParams& p) {
  return {0, matrix_bytes(p.table, p.out.rows) + 4 * p.out.rows, matrix_bytes(p.out)};
}

}  // namespace dsv4
