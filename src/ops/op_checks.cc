// The refusals common to all ops.
#include "ops/op_checks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/math.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

void check_quant_block(const FieldPath& field, const MatrixView& m, std::int64_t block_cols) {
  check_equal(field.member("block_rows"), m.block_rows, "1", 1);
  require(m.block_cols == block_cols, ErrorCode::kBadRequest,
          "{}.block_cols is {}, must be the quant block of {} = {}", field, m.block_cols,
          to_string(m.format), block_cols);
  require(m.cols % block_cols == 0, ErrorCode::kBadRequest,
          "{}.cols is {}, must be a multiple of {}, the quant block of {}", field, m.cols,
          block_cols, to_string(m.format));
  require(m.row_stride % 2 == 0, ErrorCode::kBadRequest,
          "{}.row_stride is {}, must be even: two codes share a byte", field, m.row_stride);
}

void check_scale_dtype(const FieldPath& field, const MatrixView& m,
                       std::initializer_list<DType> allowed) {
  if (std::find(allowed.begin(), allowed.end(), m.scale_dtype) != allowed.end()) return;
  std::string names;
  for (DType dtype : allowed) {
    names += (names.empty() ? "" : " or ");
    names += dtype_name(dtype);
  }
  fail(ErrorCode::kBadRequest, "{}.scale_dtype is {}, must be {} for {}", field,
       dtype_name(m.scale_dtype), names, to_string(m.format));
}

void check_scales(const FieldPath& field, const MatrixView& m) {
  check_at_least(field.member("block_rows"), m.block_rows, 1);
  check_at_least(field.member("block_cols"), m.block_cols, 1);
  if (m.format == Format::kMxfp4) {
    check_quant_block(field, m, kMxfp4QuantBlock);
    check_scale_dtype(field, m, {DType::kE8M0});
  } else if (m.format == Format::kNvfp4) {
    check_quant_block(field, m, kNvfp4QuantBlock);
    check_scale_dtype(field, m, {DType::kE4M3});
    require(m.global_scale_stride == 0 || m.global_scale_stride == 1, ErrorCode::kBadRequest,
            "{}.global_scale_stride is {}, must be 0 (one for the matrix) or 1 (one a row)", field,
            m.global_scale_stride);
  } else {
    check_scale_dtype(field, m, {DType::kE8M0, DType::kF32});
  }
  const std::int64_t scale_cols = ceil_div(m.cols, m.block_cols);
  require(m.scale_stride >= scale_cols, ErrorCode::kBadRequest,
          "{}.scale_stride is {}, must be at least the {} scales of a row", field, m.scale_stride,
          scale_cols);
  require(checked_mul(m.scale_stride, ceil_div(m.rows, m.block_rows)).has_value(),
          ErrorCode::kBadRequest, "{}.scale_stride is {}, times the rows it passes 2^63", field,
          m.scale_stride);
  if (m.empty()) return;
  check_pointer(field.member("block_scales"), m.block_scales, "the block scales");
  if (m.format == Format::kNvfp4) {
    check_pointer(field.member("global_scales"), m.global_scales, "the global scales");
  }
}

}  // namespace

std::string FormatSet::to_string() const {
  std::string names;
  for (Format format :
       {Format::kF32, Format::kBf16, Format::kE4m3, Format::kMxfp4, Format::kNvfp4}) {
    if (!contains(format)) continue;
    names += (names.empty() ? "" : ", ");
    names += dsv4::to_string(format);
  }
  return names;
}

void check_matrix(const FieldPath& field, const MatrixView& m, FormatSet allowed) {
  if (!allowed.contains(m.format)) {
    fail(ErrorCode::kBadRequest, "{}.format is {}, must be one of {}", field, to_string(m.format),
         allowed.to_string());
  }
  check_at_least(field.member("rows"), m.rows, 0);
  check_at_least(field.member("cols"), m.cols, 0);
  require(m.row_stride >= m.cols, ErrorCode::kBadRequest,
          "{}.row_stride is {}, must be at least cols = {}", field, m.row_stride, m.cols);
  const auto elements = checked_mul(m.rows, m.row_stride);
  require(elements.has_value() && checked_mul(*elements, 4).has_value(), ErrorCode::kBadRequest,
          "{} is {} rows of stride {}, must hold fewer than 2^61 elements", field, m.rows,
          m.row_stride);
  if (!m.empty()) check_pointer(field.member("data"), m.data, "[rows, cols]");
  if (is_quantized(m.format)) check_scales(field, m);
}

void check_activations(const FieldPath& field, const MatrixView& m, FormatSet allowed) {
  check_matrix(field, m, allowed);
  if (m.format != Format::kE4m3) return;
  check_equal(field.member("block_rows"), m.block_rows, "1", 1);
  check_equal(field.member("block_cols"), m.block_cols, "the quant block of E4M3 activations",
              kActivationQuantBlock);
}

void check_equal(const FieldPath& field, std::int64_t value, std::string_view requirement,
                 std::int64_t required) {
  require(value == required, ErrorCode::kBadRequest, "{} is {}, must be {} = {}", field, value,
          requirement, required);
}

void check_at_least(const FieldPath& field, std::int64_t value, std::int64_t minimum) {
  require(value >= minimum, ErrorCode::kBadRequest, "{} is {}, must be at least {}", field, value,
          minimum);
}

void check_at_most(const FieldPath& field, std::int64_t value, std::string_view requirement,
                   std::int64_t maximum) {
  require(value <= maximum, ErrorCode::kBadRequest, "{} is {}, must be at most {} = {}", field,
          value, requirement, maximum);
}

void check_not_negative(const FieldPath& field, double value) {
  require(value >= 0 && std::isfinite(value), ErrorCode::kBadRequest,
          "{} is {}, must be finite and at least 0", field, value);
}

void check_pointer(const FieldPath& field, const void* pointer, std::string_view shape) {
  require(pointer != nullptr, ErrorCode::kBadRequest, "{} is null, must point to {}", field, shape);
}

std::int64_t matrix_bytes(const MatrixView& m, std::int64_t rows) {
  std::int64_t bytes = rows * data_bytes(m.format, m.cols);
  if (is_quantized(m.format)) {
    bytes +=
        ceil_div(rows, m.block_rows) * ceil_div(m.cols, m.block_cols) * dtype_bytes(m.scale_dtype);
  }
  if (m.format == Format::kNvfp4) bytes += 4 * (m.global_scale_stride == 0 ? 1 : rows);
  return bytes;
}

}  // namespace dsv4
