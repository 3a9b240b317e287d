// matmul.h: what the ops with weights share: scratch, activations made ready, sums stored.
//
// Tokens are taken in waves that fit the caches, and within a wave the threads share blocks of
// kUnitRows weight rows. Neither shows in the bits: every sum has one tree (lanes-inl.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/dot.h"
#include "cpu/scratch.h"
#include "tensor/matrix_view.h"

namespace dsv4::cpu {

inline constexpr std::int64_t kUnitRows = 32;

// Tokens of a wave of at most `tokens`, whose decoded rows have `width` elements: 1.2 MB of them,
// so that they fit an L2 cache beside a panel (waves of 256 tokens of 4096 and panels of 64 rows
// were as fast); whole tiles, and waves of about one size.
constexpr std::int64_t wave_tokens(std::int64_t width, std::int64_t tokens) {
  const std::int64_t fitting = 300'000 / std::max<std::int64_t>(width, 1) / 6 * 6;
  const std::int64_t largest = std::clamp<std::int64_t>(fitting, 24, 252);
  return tokens <= largest ? tokens : round_up(ceil_div(tokens, ceil_div(tokens, largest)), 6);
}

// Rows that an op computes: *row_count limited to 0 .. rows, or all of them without a count.
inline std::int64_t active_rows(const std::int32_t* row_count, std::int64_t rows) {
  return row_count == nullptr ? rows : std::clamp<std::int64_t>(*row_count, 0, rows);
}

// Activations x of a linear with `parts` parts, decoded and in the lane order that w wants.
struct Activations {
  Source x;
  std::int64_t k = 0;  // of one part
  int parts = 1;
  bool interleaved = false;

  std::int64_t width() const { return parts * padded(k); }  // of a prepared row
};

// Prepares row `row` into out [parts * padded(k)]; row_scratch is [padded(x.cols)].
void prepare_row(const DotKernels& kernels, const Activations& a, std::int64_t row,
                 float* row_scratch, float* out);

// table [kE2m1TableSize] = the source's table times its global scale, on a cache line.
void fill_table(const Source& source, float* table);
// Points the source to a table filled from it.
void use_table(Source& source, const float* table);

// y[row, col_begin ..] = values [n], rounded to y's format (F32 or BF16).
void store_values(const MutableMatrixView& y, std::int64_t row, std::int64_t col_begin,
                  const float* values, std::int64_t n);

}  // namespace dsv4::cpu
