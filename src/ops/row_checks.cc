#include "ops/row_checks.h"

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {

void check_rows(const FieldPath& field, const PagedRowsView& rows, std::string_view meaning,
                std::int64_t width) {
  const RowLayout& layout = rows.layout;
  check_equal(field.member("layout.width"), layout.width, meaning, width);
  check_at_least(field.member("layout.width"), layout.width, 1);
  if (layout.kind == RowKind::kAttentionFp8) {
    check_at_least(field.member("layout.rope_dim"), layout.rope_dim, 0);
    check_at_most(field.member("layout.rope_dim"), layout.rope_dim, "width", layout.width);
  }
  if (layout.kind == RowKind::kIndexerFp4) {
    require(layout.width % kIndexerFp4QuantBlock == 0, ErrorCode::kBadRequest,
            "{}.layout.width is {}, must be a multiple of {} for FP4 rows", field, layout.width,
            kIndexerFp4QuantBlock);
  }
  check_at_least(field.member("page_rows"), rows.page_rows, 1);
  check_at_least(field.member("num_pages"), rows.num_pages, 0);
  const auto page_bytes = checked_mul(rows.page_rows, layout.row_bytes());
  require(page_bytes.has_value() && rows.page_stride_bytes >= *page_bytes, ErrorCode::kBadRequest,
          "{}.page_stride_bytes is {}, must be at least page_rows * row_bytes = {} * {}", field,
          rows.page_stride_bytes, rows.page_rows, layout.row_bytes());
  require(checked_mul(rows.num_pages, rows.page_stride_bytes).has_value(), ErrorCode::kBadRequest,
          "{}.num_pages is {}, times page_stride_bytes {} it passes 2^63", field, rows.num_pages,
          rows.page_stride_bytes);
  if (rows.num_pages > 0) check_pointer(field.member("data"), rows.data, "the pages");
}

}  // namespace dsv4
