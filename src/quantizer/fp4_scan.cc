#include "quantizer/fp4_scan.h"

#include <algorithm>
#include <array>
#include <cmath>

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

// Block scales with which the largest code, and so perhaps another, is NaN or infinite.
std::array<bool, 256> suspicious_scales(const MatrixView& matrix) {
  std::array<bool, 256> suspicious{};
  for (std::size_t i = 0; i < suspicious.size(); ++i) {
    const auto scale = static_cast<std::uint8_t>(i);
    suspicious[i] =
        !is_finite(matrix.format == Format::kMxfp4 ? decode_mxfp4(7, scale)
                                                   : decode_nvfp4(7, scale, *matrix.global_scales));
  }
  return suspicious;
}

// Checks rows [begin, end) and returns the largest E8M0 code of an MXFP4 block that holds a nonzero
// code, or `largest` if that is larger.
int scan_rows(const NamedMatrix& matrix, const std::array<bool, 256>& suspicious,
              std::int64_t begin, std::int64_t end, int largest) {
  const MatrixView& view = matrix.view;
  const bool wants_largest = view.format == Format::kMxfp4;
  const std::int64_t block_bytes = view.block_cols / 2;
  for (std::int64_t row = begin; row < end; ++row) {
    const auto* codes = static_cast<const std::uint8_t*>(view.data) + row * view.row_stride / 2;
    const auto* scales =
        static_cast<const std::uint8_t*>(view.block_scales) + row * view.scale_stride;
    bool is_suspicious = false;
    for (std::int64_t col = 0, i = 0; col < view.cols; col += view.block_cols, ++i) {
      is_suspicious |= suspicious[scales[i]];
      if (!wants_largest || scales[i] <= largest) continue;
      const std::int64_t bytes = std::min(block_bytes, (view.cols - col) / 2);
      if (has_nonzero_code(codes + col / 2, bytes)) largest = scales[i];
    }
    if (is_suspicious) require_finite(matrix, row, row + 1);
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
    const std::array<bool, 256> suspicious = suspicious_scales(view);
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
