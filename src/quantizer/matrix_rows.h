// matrix_rows.h: pieces of a matrix in host memory, and the refusal of values that no
// encoding can hold.
#pragma once

#include <cstdint>

#include "checkpoint/matrix_list.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Rows [begin, end) of a matrix without global scales a row. Where scales cover several rows, begin
// is the first row of a tile or all rows lie in one tile.
MatrixView rows_of(const MatrixView& matrix, std::int64_t begin, std::int64_t end);

// Columns [begin, begin + count) of all rows. Where scales cover several columns, they lie in one
// block of them, or begin with one.
MatrixView columns_of(const MatrixView& matrix, std::int64_t begin, std::int64_t count);

// The end of the piece that starts at row `begin`: what rows_of takes, at most `end`, and about
// `max_values` values or 4096 rows, but one row at least.
std::int64_t piece_end(const MatrixView& matrix, std::int64_t begin, std::int64_t end,
                       std::int64_t max_values);

// Throws Error kBadCheckpoint naming the first value in rows [begin, end) that is NaN or infinite.
// Plain: for rows of which something is known to be wrong.
void require_finite(const NamedMatrix& matrix, std::int64_t begin, std::int64_t end);

}  // namespace dsv4
