// kv_write_cases.h: shapes of writing cache rows, shared by tests and benches, and inputs for them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/kv_write.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"
#include "testing/test_rows.h"

namespace dsv4::testing {

struct KvWriteCase {
  std::string name;
  RowLayout layout;
  std::int64_t tokens = 5;
  std::int64_t rows_per_token = 1;
  std::int64_t page_rows = 4;
  bool all_slots = false;  // no slot list: row i goes to slot i
  bool hadamard = false;
  RowRounding rounding = RowRounding::kNone;
  std::int64_t rope_dim = 0;
  MatrixSpec x_spec = f32_spec();
  // Small whole numbers: with a width of 4^k the Hadamard transform is exact in FP32.
  bool whole_numbers = false;
  float factor = 1;  // of all values
};

inline std::vector<KvWriteCase> kv_write_cases() {
  std::vector<KvWriteCase> cases;
  const auto add = [&](const std::string& name, RowLayout layout, auto change) {
    KvWriteCase c;
    c.name = name;
    c.layout = layout;
    change(c);
    cases.push_back(c);
  };
  const auto as_is = [](auto&) {};
  add("f32", {RowKind::kF32, 64}, as_is);
  add("bf16_from_bf16", {RowKind::kBf16, 64}, [](auto& c) { c.x_spec = bf16_spec().padded(4); });
  for (const std::int64_t page_rows : {1, 2, 16, 32, 64, 256}) {
    add("fp8_pages_of_" + std::to_string(page_rows), {RowKind::kAttentionFp8, 512, 64},
        [&](auto& c) {
          c.page_rows = page_rows;
          c.tokens = 7;
        });
  }
  add("fp8_small_head", {RowKind::kAttentionFp8, 128, 64}, as_is);
  add("fp8_short_last_block", {RowKind::kAttentionFp8, 96, 16}, as_is);
  add("simulated_attention", {RowKind::kF32, 128}, [](auto& c) {
    c.rounding = RowRounding::kAttention;
    c.rope_dim = 64;
  });
  add("simulated_attention_short_last_block", {RowKind::kF32, 96}, [](auto& c) {
    c.rounding = RowRounding::kAttention;
    c.rope_dim = 16;
  });
  add("simulated_indexer", {RowKind::kBf16, 64}, [](auto& c) {
    c.rounding = RowRounding::kIndexer;
    c.hadamard = true;
    c.whole_numbers = true;
  });
  add("fp4_queries", {RowKind::kIndexerFp4, 64}, [](auto& c) {
    c.rows_per_token = 3;
    c.all_slots = true;
    c.hadamard = true;
    c.whole_numbers = true;
    c.x_spec = f32_spec().padded(2);
  });
  add("fp8_index_rows", {RowKind::kIndexerFp8, 256}, [](auto& c) {
    c.hadamard = true;
    c.whole_numbers = true;
  });
  add("fp8_index_rows_below_the_floor", {RowKind::kIndexerFp8, 128}, [](auto& c) {
    c.whole_numbers = true;
    c.factor = 1e-5f;  // the scale's amax is at least 1e-4
  });
  add("fp4_rows_without_hadamard", {RowKind::kIndexerFp4, 128}, as_is);
  add("no_token", {RowKind::kAttentionFp8, 512, 64}, [](auto& c) { c.tokens = 0; });
  add("one_token", {RowKind::kAttentionFp8, 512, 64}, [](auto& c) { c.tokens = 1; });
  return cases;
}

struct KvWriteInputs {
  explicit KvWriteInputs(const KvWriteCase& c)
      : num_rows(c.tokens * c.rows_per_token),
        x(c.x_spec, c.tokens, c.rows_per_token * c.layout.width, values(c)),
        rows(c.layout, c.page_rows, ceil_div(3 * num_rows + 2, c.page_rows), 40) {
    // Every third row is skipped; the others go to every second slot from the end.
    const std::int64_t num_slots = rows.num_pages * rows.page_rows;
    for (std::int64_t i = 0; i < num_rows; ++i) {
      slots.push_back(c.all_slots ? i : (i % 3 == 1 ? -1 : num_slots - 1 - 2 * i));
    }
  }
  static std::vector<float> values(const KvWriteCase& c) {
    const std::int64_t count = c.tokens * c.rows_per_token * c.layout.width;
    std::vector<float> x = heavy_tailed_values(1, count);
    Random random(2);
    for (float& value : x) {
      if (c.whole_numbers) value = static_cast<float>(random.index(9) - 4);
      value *= c.factor;
    }
    return x;
  }

  std::int64_t num_rows;
  HostMatrix x;
  HostRows rows;  // poison
  std::vector<std::int64_t> slots;
};

// The inputs on a device.
class DeviceKvWrite {
 public:
  DeviceKvWrite(Backend& backend, const KvWriteCase& c, const KvWriteInputs& in)
      : x(backend, in.x), slots(backend, in.slots), rows(backend, in.rows) {
    params.x = x.view();
    params.rows_per_token = c.rows_per_token;
    params.slots = c.all_slots ? nullptr : slots.data();
    params.hadamard = c.hadamard;
    params.rounding = c.rounding;
    params.rope_dim = c.rope_dim;
    params.rows = rows.view();
  }
  // The pool afterwards.
  HostRows run(Backend& backend) {
    run_op(backend, params);
    return rows.read();
  }

  KvWriteParams params;
  DeviceMatrix x;
  DeviceArray<std::int64_t> slots;
  DeviceRows rows;
};

}  // namespace dsv4::testing
