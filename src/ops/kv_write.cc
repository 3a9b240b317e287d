// Refusals and cost of writing cache rows.
#include "ops/kv_write.h"

#include "base/error.h"
#include "ops/op_checks.h"
#include "ops/row_checks.h"

namespace dsv4 {

void check(const KvWriteParams& p) {
  const std::int64_t width = p.rows.layout.width;
  check_rows("KvWriteParams.rows", p.rows, "its own width", width);
  check_at_least("KvWriteParams.rows_per_token", p.rows_per_token, 1);
  check_matrix("KvWriteParams.x", p.x, kPlainFormats);
  const auto row_values = checked_mul(p.rows_per_token, width);
  require(row_values.has_value() && p.x.cols == *row_values, ErrorCode::kBadRequest,
          "KvWriteParams.x.cols is {}, must be rows_per_token * rows.layout.width = {} * {}",
          p.x.cols, p.rows_per_token, width);
  require(!p.hadamard || is_power_of_two(width), ErrorCode::kBadRequest,
          "KvWriteParams.rows.layout.width is {}, must be a power of two for the Hadamard "
          "transform",
          width);
  if (p.rounding == RowRounding::kAttention) {
    check_at_least("KvWriteParams.rope_dim", p.rope_dim, 0);
    check_at_most("KvWriteParams.rope_dim", p.rope_dim, "rows.layout.width", width);
  }
  require(p.rounding != RowRounding::kIndexer || width % kIndexerFp4QuantBlock == 0,
          ErrorCode::kBadRequest,
          "KvWriteParams.rows.layout.width is {}, must be a multiple of {} for the indexer's "
          "rounding",
          width, kIndexerFp4QuantBlock);
  if (p.slots == nullptr) {
    check_at_most("KvWriteParams.x.rows", p.x.rows * p.rows_per_token,
                  "the pool's rows, where slots is null", num_slots(p.rows));
  }
}

Cost cost(const KvWriteParams& p) {
  const std::int64_t num_rows = p.x.rows * p.rows_per_token;
  const std::int64_t width = p.rows.layout.width;
  Cost cost;
  if (p.hadamard) {
    std::int64_t stages = 0;
    while ((std::int64_t{1} << stages) < width) ++stages;
    cost.flops = static_cast<double>(num_rows) * static_cast<double>(width * stages);
  }
  cost.bytes_read = matrix_bytes(p.x) + (p.slots == nullptr ? 0 : 8 * num_rows);
  cost.bytes_written = num_rows * p.rows.layout.row_bytes();
  return cost;
}

}  // namespace dsv4
