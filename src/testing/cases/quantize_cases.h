// quantize_cases.h: shapes and values on which quantisation, of rows and of their SwiGLU, is tested
// and measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/quantize.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct QuantizeCase {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  MatrixSpec x = f32_spec();
  MatrixSpec out;
  E2m1Rounding rounding = E2m1Rounding::kNearestEven;
  bool four_over_six = false;
  std::vector<float> static_global_scales;     // empty: dynamic
  std::vector<std::int32_t> global_scale_idx;  // empty: none
  std::optional<std::int32_t> row_count;
  std::vector<std::int32_t> row_idx;  // empty: out row r from x row r

  std::int64_t out_rows(const HostMatrix& input) const {
    return row_idx.empty() ? input.rows : static_cast<std::int64_t>(row_idx.size());
  }
};

// Every output format, from FP32 and BF16, with padding, and the widths of real layers; FP8 also
// with rows that end within a quant block.
inline std::vector<QuantizeCase> quantize_cases() {
  const MatrixSpec fp8 = fp8_spec(1, 128, DType::kE8M0);
  std::vector<QuantizeCase> cases;
  for (const std::int64_t cols : {std::int64_t{128}, std::int64_t{2880}, std::int64_t{4096 + 32}}) {
    for (const MatrixSpec& out : {fp8, mxfp4_spec(), nvfp4_spec(true)}) {
      const std::string name = out.name + "_" + std::to_string(cols);
      cases.push_back({name + "_f32", 3, cols, f32_spec(), out});
      cases.push_back({name + "_bf16", 3, cols, bf16_spec().padded(8), out.padded(32)});
    }
  }
  for (const std::int64_t cols : {1, 127, 129}) {
    cases.push_back({"fp8_short_" + std::to_string(cols), 2, cols, f32_spec(), fp8.padded(2)});
  }
  // Rows that start anywhere, and rows of more than 8192 values, which a CTA takes in parts.
  for (const MatrixSpec& out : {fp8, mxfp4_spec(), nvfp4_spec(true)}) {
    cases.push_back({out.name + "_unaligned", 3, 160, bf16_spec().padded(3), out.padded(2)});
    cases.push_back({out.name + "_unaligned_f32", 3, 160, f32_spec().padded(1), out.padded(6)});
    for (const std::int64_t cols : {8192, 8192 + 32, 20'000}) {
      cases.push_back({out.name + "_" + std::to_string(cols), 2, cols, bf16_spec(), out});
    }
  }
  cases.push_back({"fp8_long_short", 2, 8192 + 17, bf16_spec().padded(7), fp8});
  // So many rows that a GPU takes kernels with more work a thread: whole threads, and some idle.
  for (const std::int64_t cols : {2048, 2048 + 16, 8192}) {
    QuantizeCase many{"nvfp4_many_rows_" + std::to_string(cols), 1024, cols, bf16_spec(),
                      nvfp4_spec(true)};
    cases.push_back(many);
    if (cols == 8192) continue;
    many.name += "_static";
    many.static_global_scales = {1e-3f};
    cases.push_back(many);
  }
  QuantizeCase half_step{"nvfp4_half_step", 4, 512, f32_spec(), nvfp4_spec(true)};
  half_step.rounding = E2m1Rounding::kHalfStep;
  cases.push_back(half_step);
  half_step = {
      "nvfp4_half_step_many_rows", 1024, 2048, bf16_spec().padded(8), nvfp4_spec(true).padded(32),
      E2m1Rounding::kHalfStep};
  cases.push_back(half_step);
  QuantizeCase fixed{"nvfp4_static", 4, 512, f32_spec(), nvfp4_spec(true)};
  fixed.static_global_scales = {0.25f, 1e-3f};
  cases.push_back(fixed);
  fixed.name = "nvfp4_static_by_row";
  fixed.global_scale_idx = {1, 0, 0, 1};
  cases.push_back(fixed);
  // As the rows of experts: tokens repeated, out of order, left out.
  for (const MatrixSpec& out : {fp8, mxfp4_spec(), nvfp4_spec(true)}) {
    QuantizeCase gathered{out.name + "_gathered", 4, 256, bf16_spec().padded(4), out};
    gathered.row_idx = {3, 3, 0, 1, 3};
    cases.push_back(gathered);
  }
  return cases;
}

// Both roundings, from FP32 and BF16, one global scale and one a row, with padding. 0.0025 is near
// amax / 1536 of normal values; the others make block scales saturate and vanish.
inline std::vector<QuantizeCase> four_over_six_cases() {
  std::vector<QuantizeCase> cases;
  for (const E2m1Rounding rounding : {E2m1Rounding::kNearestEven, E2m1Rounding::kHalfStep}) {
    const std::string name =
        rounding == E2m1Rounding::kHalfStep ? "four_over_six_half_step" : "four_over_six";
    QuantizeCase c{name, 6, 512, f32_spec(), nvfp4_spec(true), rounding, true};
    c.static_global_scales = {0.0025f, 1e-5f, 7.0f};
    c.global_scale_idx = {0, 0, 1, 1, 2, 2};
    cases.push_back(c);
    c.name += "_bf16";
    c.x = bf16_spec().padded(3);
    c.out = c.out.padded(2);
    c.cols = 16;
    cases.push_back(c);
    c.name += "_one_scale";
    c.cols = 2048 + 48;
    c.global_scale_idx.clear();
    cases.push_back(c);
  }
  return cases;
}

// Half the rows of heavy tails, so that block scales spread and E4M3 scales saturate.
inline std::vector<float> quantize_values(const QuantizeCase& c) {
  std::vector<float> values = normal_values(11, c.rows * c.cols);
  const std::vector<float> tails = heavy_tailed_values(12, c.rows * c.cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (static_cast<std::int64_t>(i) / c.cols % 2 == 1) values[i] = tails[i];
  }
  return values;
}

// The quantised matrix, as the backend leaves it.
inline HostMatrix run_quantize(Backend& backend, const QuantizeCase& c, const HostMatrix& x) {
  const DeviceMatrix x_on_device(backend, x);
  const DeviceMatrix out(backend, HostMatrix(c.out, c.out_rows(x), x.cols));
  const DeviceArray<float> scales(backend, c.static_global_scales);
  const DeviceArray<std::int32_t> scale_idx(backend, c.global_scale_idx);
  const DeviceArray<std::int32_t> row_idx(backend, c.row_idx);
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  QuantizeParams params;
  params.x = x_on_device.view();
  params.out = out.mutable_view();
  params.rounding = c.rounding;
  params.four_over_six = c.four_over_six;
  if (scales.size() > 0) params.static_global_scales = scales.data();
  if (scale_idx.size() > 0) params.global_scale_idx = scale_idx.data();
  if (row_idx.size() > 0) params.row_idx = row_idx.data();
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return out.read();
}

struct SwigluQuantizeCase {
  QuantizeCase quantize;  // x: what gate and up are stored as; no row_idx
  float swiglu_limit = 0;
  std::vector<float> row_weights;  // empty: none
  bool halves = true;              // of one GEMM's output; false: two matrices

  std::int64_t count() const { return quantize.rows * quantize.cols; }
};

// Every output format from FP32 and BF16, with and without clamp and weights, widths of real layers
// and rows that end within a quant block.
inline std::vector<SwigluQuantizeCase> swiglu_quantize_cases() {
  const MatrixSpec fp8 = fp8_spec(1, 128, DType::kE8M0);
  std::vector<SwigluQuantizeCase> cases;
  for (const std::int64_t cols : {128, 2048 + 32}) {
    for (const MatrixSpec& out : {fp8, mxfp4_spec(), nvfp4_spec(true)}) {
      const std::string name = out.name + "_" + std::to_string(cols);
      cases.push_back({{name + "_f32", 3, cols, f32_spec(), out}, 10, {}, false});
      cases.push_back({{name + "_bf16", 3, cols, bf16_spec().padded(8), out.padded(32)},
                       10,
                       {0.25f, 1.7f, 0.0f}});
    }
  }
  for (const std::int64_t cols : {1, 127, 129}) {
    cases.push_back({{"fp8_short_" + std::to_string(cols), 2, cols, bf16_spec(), fp8.padded(2)}});
  }
  QuantizeCase fixed{"nvfp4_static_by_row", 4, 512, bf16_spec(), nvfp4_spec(true)};
  fixed.static_global_scales = {0.25f, 1e-3f};
  fixed.global_scale_idx = {1, 0, 0, 1};
  cases.push_back({fixed, 7, {1, 2, 3, 4}});
  fixed.name = "nvfp4_half_step";
  fixed.rounding = E2m1Rounding::kHalfStep;
  cases.push_back({fixed});
  fixed.name = "nvfp4_some_rows";
  fixed.row_count = 3;
  cases.push_back({fixed, 7, {1, 2, 3, 4}});
  return cases;
}

// Gate and up of a case [count]. Gates reach past the clamp and past where silu vanishes.
struct SwigluValues {
  explicit SwigluValues(const SwigluQuantizeCase& c)
      : gate(normal_values(13, c.count(), 8)), up(heavy_tailed_values(14, c.count())) {
    for (std::size_t i = 0; i < gate.size(); i += 37) gate[i] *= 30;
  }
  std::vector<float> gate, up;
};

// The quantised matrix, as the backend leaves it.
inline HostMatrix run_swiglu_quantize(Backend& backend, const SwigluQuantizeCase& c,
                                      const SwigluValues& values) {
  const QuantizeCase& q = c.quantize;
  std::vector<float> both;
  for (std::int64_t row = 0; row < q.rows; ++row) {
    for (const std::vector<float>* half : {&values.gate, &values.up}) {
      both.insert(both.end(), half->begin() + row * q.cols, half->begin() + (row + 1) * q.cols);
    }
  }
  const DeviceMatrix halves(backend, HostMatrix(q.x, q.rows, 2 * q.cols, both));
  const DeviceMatrix gate(backend, HostMatrix(q.x, q.rows, q.cols, values.gate));
  const DeviceMatrix up(backend, HostMatrix(q.x.padded(6), q.rows, q.cols, values.up));
  const DeviceMatrix out(backend, HostMatrix(q.out, q.rows, q.cols));
  const DeviceArray<float> scales(backend, q.static_global_scales);
  const DeviceArray<std::int32_t> scale_idx(backend, q.global_scale_idx);
  const DeviceArray<float> row_weights(backend, c.row_weights);
  const DeviceArray<std::int32_t> row_count(backend, std::vector{q.row_count.value_or(-1)});
  SwigluQuantizeParams params;
  params.gate = gate.view();
  params.up = up.view();
  if (c.halves) {
    params.gate = halves.view();
    params.gate.cols = q.cols;
    params.up = params.gate;
    params.up.data = static_cast<const std::byte*>(params.gate.data) +
                     data_bytes(params.gate.format, params.gate.cols);
  }
  params.swiglu_limit = c.swiglu_limit;
  params.out = out.mutable_view();
  params.rounding = q.rounding;
  if (row_weights.size() > 0) params.row_weights = row_weights.data();
  if (scales.size() > 0) params.static_global_scales = scales.data();
  if (scale_idx.size() > 0) params.global_scale_idx = scale_idx.data();
  if (q.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return out.read();
}

}  // namespace dsv4::testing
