// params_check.h: what the `check` and `cost` functions of the contracts share: one form of refusal
// for extents, pointers, matrices and row pools. It follows no device pointer.
//
// A field's name is written as the params struct spells it, after the op: "attention: q".
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "tensor/kv_rows.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Each throws Error{kBadRequest} naming the field, its value and the requirement.
void require_at_least(std::int64_t value, std::int64_t least, std::string_view field);
void require_equal(std::int64_t value, std::int64_t wanted, std::string_view field,
                   std::string_view meaning);
void require_finite(float value, std::string_view field);
void require_pointer(const void* pointer, std::string_view field);

// The view contradicts itself nowhere: extents, strides, scales as its format wants them, and data
// unless it is empty.
void require_valid_matrix(const MatrixView& m, std::string_view field);
// Valid and [rows, cols]; `plain`: F32 or BF16.
void require_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                    std::string_view field);
void require_plain_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                          std::string_view field);
void require_f32_matrix(const MatrixView& m, std::int64_t rows, std::int64_t cols,
                        std::string_view field);
// Valid, and a format that ops take as activations: F32, BF16, FP8 or NVFP4.
void require_activations(const MatrixView& m, std::string_view field);

// Layout, page extents and data (unless there are no pages) of a row pool.
void require_valid_rows(const PagedRowsView& rows, std::string_view field);

// Bytes of a matrix, its scales included.
std::int64_t matrix_bytes(const MatrixView& m);

}  // namespace dsv4
