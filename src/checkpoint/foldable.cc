#include "checkpoint/foldable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "numerics/e4m3.h"
#include "numerics/e8m0.h"

namespace dsv4 {
namespace {

bool has_block_scales(const MatrixView& weight) { return is_packed(weight.format); }

std::int64_t scales_per_row(const MatrixView& weight) { return weight.cols / weight.block_cols; }

std::int64_t scale_bytes(const MatrixView& weight) {
  return has_block_scales(weight) ? weight.rows * scales_per_row(weight) : 0;
}

// k of x = 2^k; none for other values.
std::optional<int> power_of_two(float x) {
  int exponent = 0;
  if (!(x > 0) || std::frexp(x, &exponent) != 0.5f) return std::nullopt;
  return exponent - 1;
}

// Every 4-bit group's range so far.
struct WholeRange {
  ScaleExponents exponents;

  void add(const MatrixFold& fold) {
    const ScaleExponents& of_matrix = *fold.exponents;
    const MatrixView& view = fold.matrix.view;
    const std::optional<int> global =
        view.format == Format::kNvfp4 ? power_of_two(view.global_scales[0]) : 0;
    exponents.are_powers_of_two &= of_matrix.are_powers_of_two && global.has_value();
    if (of_matrix.empty() || !global.has_value()) return;
    exponents.include(of_matrix.low + *global);
    exponents.include(of_matrix.high + *global);
  }
};

}  // namespace

void ScaleExponents::include(int exponent) {
  const bool is_first = empty();
  low = is_first ? exponent : std::min(low, exponent);
  high = is_first ? exponent : std::max(high, exponent);
}

ScaleExponents scan_block_scales(const MatrixView& weight) {
  const auto* scales = static_cast<const std::uint8_t*>(weight.block_scales);
  std::array<bool, 256> seen{};
  const std::int64_t count = scales_per_row(weight);
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t i = 0; i < count; ++i) seen[scales[row * weight.scale_stride + i]] = true;
  }
  ScaleExponents result;
  for (int code = 0; code < 256; ++code) {
    if (!seen[static_cast<std::size_t>(code)]) continue;
    const auto byte = static_cast<std::uint8_t>(code);
    const bool is_nvfp4 = weight.format == Format::kNvfp4;
    if (is_nvfp4 && code == 0) continue;
    const std::optional<int> exponent =
        power_of_two(is_nvfp4 ? decode_e4m3(byte) : decode_e8m0(byte));
    if (exponent.has_value()) {
      result.include(*exponent);
    } else {
      result.are_powers_of_two = false;
    }
  }
  return result;
}

bool is_foldable(const MatrixView& weight) {
  return weight.format == Format::kNvfp4 && weight.block_scales != nullptr &&
         scan_block_scales(weight).fold();
}

std::string FoldReport::answer() const {
  std::int64_t quantized = 0, exact = 0;
  for (const FoldGroup& group : groups) {
    if (!is_quantized(group.format)) continue;
    quantized += group.matrices;
    exact += group.exact_in_fp8;
  }
  if (quantized == 0) return "needs BF16: no matrix is quantised";
  if (exact == quantized) return fmt::format("exact in FP8: all {} quantised matrices", quantized);
  return fmt::format("needs BF16: {} of {} quantised matrices do not fold into FP8",
                     quantized - exact, quantized);
}

FoldReport scan_folds(const ModelWeights& weights,
                      const std::function<void(std::int64_t, std::int64_t)>& progress) {
  FoldReport report;
  std::int64_t total_bytes = 0, done_bytes = 0;
  for (NamedMatrix& matrix : list_matrices(weights)) {
    total_bytes += scale_bytes(matrix.view);
    report.matrices.push_back({.matrix = std::move(matrix)});
  }
  std::vector<WholeRange> ranges;  // of report.groups
  for (MatrixFold& fold : report.matrices) {
    const NamedMatrix& matrix = fold.matrix;
    const Format format = matrix.view.format;
    auto group =
        std::find_if(report.groups.begin(), report.groups.end(), [&](const FoldGroup& candidate) {
          return std::tie(candidate.kind, candidate.is_draft, candidate.format) ==
                 std::tie(matrix.kind, matrix.is_draft, format);
        });
    if (group == report.groups.end()) {
      group = report.groups.insert(
          group, {.kind = matrix.kind, .is_draft = matrix.is_draft, .format = format});
      ranges.emplace_back();
    }
    fold.is_exact_in_fp8 = format == Format::kE4m3;
    if (has_block_scales(matrix.view)) {
      fold.exponents = scan_block_scales(matrix.view);
      fold.is_exact_in_fp8 = fold.exponents->fold();
      if (fold.exponents->are_powers_of_two)
        group->widest_span = std::max(group->widest_span.value_or(0), fold.exponents->span());
      ranges[static_cast<std::size_t>(group - report.groups.begin())].add(fold);
      done_bytes += scale_bytes(matrix.view);
      if (progress) progress(done_bytes, total_bytes);
    }
    ++group->matrices;
    group->exact_in_fp8 += fold.is_exact_in_fp8 ? 1 : 0;
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    FoldGroup& group = report.groups[i];
    if (is_packed(group.format) && ranges[i].exponents.are_powers_of_two)
      group.whole_span = ranges[i].exponents.span();
  }
  return report;
}

}  // namespace dsv4
