#include "quantizer/fp4_scan.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"
#include "quantizer/matrix_rows.h"
#include "quantizer/row_encoder.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kScanValues = std::int64_t{1} << 24;  // a sixteenth as many scales
constexpr std::int64_t kRowsAtATime = 64;
constexpr int kNone = -1;
// So that the largest block scale is 2^8, the largest power of two in E4M3.
constexpr int kLargestScaleExponent = 8;

// The magnitude bits of a block scale: larger for a larger scale, NaN on top.
std::uint8_t magnitude_bits(const MatrixView& matrix) {
  return matrix.format == Format::kMxfp4 ? 0xFF : 0x7F;
}

// The smallest block scale with which the largest code, and so perhaps another, is infinite or NaN.
int first_suspicious_scale(const MatrixView& matrix) {
  for (int scale = 0;; ++scale) {
    const auto byte = static_cast<std::uint8_t>(scale);
    const float largest = matrix.format == Format::kMxfp4
                              ? decode_mxfp4(7, byte)
                              : decode_nvfp4(7, byte, *matrix.global_scales);
    if (!is_finite(largest)) return scale;  // at NaN at the latest
  }
}

// Checks rows [begin, end) and returns the largest E8M0 code of an MXFP4 block that holds a nonzero
// code, or `largest` if that is larger. Most rows are done with the largest of their scales.
int scan_rows(const NamedMatrix& matrix, int first_suspicious, std::int64_t begin, std::int64_t end,
              int largest) {
  const MatrixView& view = matrix.view;
  const std::int64_t num_scales = ceil_div(view.cols, view.block_cols);
  const std::uint8_t mask = magnitude_bits(view);
  for (std::int64_t row = begin; row < end; ++row) {
    const auto* codes = static_cast<const std::uint8_t*>(view.data) + row * view.row_stride / 2;
    const auto* scales =
        static_cast<const std::uint8_t*>(view.block_scales) + row * view.scale_stride;
    std::uint8_t row_largest = 0;
    for (std::int64_t i = 0; i < num_scales; ++i) {
      row_largest = std::max(row_largest, static_cast<std::uint8_t>(scales[i] & mask));
    }
    if (row_largest >= first_suspicious) require_finite(matrix, row, row + 1);
    if (view.format != Format::kMxfp4 || row_largest <= largest) continue;
    for (std::int64_t i = 0; i < num_scales; ++i) {
      const std::int64_t col = i * view.block_cols;
      const std::int64_t bytes = std::min(view.block_cols, view.cols - col) / 2;
      if (scales[i] > largest && has_nonzero_code(codes + col / 2, bytes)) largest = scales[i];
    }
  }
  return largest;
}

}  // namespace

bool can_cast(const MatrixGroup& group) {
  return std::all_of(group.members.begin(), group.members.end(), [&](const NamedMatrix& matrix) {
    return is_packed(matrix.view.format) && matrix.view.format == group.members[0].view.format;
  });
}

float cast_global_scale(ThreadPool& pool, const MatrixGroup& group,
                        const RowsReadCallback& rows_read) {
  // Of each thread, so that the result does not depend on who saw what.
  std::vector<int> largest(static_cast<std::size_t>(pool.num_threads()), kNone);
  float largest_global_scale = 0;
  for (const NamedMatrix& matrix : group.members) {
    const MatrixView& view = matrix.view;
    const int suspicious = first_suspicious_scale(view);
    for (std::int64_t begin = 0, end = 0; begin < view.rows; begin = end) {
      end = piece_end(view, begin, view.rows, kScanValues);
      pool.parallel_for(end - begin, kRowsAtATime,
                        [&](std::int64_t first, std::int64_t last, int thread_idx) {
                          int& mine = largest[static_cast<std::size_t>(thread_idx)];
                          mine = scan_rows(matrix, suspicious, begin + first, begin + last, mine);
                        });
      if (rows_read) rows_read(matrix, begin, end);
    }
    if (view.format == Format::kNvfp4) {
      largest_global_scale = std::max(largest_global_scale, *view.global_scales);
    }
  }
  if (group.members[0].view.format == Format::kNvfp4) return largest_global_scale;
  const int code = *std::max_element(largest.begin(), largest.end());
  // 2^-135 at the least, which is an FP32 subnormal.
  return code == kNone ? 1.0f : std::ldexp(1.0f, code - kE8m0One - kLargestScaleExponent);
}

}  // namespace dsv4
