// linear_cases.h: shapes and formats on which linear layers are tested and measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/linear.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct LinearCase {
  std::string name;
  std::int64_t m = 0;
  std::int64_t n = 0;  // of one part
  std::int64_t k = 0;  // of one part
  int num_parts = 1;
  MatrixSpec x = f32_spec();
  MatrixSpec w = f32_spec();
  MatrixSpec y = f32_spec();
  std::optional<std::int32_t> row_count;
};

// Every weight format with every activation format, at K that is no multiple of a tile (2880 and
// 1600 are real models'); rows, columns and K around the edges of 128-tiles; long sums; padded
// operands; parts.
inline std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> cases;
  for (const MatrixSpec& w : weight_specs()) {
    for (const MatrixSpec& x : activation_specs()) {
      cases.push_back({w.name + "_by_" + x.name, 2, 5, 1600, 1, x.padded(16), w.padded(32),
                       f32_spec().padded(3)});
    }
    cases.push_back({w.name + "_2880", 3, 129, 2880, 1, bf16_spec(), w, bf16_spec()});
    cases.push_back({w.name + "_parts", 3, 128, 192, 3, bf16_spec(), w, f32_spec()});
  }
  for (const std::int64_t edge : {1, 2, 7, 8, 9, 127, 128, 129}) {
    const std::string name = std::to_string(edge);
    cases.push_back({"m_" + name, edge, 3, 64});
    cases.push_back({"n_" + name, 2, edge, 64});
    cases.push_back({"k_" + name, 2, 3, edge});
  }
  for (const std::int64_t deep : {7168, 16384}) {
    cases.push_back({"k_" + std::to_string(deep), 2, 3, deep, 1, bf16_spec(), mxfp4_spec()});
  }
  cases.push_back({"fp8_parts_across_quant_blocks", 2, 4, 192, 2, fp8_spec(1, 128, DType::kE8M0),
                   fp8_spec(128, 128, DType::kE8M0)});
  return cases;
}

struct LinearInputs {
  HostMatrix x;
  HostMatrix w;
};
inline LinearInputs make_inputs(const LinearCase& c) {
  const std::int64_t k_total = c.num_parts * c.k;
  const std::int64_t n_total = c.num_parts * c.n;
  return {HostMatrix(c.x, c.m, k_total, normal_values(21, c.m * k_total)),
          HostMatrix(c.w, n_total, c.k, normal_values(22, n_total * c.k, 0.05))};
}

inline HostMatrix run_linear(Backend& backend, const LinearCase& c, const LinearInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix w(backend, in.w);
  const DeviceMatrix y(backend, HostMatrix(c.y, in.x.rows, in.w.rows));
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  LinearParams params;
  params.x = x.view();
  params.w = w.view();
  params.y = y.mutable_view();
  params.num_parts = c.num_parts;
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return y.read();
}

}  // namespace dsv4::testing
