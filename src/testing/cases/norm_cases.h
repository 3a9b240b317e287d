// norm_cases.h: shapes on which the root-mean-square norm is tested and measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/norm.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct NormCase {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  MatrixSpec x = f32_spec();
  std::optional<MatrixSpec> weight = f32_spec();  // empty: no weight
  MatrixSpec out = f32_spec();
  float eps = 1e-6f;
  std::optional<std::int32_t> row_count;
};

// All combinations of plain formats, widths of real layers and around vector lengths, head rows.
inline std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const MatrixSpec& x : {f32_spec(), bf16_spec()}) {
    for (const MatrixSpec& out : {f32_spec(), bf16_spec()}) {
      const std::string name = x.name + "_to_" + out.name;
      cases.push_back({name + "_f32_weight", 3, 1536, x.padded(5), f32_spec(), out.padded(3)});
      cases.push_back({name + "_bf16_weight", 3, 4096, x, bf16_spec(), out});
      cases.push_back({name + "_heads", 64, 512, x, std::nullopt, out});
    }
  }
  for (const std::int64_t cols : {1, 2, 15, 16, 17, 7168}) {
    cases.push_back({"cols_" + std::to_string(cols), 2, cols});
  }
  return cases;
}

struct NormInputs {
  HostMatrix x;
  std::optional<HostMatrix> weight;
};
inline NormInputs make_inputs(const NormCase& c) {
  NormInputs in{HostMatrix(c.x, c.rows, c.cols, normal_values(31, c.rows * c.cols, 3)), {}};
  if (c.weight) in.weight = HostMatrix(*c.weight, 1, c.cols, uniform_values(32, c.cols, 0.5, 2));
  return in;
}

inline HostMatrix run_norm(Backend& backend, const NormCase& c, const NormInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix weight(backend, in.weight.value_or(HostMatrix(f32_spec(), 1, 0)));
  const DeviceMatrix out(backend, HostMatrix(c.out, in.x.rows, in.x.cols));
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  RmsNormParams params;
  params.x = x.view();
  if (in.weight) params.weight = weight.view();
  params.eps = c.eps;
  params.out = out.mutable_view();
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return out.read();
}

}  // namespace dsv4::testing
