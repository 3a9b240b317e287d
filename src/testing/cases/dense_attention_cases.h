// dense_attention_cases.h: shapes of dense attention, shared by tests and benches, and inputs for
// them between poisoned rows.
#pragma once

#include <string>
#include <vector>

#include "ops/attention.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct DenseAttentionCase {
  std::string name;
  int num_heads = 4;
  int num_kv_heads = 4;
  std::int64_t head_dim = 64;
  std::int64_t value_dim = 64;
  std::vector<std::int32_t> queries;  // of each sequence
  std::vector<std::int32_t> keys;
  bool causal = true;
  std::int64_t window = 0;
  MatrixSpec spec = f32_spec();  // of q, k, v
  MatrixSpec out_spec = f32_spec();
  bool sinks = false;
};

inline std::vector<DenseAttentionCase> dense_attention_cases() {
  std::vector<DenseAttentionCase> cases;
  const auto add = [&](const std::string& name, std::vector<std::int32_t> queries,
                       std::vector<std::int32_t> keys, auto... changes) {
    DenseAttentionCase c;
    c.name = name;
    c.queries = std::move(queries);
    c.keys = std::move(keys);
    (changes(c), ...);
    cases.push_back(c);
  };
  add("prefill", {33}, {33});
  add("decode", {1, 1, 1}, {1, 64, 65});
  add("chunk_after_a_prefix", {5}, {40});
  add("more_queries_than_keys", {7}, {3}, [](auto& c) { c.sinks = true; });
  add("prefixes_of_many_lengths", {3, 3, 3, 3}, {3, 4, 130, 131});
  add("empty_first", {0, 4}, {0, 4});
  add("empty_middle", {4, 0, 4}, {4, 9, 4});
  add("empty_last", {4, 0}, {4, 0});
  add("queries_without_keys", {4, 2}, {0, 2});
  add("no_sequence", {}, {});
  add("not_causal", {9, 2}, {9, 17}, [](auto& c) { c.causal = false; });
  for (const std::int64_t window : {1, 15, 16, 17}) {
    add("window_" + std::to_string(window), {16, 3}, {16, 40}, [&](auto& c) { c.window = window; });
  }
  add("gqa", {17}, {20}, [](auto& c) {
    c.num_heads = 8;
    c.num_kv_heads = 2;
    c.sinks = true;
  });
  add("mqa", {17}, {20}, [](auto& c) {
    c.num_heads = 3;
    c.num_kv_heads = 1;
    c.head_dim = 128;
  });
  add("values_of_another_width", {10}, {10}, [](auto& c) {
    c.head_dim = 192;
    c.value_dim = 128;
    c.num_heads = 2;
    c.num_kv_heads = 2;
  });
  for (const std::int64_t head_dim : {128, 256, 512}) {
    add("head_dim_" + std::to_string(head_dim), {6}, {9}, [&](auto& c) {
      c.head_dim = c.value_dim = head_dim;
      c.spec = bf16_spec().padded(8);
      c.out_spec = bf16_spec().padded(16);
    });
  }
  add("nvfp4_cache", {4}, {12}, [](auto& c) { c.spec = nvfp4_spec(true); });
  return cases;
}

// Rows before the first sequence and behind the last belong to nobody: NaN, and not to be written.
inline constexpr std::int32_t kStrayRows = 2;

struct DenseAttentionInputs {
  explicit DenseAttentionInputs(const DenseAttentionCase& c)
      : q_offsets(offsets(c.queries)),
        kv_offsets(offsets(c.keys)),
        q(matrix(c.spec, q_offsets, c.num_heads * c.head_dim, 1)),
        k(matrix(c.spec, kv_offsets, c.num_kv_heads * c.head_dim, 2)),
        v(matrix(c.spec, kv_offsets, c.num_kv_heads * c.value_dim, 3)) {
    if (c.sinks) attn_sink = normal_values(4, c.num_heads);
  }
  static std::vector<std::int32_t> offsets(const std::vector<std::int32_t>& lengths) {
    std::vector<std::int32_t> result = {kStrayRows};
    for (const std::int32_t n : lengths) result.push_back(result.back() + n);
    return result;
  }
  static HostMatrix matrix(const MatrixSpec& spec, const std::vector<std::int32_t>& row_offsets,
                           std::int64_t cols, std::uint64_t seed) {
    const std::int64_t rows = row_offsets.back() + kStrayRows;
    HostMatrix m(spec, rows, cols, normal_values(seed, rows * cols));
    const std::int64_t row_bytes = data_bytes(spec.format, m.row_stride);
    for (std::int64_t r = 0; r < rows; ++r) {
      if (r >= kStrayRows && r < row_offsets.back()) continue;
      std::fill_n(m.data.begin() + r * row_bytes, row_bytes, kPoisonByte);
    }
    return m;
  }

  std::vector<std::int32_t> q_offsets;
  std::vector<std::int32_t> kv_offsets;
  HostMatrix q, k, v;
  std::vector<float> attn_sink;
};

struct DenseAttentionResult {
  std::vector<float> out;
  std::vector<float> lse;
};

// The inputs on a device.
class DeviceDenseAttention {
 public:
  DeviceDenseAttention(Backend& backend, const DenseAttentionCase& c,
                       const DenseAttentionInputs& in)
      : q(backend, in.q),
        k(backend, in.k),
        v(backend, in.v),
        q_offsets(backend, in.q_offsets),
        kv_offsets(backend, in.kv_offsets),
        attn_sink(backend, in.attn_sink),
        out(backend, HostMatrix(c.out_spec, in.q.rows, c.num_heads * c.value_dim)),
        lse(backend, in.q.rows * c.num_heads) {
    params.q = q.view();
    params.k = k.view();
    params.v = v.view();
    params.num_heads = c.num_heads;
    params.num_kv_heads = c.num_kv_heads;
    params.num_sequences = static_cast<int>(c.queries.size());
    params.q_offsets = q_offsets.data();
    params.kv_offsets = kv_offsets.data();
    params.causal = c.causal;
    params.window = c.window;
    if (!in.attn_sink.empty()) params.attn_sink = attn_sink.data();
    params.softmax_scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    params.out = out.mutable_view();
    params.lse = lse.data();
  }
  DenseAttentionResult run(Backend& backend) {
    run_op(backend, params);
    return {out.values(), lse.read()};
  }

  DenseAttentionParams params;
  DeviceMatrix q, k, v;
  DeviceArray<std::int32_t> q_offsets;
  DeviceArray<std::int32_t> kv_offsets;
  DeviceArray<float> attn_sink;
  DeviceMatrix out;
  DeviceArray<float> lse;
};

}  // namespace dsv4::testing
