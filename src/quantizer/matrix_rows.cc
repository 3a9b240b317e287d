#include "quantizer/matrix_rows.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "numerics/amax.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kMaxPieceRows = 4096;

std::int64_t scale_bytes(const MatrixView& matrix, std::int64_t count) {
  return count * (matrix.scale_dtype == DType::kF32 ? 4 : 1);
}

}  // namespace

MatrixView rows_of(const MatrixView& matrix, std::int64_t begin, std::int64_t end) {
  const std::int64_t tile = begin / matrix.block_rows;
  DSV4_CHECK(begin % matrix.block_rows == 0 || end <= (tile + 1) * matrix.block_rows,
             "rows {} to {} cut a tile of {} rows", begin, end, matrix.block_rows);
  MatrixView rows = matrix;
  rows.rows = end - begin;
  rows.data = static_cast<const std::byte*>(matrix.data) +
              data_bytes(matrix.format, matrix.row_stride) * begin;
  if (is_quantized(matrix.format)) {
    rows.block_scales = static_cast<const std::byte*>(matrix.block_scales) +
                        scale_bytes(matrix, tile * matrix.scale_stride);
  }
  return rows;
}

MatrixView columns_of(const MatrixView& matrix, std::int64_t begin, std::int64_t count) {
  MatrixView columns = matrix;
  columns.cols = count;
  columns.data = static_cast<const std::byte*>(matrix.data) + data_bytes(matrix.format, begin);
  if (is_quantized(matrix.format)) {
    columns.block_scales = static_cast<const std::byte*>(matrix.block_scales) +
                           scale_bytes(matrix, begin / matrix.block_cols);
  }
  return columns;
}

std::int64_t piece_end(const MatrixView& matrix, std::int64_t begin, std::int64_t end,
                       std::int64_t max_values) {
  const std::int64_t rows = std::clamp<std::int64_t>(
      max_values / std::max<std::int64_t>(1, matrix.cols), 1, kMaxPieceRows);
  const std::int64_t piece = std::min(end, begin + rows);
  if (begin % matrix.block_rows != 0) return std::min(piece, round_up(begin, matrix.block_rows));
  const std::int64_t last_tile = piece - piece % matrix.block_rows;
  return piece == end || last_tile <= begin ? piece : last_tile;
}

void require_finite(const NamedMatrix& matrix, std::int64_t begin, std::int64_t end) {
  std::vector<float> values(static_cast<std::size_t>(matrix.view.cols));
  for (std::int64_t row = begin; row < end; ++row) {
    decode_matrix_row(matrix.view, row, values.data());
    const auto bad = std::find_if_not(values.begin(), values.end(), is_finite);
    if (bad == values.end()) continue;
    fail(ErrorCode::kBadCheckpoint,
         "matrix {}: the value in row {}, column {} is {}; every weight must be finite",
         matrix.name, row, bad - values.begin(), *bad);
  }
}

}  // namespace dsv4
