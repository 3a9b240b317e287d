// attention_cases.h: shapes of V4's attention, shared by tests and benches, and inputs for them in
// which everything that a token does not attend to is NaN.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ops/attention.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"
#include "testing/test_rows.h"

namespace dsv4::testing {

struct AttentionCase {
  std::string name;
  int num_heads = 3;
  std::int64_t head_dim = 64;
  RowKind kind = RowKind::kF32;
  std::int64_t window = 8;
  std::int64_t ring_rows = 16;
  int compress_ratio = 0;
  std::int64_t comp_page_rows = 16;
  std::int64_t num_indices = -1;  // -1: all visible compressed rows
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequences;  // empty: all tokens are of sequence 0
  MatrixSpec spec = f32_spec();         // of q and out
  bool sinks = true;
};

// 4 and 128 tokens a group, and the positions at which a window, a group or a page ends.
inline std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> cases;
  const auto add = [&](const std::string& name, auto... changes) {
    AttentionCase c;
    c.name = name;
    (changes(c), ...);
    cases.push_back(c);
  };
  add("window_edges", [](auto& c) { c.positions = {0, 1, 6, 7, 8, 9}; });
  add("ring_wraps", [](auto& c) { c.positions = {14, 15, 16, 17, 18, 19, 20, 21}; });
  add("window_128", [](auto& c) {
    c.window = 128;
    c.ring_rows = 131;
    c.positions = {126, 127, 128, 129};
    c.spec = bf16_spec().padded(8);
  });
  add("ring_of_exactly_the_window", [](auto& c) {
    c.ring_rows = 8;
    c.positions = {1'000'003};
  });
  for (const std::int64_t page_rows : {2, 16, 32, 64, 256}) {
    add("csa_pages_of_" + std::to_string(page_rows), [&](auto& c) {
      c.compress_ratio = 4;
      c.comp_page_rows = page_rows;
      c.num_indices = 20;
      c.positions = {3, 4, 7, 8, 63, 64, 127, 128, 129, 511, 512};
      c.sequences = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    });
  }
  add("hca", [](auto& c) {
    c.compress_ratio = 128;
    c.comp_page_rows = 2;
    c.positions = {126, 127, 128, 129, 255, 511, 512, 1023};
    c.sequences = {0, 1, 2, 3, 4, 5, 6, 7};
  });
  add("released_rows", [](auto& c) {
    c.kind = RowKind::kAttentionFp8;
    c.head_dim = 512;
    c.num_heads = 8;
    c.window = 128;
    c.ring_rows = 160;
    c.compress_ratio = 4;
    c.comp_page_rows = 64;
    c.num_indices = 40;
    c.positions = {0, 300, 301, 302};
    c.sequences = {1, 0, 0, 0};
    c.spec = bf16_spec();
  });
  for (const int num_heads : {1, 8, 64, 128}) {
    add("heads_" + std::to_string(num_heads), [&](auto& c) {
      c.num_heads = num_heads;
      c.kind = RowKind::kBf16;
      c.positions = {20, 21};
    });
  }
  for (const std::int64_t head_dim : {128, 256, 512}) {
    add("head_dim_" + std::to_string(head_dim), [&](auto& c) {
      c.head_dim = head_dim;
      c.compress_ratio = 4;
      c.positions = {40};
      c.sinks = false;
    });
  }
  add("no_token", [](auto&) {});
  add("inactive_tokens", [](auto& c) {
    c.positions = {-1, 5, -1, 6, -1};
    c.sequences = {-1, 0, -1, 1, -1};
  });
  return cases;
}

// Row `pos` of a sequence's raw or compressed rows: the same in whatever batch it appears.
inline std::vector<float> attention_row(bool compressed, std::int64_t sequence, std::int64_t pos,
                                        std::int64_t width) {
  const auto seed = static_cast<std::uint64_t>((sequence * 2 + (compressed ? 1 : 0)) << 32 | pos);
  return normal_values(seed, width);
}

class AttentionInputs {
 public:
  explicit AttentionInputs(const AttentionCase& c)
      : tokens(static_cast<std::int64_t>(c.positions.size())),
        positions(c.positions),
        sequences(c.sequences.empty() ? std::vector<std::int32_t>(c.positions.size())
                                      : c.sequences),
        num_sequences(tokens == 0 ? 1 : *std::max_element(sequences.begin(), sequences.end()) + 1),
        q(c.spec, tokens, c.num_heads * c.head_dim),
        raw(layout(c), c.ring_rows, num_sequences + 2, 64),
        comp(layout(c), c.comp_page_rows, num_sequences * pages_a_sequence(c) + 1, 192),
        comp_pages_stride(pages_a_sequence(c)) {
    for (std::int64_t s = 0; s < num_sequences; ++s) {
      raw_pages.push_back(static_cast<std::int32_t>(num_sequences - s));
    }
    comp_pages.assign(static_cast<std::size_t>(num_sequences * comp_pages_stride), -1);
    attended_rows.resize(static_cast<std::size_t>(tokens));
    if (c.num_indices >= 0)
      row_indices.assign(static_cast<std::size_t>(tokens * c.num_indices), -1);
    std::vector<float> queries;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto seed = static_cast<std::uint64_t>(positions[t] + 1000 * sequences[t] + 99);
      const std::vector<float> row = normal_values(seed, c.num_heads * c.head_dim);
      queries.insert(queries.end(), row.begin(), row.end());
    }
    q = HostMatrix(c.spec, tokens, c.num_heads * c.head_dim, queries);
    const std::int64_t q_bytes = data_bytes(c.spec.format, q.row_stride);
    for (std::int64_t t = 0; t < tokens; ++t) {
      if (positions[t] < 0) {
        std::fill_n(q.data.begin() + t * q_bytes, q_bytes, kPoisonByte);
        continue;
      }
      add_window_rows(c, t);
      if (c.compress_ratio > 0) add_compressed_rows(c, t);
    }
    if (!c.sinks) return;
    attn_sink = normal_values(5, c.num_heads, 2);
  }

  std::int64_t tokens;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> sequences;
  std::int64_t num_sequences;
  HostMatrix q;
  HostRows raw;
  std::vector<std::int32_t> raw_pages;
  HostRows comp;
  std::vector<std::int32_t> comp_pages;
  std::int64_t comp_pages_stride;
  std::vector<std::int32_t> row_indices;  // empty: all visible rows
  std::vector<float> attn_sink;           // empty: none
  // Of each token, as stored, window first: listed beside the pools, without their addresses.
  std::vector<std::vector<std::vector<float>>> attended_rows;

 private:
  static RowLayout layout(const AttentionCase& c) {
    return {c.kind, c.head_dim, c.kind == RowKind::kAttentionFp8 ? 64 : 0};
  }
  static std::int64_t pages_a_sequence(const AttentionCase& c) {
    if (c.compress_ratio == 0 || c.positions.empty()) return 0;
    const std::int64_t longest = *std::max_element(c.positions.begin(), c.positions.end()) + 1;
    return ceil_div(longest / c.compress_ratio, c.comp_page_rows) + 1;
  }
  void add_row(HostRows& pool, std::int64_t slot, std::int64_t t, const std::vector<float>& x) {
    pool.set(slot, x);
    attended_rows[t].push_back(pool.get(slot));
  }
  void add_window_rows(const AttentionCase& c, std::int64_t t) {
    for (std::int64_t pos = 0; pos <= positions[t]; ++pos) {
      if (positions[t] - pos >= c.window) continue;
      add_row(raw, raw_pages[sequences[t]] * c.ring_rows + pos % c.ring_rows, t,
              attention_row(false, sequences[t], pos, c.head_dim));
    }
  }
  void add_compressed_rows(const AttentionCase& c, std::int64_t t) {
    std::vector<std::int64_t> visible;
    for (std::int64_t j = 0; c.compress_ratio * (j + 1) <= positions[t] + 1; ++j) {
      visible.push_back(j);
    }
    if (c.num_indices >= 0) {
      Random random(static_cast<std::uint64_t>(positions[t]));
      while (static_cast<std::int64_t>(visible.size()) > c.num_indices) {
        visible.erase(visible.begin() + random.index(static_cast<std::int64_t>(visible.size())));
      }
      std::copy(visible.begin(), visible.end(), row_indices.begin() + t * c.num_indices);
    }
    for (const std::int64_t j : visible) {
      const std::int64_t entry = sequences[t] * comp_pages_stride + j / c.comp_page_rows;
      // Every sequence's pages lie scattered, in descending order.
      const std::int64_t page = comp.num_pages - 1 - entry;
      comp_pages[entry] = static_cast<std::int32_t>(page);
      add_row(comp, page * c.comp_page_rows + j % c.comp_page_rows, t,
              attention_row(true, sequences[t], j, c.head_dim));
    }
  }
};

struct AttentionResult {
  std::vector<float> out;
  std::vector<float> lse;
};

// The inputs on a device.
class DeviceAttention {
 public:
  DeviceAttention(Backend& backend, const AttentionCase& c, const AttentionInputs& in)
      : q(backend, in.q),
        positions(backend, in.positions),
        sequences(backend, in.sequences),
        raw(backend, in.raw),
        raw_pages(backend, in.raw_pages),
        comp(backend, in.comp),
        comp_pages(backend, in.comp_pages),
        row_indices(backend, in.row_indices),
        attn_sink(backend, in.attn_sink),
        out(backend, HostMatrix(c.spec, in.tokens, c.num_heads * c.head_dim)),
        lse(backend, in.tokens * c.num_heads) {
    params.q = q.view();
    params.num_heads = c.num_heads;
    params.positions = positions.data();
    params.sequences = sequences.data();
    params.raw_rows = raw.view();
    params.raw_pages = raw_pages.data();
    params.window = c.window;
    params.compress_ratio = c.compress_ratio;
    params.comp_rows = comp.view();
    params.comp_pages = comp_pages.data();
    params.comp_pages_stride = in.comp_pages_stride;
    if (c.num_indices >= 0) {
      params.row_indices = row_indices.data();
      params.num_indices = c.num_indices;
    }
    if (!in.attn_sink.empty()) params.attn_sink = attn_sink.data();
    params.softmax_scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    params.out = out.mutable_view();
    params.lse = lse.data();
  }
  AttentionResult run(Backend& backend) {
    run_op(backend, params);
    return {out.values(), lse.read()};
  }

  AttentionParams params;
  DeviceMatrix q;
  DeviceArray<std::int32_t> positions;
  DeviceArray<std::int32_t> sequences;
  DeviceRows raw;
  DeviceArray<std::int32_t> raw_pages;
  DeviceRows comp;
  DeviceArray<std::int32_t> comp_pages;
  DeviceArray<std::int32_t> row_indices;
  DeviceArray<float> attn_sink;
  DeviceMatrix out;
  DeviceArray<float> lse;
};

inline AttentionResult run_attention(Backend& backend, const AttentionCase& c,
                                     const AttentionInputs& in) {
  return DeviceAttention(backend, c, in).run(backend);
}

}  // namespace dsv4::testing
