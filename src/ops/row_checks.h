// row_checks.h: refusals and sizes of row pools (PagedRowsView), common to the ops on cache rows.
//
// Matrices, extents and pointers: op_checks.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "ops/field_path.h"
#include "tensor/kv_rows.h"

namespace dsv4 {

// Throws Error(kBadRequest) unless a pool's layout, page extents and data fit together. `width` is
// what the op needs a row to hold, `meaning` its name.
void check_rows(const FieldPath& field, const PagedRowsView& rows, std::string_view meaning,
                std::int64_t width);

// Rows that the pool holds.
inline std::int64_t num_slots(const PagedRowsView& rows) { return rows.num_pages * rows.page_rows; }

}  // namespace dsv4
