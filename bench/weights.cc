#include "bench/weights.h"

#include <fmt/format.h>

#include <cmath>

#include "base/math.h"
#include "ops/op_checks.h"
#include "ops/sampling.h"
#include "tensor/matrix_codec.h"
#include "testing/tolerances.h"

namespace dsv4::bench {
namespace {

// Random bits kept where `random` has ones, `fixed` elsewhere.
void fill(std::vector<std::uint64_t>& words, std::uint64_t random, std::uint64_t fixed,
          std::uint64_t seed) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] = (mix_bits(seed + i * 0x9E3779B97F4A7C15u) & random) | fixed;
  }
}

std::int64_t data_words(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols) {
  return ceil_div(data_bytes(spec.format, rows * cols), 8);
}
std::int64_t scale_words(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols) {
  if (!is_quantized(spec.format)) return 0;
  return ceil_div(ceil_div(rows, spec.block_rows) * ceil_div(cols, spec.block_cols) *
                      dtype_bytes(spec.scale_dtype),
                  8);
}

}  // namespace

RandomWeights::RandomWeights(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols,
                             std::int64_t count)
    : spec_(spec),
      rows_(rows),
      cols_(cols),
      count_(count),
      data_(static_cast<std::size_t>(count * data_words(spec, rows, cols))),
      scales_(static_cast<std::size_t>(count * scale_words(spec, rows, cols))) {
  constexpr std::uint64_t kAll = ~std::uint64_t{0};
  switch (spec.format) {
    case Format::kF32:  // +-(0.125 .. 0.5)
      fill(data_, 0x80FFFFFF80FFFFFFu, 0x3E0000003E000000u, 1);
      break;
    case Format::kBf16:
      fill(data_, 0x80FF80FF80FF80FFu, 0x3E003E003E003E00u, 1);
      break;
    case Format::kE4m3:  // below 2, subnormals included
      fill(data_, 0xBFBFBFBFBFBFBFBFu, 0, 1);
      break;
    default:
      fill(data_, kAll, 0, 1);
  }
  switch (spec.scale_dtype) {
    case DType::kE8M0:  // 2^-7 .. 1
      fill(scales_, 0x0707070707070707u, 0x7878787878787878u, 2);
      break;
    case DType::kE4M3:  // 1/8 .. 2
      fill(scales_, 0x1F1F1F1F1F1F1F1Fu, 0x2020202020202020u, 2);
      break;
    default:
      fill(scales_, 0x00FFFFFF00FFFFFFu, 0x3C0000003C000000u, 2);
  }
}

MatrixView RandomWeights::view(std::int64_t idx) const {
  MatrixView view;
  view.data = data_.data() + idx * data_words(spec_, rows_, cols_);
  view.format = spec_.format;
  view.rows = rows_;
  view.cols = view.row_stride = cols_;
  if (!is_quantized(spec_.format)) return view;
  view.block_scales = scales_.data() + idx * scale_words(spec_, rows_, cols_);
  view.scale_dtype = spec_.scale_dtype;
  view.block_rows = spec_.block_rows;
  view.block_cols = spec_.block_cols;
  view.scale_stride = ceil_div(cols_, spec_.block_cols);
  if (spec_.format == Format::kNvfp4) view.global_scales = &global_scale_;
  return view;
}

double RandomWeights::bytes(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols) {
  return 8.0 * static_cast<double>(data_words(spec, rows, cols) + scale_words(spec, rows, cols));
}

namespace {

struct Dot {
  double sum = 0;
  double error = 0;  // what FP32 accumulation may add
};
Dot dot(const float* x, const MatrixView& w, std::int64_t row) {
  std::vector<float> weights(static_cast<std::size_t>(w.cols));
  decode_matrix_row(w, row, weights.data());
  Dot result;
  for (std::int64_t k = 0; k < w.cols; ++k) {
    const double product = static_cast<double>(x[k]) * weights[static_cast<std::size_t>(k)];
    result.sum += product;
    result.error += std::fabs(product) * testing::accumulation_bound(w.cols);
  }
  return result;
}

std::string compare(std::int64_t row, double got, double want, double tolerance) {
  if (std::fabs(got - want) <= tolerance) return {};
  return fmt::format("row {}: {} instead of {}, more than {} apart", row, got, want, tolerance);
}

}  // namespace

std::string compare_dot(const float* x, const MatrixView& w, std::int64_t row, float got) {
  const Dot want = dot(x, w, row);
  return compare(row, got, want.sum, want.error);
}

std::string compare_swiglu(const float* x, const MatrixView& gate, const MatrixView& up,
                           std::int64_t row, float got) {
  const Dot g = dot(x, gate, row);
  const Dot u = dot(x, up, row);
  const double silu = g.sum / (1 + std::exp(-g.sum));
  // |silu'| <= 1.1; a rounding to FP32 or two.
  const double tolerance = 1.1 * g.error * (std::fabs(u.sum) + u.error) +
                           std::fabs(silu) * u.error + std::fabs(silu * u.sum) * 0x1p-22;
  return compare(row, got, silu * u.sum, tolerance);
}

}  // namespace dsv4::bench
