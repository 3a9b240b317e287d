#include "ops/params_check.h"

#include <cmath>

namespace dsv4 {
namespace {

constexpr ErrorCode kBad = ErrorCode::kBadRequest;

void require_scales(const MatrixView& m, std::string_view field) {
  require(m.block_rows >= 1 && m.block_cols >= 1, kBad,
          "{} has scale blocks of {} x {}; at least 1 x 1 needed", field, m.block_rows,
          m.block_cols);
  const std::int64_t scale_cols = ceil_div(m.cols, m.block_cols);
  require(m.scale_stride >= scale_cols || m.rows <= m.block_rows, kBad,
          "{} has scale_stride {}; at least ceil(cols / block_cols) = {} needed", field,
          m.scale_stride, scale_cols);
  require(m.block_scales != nullptr || m.empty(), kBad, "{} has no block_scales", field);
  const bool fp8 = m.format == Format::kE4m3;
  if (fp8) {
    require(m.scale_dtype == DType::kE8M0 || m.scale_dtype == DType::kF32, kBad,
            "{} has {} scales; FP8 needs F8_E8M0 or F32", field, dtype_name(m.scale_dtype));
    return;
  }
  const bool nvfp4 = m.format == Format::kNvfp4;
  const DType wanted_dtype = nvfp4 ? DType::kE4M3 : DType::kE8M0;
  const std::int64_t wanted_cols = nvfp4 ? 16 : 32;
  require(m.scale_dtype == wanted_dtype, kBad, "{} has {} scales; {} needs {}", field,
          dtype_name(m.scale_dtype), to_string(m.format), dtype_name(wanted_dtype));
  require(m.block_rows == 1 && m.block_cols == wanted_cols, kBad,
          "{} has scale blocks of {} x {}; {} needs 1 x {}", field, m.block_rows, m.block_cols,
          to_string(m.format), wanted_cols);
  require(m.cols % 2 == 0 && m.row_stride % 2 == 0, kBad,
          "{} has {} columns and row_stride {}; packed formats need even ones", field, m.cols,
          m.row_stride);
  require(!nvfp4 || m.global_scales != nullptr || m.empty(), kBad, "{} has no global_scales",
          field);
  require(!nvfp4 || m.global_scale_stride >= 0, kBad,
          "{} has global_scale_stride {}; at least 0 needed", field, m.global_scale_stride);
}

}  // namespace

void require_at_least(std::int64_t value, std::int64_t least, std::string_view field) {
  require(value >= least, kBad, "{} is {}; at least {} needed", field, value, least);
}

void require_equal(std::int64_t value, std::int64_t wanted, std::string_view field,
                   std::string_view meaning) {
  require(value == wanted, kBad, "{} is {}; {} = {} needed", field, value, meaning, wanted);
}

void require_finite(float value, std::string_view field) {
  require(std::isfinite(value), kBad, "{} is {}; a finite number needed", field, value);
}

void require_pointer(const void* pointer, std::string_view field) {
  require(pointer != nullptr, kBad, "{} is null; device memory needed", field);
}

void require_valid_matrix(const MatrixView& m, std::string_view field) {
  require(m.rows >= 0 && m.cols >= 0, kBad, "{} is {} x {}; extents of at least 0 needed", field,
          m.rows, m.cols);
  require(m.row_stride >= m.cols || m.rows <= 1, kBad,
          "{} has row_stride {}; at least its {} columns needed", field, m.row_stride, m.cols);
  require(m.data != nullptr || m.empty(), kBad, "{} is {} x {} without data", field, m.rows,
          m.cols);
  if (is_quantized(m.format)) require_scales(m, field);
}

void require_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                    std::string_view field) {
  require(m.rows == rows && m.cols == cols, kBad, "{} is {} x {}; {} x {} needed", field, m.rows,
          m.cols, rows, cols);
  require_valid_matrix(m, field);
}

void require_plain_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                          std::string_view field) {
  require(!is_quantized(m.format), kBad, "{} is {}; F32 or BF16 needed", field,
          to_string(m.format));
  require_matrix(m, rows, cols, field);
}

void require_f32_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                        std::string_view field) {
  require(m.format == Format::kF32, kBad, "{} is {}; F32 needed", field, to_string(m.format));
  require_matrix(m, rows, cols, field);
}

void require_activations(const MatrixView& m, std::string_view field) {
  require(m.format != Format::kMxfp4, kBad, "{} is {}; F32, BF16, FP8 or NVFP4 needed", field,
          to_string(m.format));
  require_valid_matrix(m, field);
}

void require_valid_rows(const PagedRowsView& rows, std::string_view field) {
  const RowLayout& layout = rows.layout;
  require(layout.width >= 1, kBad, "{} has rows of {} values; at least 1 needed", field,
          layout.width);
  if (layout.kind == RowKind::kAttentionFp8) {
    require(layout.rope_dim >= 0 && layout.rope_dim <= layout.width, kBad,
            "{} has rope_dim {}; 0 to its width {} needed", field, layout.rope_dim, layout.width);
  }
  if (layout.kind == RowKind::kIndexerFp4) {
    require(layout.width % kIndexerFp4QuantBlock == 0, kBad,
            "{} has FP4 rows of {} values; a multiple of {} needed", field, layout.width,
            kIndexerFp4QuantBlock);
  }
  require(rows.page_rows >= 1, kBad, "{} has page_rows {}; at least 1 needed", field,
          rows.page_rows);
  const auto page_bytes = checked_mul(rows.page_rows, layout.row_bytes());
  require(page_bytes.has_value() && rows.page_stride_bytes >= *page_bytes, kBad,
          "{} has page_stride_bytes {}; at least page_rows * row_bytes = {} * {} needed", field,
          rows.page_stride_bytes, rows.page_rows, layout.row_bytes());
  require(rows.num_pages >= 0, kBad, "{} has num_pages {}; at least 0 needed", field,
          rows.num_pages);
  require(checked_mul(rows.num_pages, rows.page_stride_bytes).has_value(), kBad,
          "{} has {} pages of {} bytes; fewer than 2^63 bytes needed", field, rows.num_pages,
          rows.page_stride_bytes);
  require(rows.data != nullptr || rows.num_pages == 0, kBad, "{} has {} pages without data", field,
          rows.num_pages);
}

std::int64_t matrix_bytes(const MatrixView& m) {
  std::int64_t bytes = m.rows * data_bytes(m.format, m.cols);
  if (!is_quantized(m.format)) return bytes;
  bytes +=
      ceil_div(m.rows, m.block_rows) * ceil_div(m.cols, m.block_cols) * dtype_bytes(m.scale_dtype);
  if (m.format == Format::kNvfp4) bytes += 4 * (m.global_scale_stride == 0 ? 1 : m.rows);
  return bytes;
}

}  // namespace dsv4
