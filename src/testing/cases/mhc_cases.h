// mhc_cases.h: shapes on which hyper-connections are tested and measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/mhc.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct MhcCase {
  std::string name;
  std::int64_t tokens = 0;
  std::int64_t dim = 0;
  int copies = 4;
  MatrixSpec x = f32_spec();
  MatrixSpec out = f32_spec();
  std::optional<MatrixSpec> norm_weight = f32_spec();  // empty: no norm
  int sinkhorn_iters = 20;
  float hc_eps = 1e-6f;
  float norm_eps = 1e-6f;
  std::optional<std::int32_t> row_count;

  std::int64_t num_mixes() const { return std::int64_t{2 + copies} * copies; }
};

// Formats, other numbers of copies, few iterations, and an hc_eps so large that it shows.
inline std::vector<MhcCase> mhc_cases() {
  std::vector<MhcCase> cases;
  for (const MatrixSpec& x : {f32_spec(), bf16_spec()}) {
    for (const MatrixSpec& out : {f32_spec(), bf16_spec()}) {
      const std::string name = x.name + "_to_" + out.name;
      cases.push_back({name, 3, 256, 4, x.padded(7), out.padded(5), bf16_spec()});
      cases.push_back({name + "_no_norm", 3, 100, 4, x, out, std::nullopt});
    }
  }
  cases.push_back({"flash", 2, 4096});
  for (const int copies : {1, 2, 3, 5, 8}) {
    cases.push_back({"copies_" + std::to_string(copies), 2, 33, copies});
  }
  for (const int iters : {1, 2, 3}) {
    MhcCase c{"iters_" + std::to_string(iters), 2, 48};
    c.sinkhorn_iters = iters;
    c.hc_eps = 0.01f;
    cases.push_back(c);
  }
  MhcCase large_eps{"large_eps", 2, 48};
  large_eps.hc_eps = 0.05f;
  large_eps.norm_eps = 0.5f;
  cases.push_back(large_eps);
  cases.push_back({"dim_1", 2, 1, 4, f32_spec(), f32_spec(), std::nullopt});
  return cases;
}

// Inputs of all three ops of one case.
struct MhcInputs {
  HostMatrix x;           // [tokens, copies * dim]
  HostMatrix y;           // [tokens, dim]
  HostMatrix mix_weight;  // [num_mixes, copies * dim]; the head's are its first `copies` rows
  std::optional<HostMatrix> norm_weight;
  std::vector<float> scales;  // [3]
  std::vector<float> base;    // [num_mixes]
  std::vector<float> post;    // [tokens, copies]
  std::vector<float> comb;    // [tokens, copies, copies]
};
inline MhcInputs make_inputs(const MhcCase& c) {
  const std::int64_t cols = c.copies * c.dim;
  MhcInputs in{HostMatrix(c.x, c.tokens, cols, normal_values(71, c.tokens * cols, 2)),
               HostMatrix(c.x, c.tokens, c.dim, normal_values(72, c.tokens * c.dim)),
               HostMatrix(f32_spec().padded(c.name == "flash" ? 0 : 3), c.num_mixes(), cols,
                          normal_values(73, c.num_mixes() * cols, 0.05)),
               {},
               {0.7f, 1.1f, 0.9f},
               normal_values(74, c.num_mixes()),
               uniform_values(75, c.tokens * c.copies, 0, 2),
               uniform_values(76, c.tokens * c.copies * c.copies, 0, 1)};
  if (c.norm_weight) {
    in.norm_weight = HostMatrix(*c.norm_weight, 1, c.dim, uniform_values(77, c.dim, 0.5, 2));
  }
  return in;
}
// One token's part of the inputs, as a case of its own.
inline MhcInputs token_of(const MhcInputs& in, const MhcCase& c, std::int64_t token) {
  MhcInputs one = in;
  one.x = in.x.row(token);
  one.y = in.y.row(token);
  const auto slice = [token](const std::vector<float>& all, std::int64_t n) {
    return std::vector<float>(all.begin() + token * n, all.begin() + (token + 1) * n);
  };
  one.post = slice(in.post, c.copies);
  one.comb = slice(in.comb, std::int64_t{c.copies} * c.copies);
  return one;
}

struct HcPreOutputs {
  HostMatrix out;
  std::vector<float> post;
  std::vector<float> comb;
};
inline HcPreOutputs run_hc_pre(Backend& backend, const MhcCase& c, const MhcInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix mix_weight(backend, in.mix_weight);
  const DeviceMatrix norm_weight(backend, in.norm_weight.value_or(HostMatrix(f32_spec(), 1, 0)));
  const DeviceMatrix out(backend, HostMatrix(c.out, in.x.rows, c.dim));
  const DeviceArray<float> scales(backend, in.scales);
  const DeviceArray<float> base(backend, in.base);
  const DeviceArray<float> post(backend, in.x.rows * c.copies);
  const DeviceArray<float> comb(backend, in.x.rows * c.copies * c.copies);
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  HcPreParams params;
  params.x = x.view();
  params.copies = c.copies;
  params.mix_weight = mix_weight.view();
  params.scales = scales.data();
  params.base = base.data();
  params.sinkhorn_iters = c.sinkhorn_iters;
  params.hc_eps = c.hc_eps;
  params.norm_eps = c.norm_eps;
  if (in.norm_weight) params.norm_weight = norm_weight.view();
  params.out = out.mutable_view();
  params.post = post.data();
  params.comb = comb.data();
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return {out.read(), post.read(), comb.read()};
}

inline HostMatrix run_hc_post(Backend& backend, const MhcCase& c, const MhcInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix y(backend, in.y);
  const DeviceMatrix out(backend, HostMatrix(c.out, in.x.rows, in.x.cols));
  const DeviceArray<float> post(backend, in.post);
  const DeviceArray<float> comb(backend, in.comb);
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  HcPostParams params;
  params.x = x.view();
  params.y = y.view();
  params.copies = c.copies;
  params.post = post.data();
  params.comb = comb.data();
  params.out = out.mutable_view();
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return out.read();
}

inline HostMatrix run_hc_head(Backend& backend, const MhcCase& c, const MhcInputs& in) {
  const DeviceMatrix x(backend, in.x);
  const DeviceMatrix mix_weight(backend, in.mix_weight);
  const DeviceMatrix norm_weight(backend, in.norm_weight.value_or(HostMatrix(f32_spec(), 1, 0)));
  const DeviceMatrix out(backend, HostMatrix(c.out, in.x.rows, c.dim));
  const DeviceArray<float> scales(backend, in.scales);
  const DeviceArray<float> base(backend, in.base);
  const DeviceArray<std::int32_t> row_count(backend, std::vector{c.row_count.value_or(-1)});
  HcHeadParams params;
  params.x = x.view();
  params.copies = c.copies;
  params.mix_weight = mix_weight.view();
  params.mix_weight.rows = c.copies;
  params.scale = scales.data();
  params.base = base.data();
  params.hc_eps = c.hc_eps;
  params.norm_eps = c.norm_eps;
  if (in.norm_weight) params.norm_weight = norm_weight.view();
  params.out = out.mutable_view();
  if (c.row_count.has_value()) params.row_count = row_count.data();
  run_op(backend, params);
  return out.read();
}

}  // namespace dsv4::testing
