// rope_cases.h: shapes and positions on which rotary embedding is tested and measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/rope.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct RopeCase {
  std::string name;
  std::vector<std::int32_t> positions;  // one a token
  int num_heads = 1;
  std::int64_t head_dim = 0;
  int rope_dim = 0;
  MatrixSpec x = f32_spec();
  RopeScaling scaling = {};
  bool inverse = false;
};

// The tables of V4's layers: plain, and YaRN for layers with compressed rows.
inline RopeScaling plain_rope() { return {}; }
inline RopeScaling yarn_rope() {
  RopeScaling scaling;
  scaling.base = 160000;
  scaling.factor = 16;
  scaling.original_length = 65536;
  return scaling;
}

inline std::vector<RopeCase> rope_cases() {
  const std::vector<std::int32_t> positions = {0, 1, 127, 128, 65535, 1000000, 1048575};
  std::vector<RopeCase> cases;
  for (const bool inverse : {false, true}) {
    const std::string name = inverse ? "inverse" : "forward";
    cases.push_back({name + "_plain", positions, 3, 512, 64, f32_spec(), plain_rope(), inverse});
    cases.push_back({name + "_yarn", positions, 2, 512, 64, f32_spec(), yarn_rope(), inverse});
    cases.push_back({name + "_bf16", positions, 2, 128, 64, bf16_spec(), yarn_rope(), inverse});
  }
  cases.push_back({"padded", positions, 2, 96, 32, f32_spec().padded(5), plain_rope()});
  cases.push_back({"all_dims_rotate", positions, 2, 64, 64, f32_spec(), plain_rope()});
  cases.push_back({"one_pair", positions, 1, 2, 2, f32_spec(), plain_rope()});
  cases.push_back({"odd_head_dim", positions, 2, 67, 6, f32_spec(), plain_rope()});
  cases.push_back({"inactive_tokens", {5, -1, 7, -1}, 2, 96, 32, bf16_spec(), plain_rope()});
  return cases;
}

inline HostMatrix make_inputs(const RopeCase& c) {
  const auto tokens = static_cast<std::int64_t>(c.positions.size());
  const std::int64_t cols = c.num_heads * c.head_dim;
  return HostMatrix(c.x, tokens, cols, normal_values(41, tokens * cols));
}

inline HostMatrix run_rope(Backend& backend, const RopeCase& c, const HostMatrix& in) {
  const DeviceMatrix x(backend, in);
  const DeviceArray<float> frequencies(backend, rope_frequencies(c.scaling, c.rope_dim));
  const DeviceArray<std::int32_t> positions(backend, c.positions);
  RopeParams params;
  params.x = x.mutable_view();
  params.num_heads = c.num_heads;
  params.rope_dim = c.rope_dim;
  params.frequencies = frequencies.data();
  params.positions = positions.data();
  params.inverse = c.inverse;
  run_op(backend, params);
  return x.read();
}

}  // namespace dsv4::testing
