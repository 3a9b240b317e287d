// Dense attention on every backend: ragged sequences, head counts and windows against the formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/attention.h"
#include "testing/cases/attention_cases.h"
#include "testing/cases/dense_attention_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/softmax_oracle.h"

namespace dsv4::testing {
namespace {

struct Expectation {
  std::vector<double> out;
  std::vector<double> lse;
  Tolerance fp32_out, fp64_out, fp32_lse, fp64_lse;
};

template <class T>
std::vector<T> slice(const std::vector<T>& values, std::int64_t begin, std::int64_t count) {
  return {values.begin() + begin, values.begin() + begin + count};
}

// Whether query i of n attends to key j of m: by position, keys and queries aligned at the end.
bool attends(const DenseAttentionCase& c, std::int64_t i, std::int64_t n, std::int64_t j,
             std::int64_t m) {
  if (!c.causal) return true;
  const std::int64_t distance = (m - j) - (n - i);  // 0: the query's own key
  return distance >= 0 && (c.window == 0 || distance < c.window);
}

Expectation expect_by_formula(const DenseAttentionCase& c, const DenseAttentionInputs& in) {
  const std::vector<float> q = in.q.values();
  const std::vector<float> k = in.k.values();
  const std::vector<float> v = in.v.values();
  const std::int64_t d = c.head_dim;
  const double softmax_scale = 1 / std::sqrt(static_cast<float>(d));
  Expectation e;
  e.out.assign(static_cast<std::size_t>(in.q.rows * c.num_heads * c.value_dim), std::nan(""));
  e.lse.assign(static_cast<std::size_t>(in.q.rows * c.num_heads), std::nan(""));
  for (Tolerance* t : {&e.fp32_out, &e.fp64_out}) {
    *t = {0, one_ulp(c.out_spec.format), 1, std::vector<double>(e.out.size())};
  }
  for (Tolerance* t : {&e.fp32_lse, &e.fp64_lse}) {
    *t = {0, one_ulp(Format::kF32), 1, std::vector<double>(e.lse.size())};
  }
  for (std::size_t s = 0; s < c.queries.size(); ++s) {
    for (std::int64_t i = 0; i < c.queries[s]; ++i) {
      const std::int64_t row = in.q_offsets[s] + i;
      for (std::int64_t h = 0; h < c.num_heads; ++h) {
        const std::int64_t kv_head = h * c.num_kv_heads / c.num_heads;
        std::vector<std::vector<float>> keys, values;
        for (std::int64_t j = 0; j < c.keys[s]; ++j) {
          if (!attends(c, i, c.queries[s], j, c.keys[s])) continue;
          const std::int64_t key = (in.kv_offsets[s] + j) * c.num_kv_heads + kv_head;
          keys.push_back(slice(k, key * d, d));
          values.push_back(slice(v, key * c.value_dim, c.value_dim));
        }
        const double sink = in.attn_sink.empty() ? -std::numeric_limits<double>::infinity()
                                                 : double{in.attn_sink[h]};
        const std::int64_t head_row = row * c.num_heads + h;
        const HeadOracle head =
            attend_by_formula(slice(q, head_row * d, d), keys, values,
                              static_cast<std::size_t>(c.value_dim), softmax_scale, sink);
        e.lse[head_row] = head.lse;
        e.fp32_lse.magnitudes[head_row] = fp32_attention_error(head, d, keys.size());
        e.fp64_lse.magnitudes[head_row] = fp64_attention_error(head, d, keys.size());
        for (std::int64_t x = 0; x < c.value_dim; ++x) {
          const std::int64_t at = head_row * c.value_dim + x;
          e.out[at] = head.out[x];
          e.fp32_out.magnitudes[at] = e.fp32_lse.magnitudes[head_row] * head.magnitudes[x];
          e.fp64_out.magnitudes[at] = e.fp64_lse.magnitudes[head_row] * head.magnitudes[x];
        }
      }
    }
  }
  return e;
}

DenseAttentionResult run_dense(Backend& backend, const DenseAttentionCase& c) {
  const DenseAttentionInputs in(c);
  return DeviceDenseAttention(backend, c, in).run(backend);
}

TEST_EACH_BACKEND(DenseAttention, MatchesReference) {
  for (const DenseAttentionCase& c : dense_attention_cases()) {
    SCOPED_TRACE(c.name);
    const DenseAttentionResult got = run_dense(backend, c);
    const DenseAttentionResult want = run_dense(reference_backend(), c);
    const Expectation e = expect_by_formula(c, DenseAttentionInputs(c));
    EXPECT_CLOSE(got.out, want.out, e.fp32_out);
    EXPECT_CLOSE(got.lse, want.lse, e.fp32_lse);
  }
}

TEST(DenseAttention, ReferenceFollowsTheFormula) {
  for (const DenseAttentionCase& c : dense_attention_cases()) {
    SCOPED_TRACE(c.name);
    const DenseAttentionResult got = run_dense(reference_backend(), c);
    const Expectation e = expect_by_formula(c, DenseAttentionInputs(c));
    EXPECT_CLOSE(got.out, e.out, e.fp64_out);
    EXPECT_CLOSE(got.lse, e.lse, e.fp64_lse);
  }
}

TEST_EACH_BACKEND(DenseAttention, AloneOrInABatchTheSameBits) {
  DenseAttentionCase c;
  c.queries = {5, 1, 9};
  c.keys = {70, 33, 9};
  const DenseAttentionInputs in(c);
  const DenseAttentionResult batch = run_dense(backend, c);
  const auto width = static_cast<std::int64_t>(c.num_heads * c.value_dim);
  for (std::size_t s = 0; s < c.queries.size(); ++s) {
    // The same rows, but only one sequence's offsets.
    DeviceDenseAttention device(backend, c, in);
    device.params.num_sequences = 1;
    device.params.q_offsets += s;
    device.params.kv_offsets += s;
    const DenseAttentionResult alone = device.run(backend);
    const std::int64_t begin = in.q_offsets[s] * width;
    EXPECT_SAME_BITS(slice(alone.out, begin, c.queries[s] * width),
                     slice(batch.out, begin, c.queries[s] * width));
  }
}

// A chunk of queries gives what the same queries give in the whole prompt.
TEST_EACH_BACKEND(DenseAttention, ChunkedPrefillTheSameBits) {
  DenseAttentionCase c;
  c.queries = {40};
  c.keys = {40};
  const DenseAttentionInputs in(c);
  DeviceDenseAttention device(backend, c, in);
  const DenseAttentionResult whole = device.run(backend);
  for (const std::int32_t chunk : {1, 7, 16}) {
    DeviceDenseAttention chunked(backend, c, in);
    for (std::int32_t begin = 0; begin < 40; begin += chunk) {
      const std::int32_t end = std::min(begin + chunk, 40);
      chunked.q_offsets.write({kStrayRows + begin, kStrayRows + end});
      chunked.kv_offsets.write({kStrayRows, kStrayRows + end});
      run_op(backend, chunked.params);
    }
    EXPECT_SAME_BITS(chunked.out.values(), whole.out);
    EXPECT_SAME_BITS(chunked.lse.read(), whole.lse);
  }
}

// One KV head whose keys are its values, all rows in a window: both contracts say the same.
TEST_EACH_BACKEND(DenseAttention, AgreesWithAttentionOverCachedRows) {
  AttentionCase rows_case;
  rows_case.positions = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const AttentionInputs rows_in(rows_case);
  const AttentionResult over_rows = run_attention(reference_backend(), rows_case, rows_in);

  DenseAttentionCase c;
  c.num_heads = rows_case.num_heads;
  c.num_kv_heads = 1;
  c.window = rows_case.window;
  c.queries = {12};
  c.keys = {12};
  DenseAttentionInputs in(c);
  std::vector<float> q(kStrayRows * 192), kv(kStrayRows * 64);
  const std::vector<float> queries = rows_in.q.values();
  q.insert(q.end(), queries.begin(), queries.end());
  for (std::int64_t pos = 0; pos < 12; ++pos) {
    const std::vector<float> row = attention_row(false, 0, pos, 64);
    kv.insert(kv.end(), row.begin(), row.end());
  }
  q.resize(16 * 192);
  kv.resize(16 * 64);
  in.q = HostMatrix(c.spec, 16, 192, q);
  in.k = HostMatrix(c.spec, 16, 64, kv);
  in.v = in.k;
  in.attn_sink = rows_in.attn_sink;
  const DenseAttentionResult dense = DeviceDenseAttention(backend, c, in).run(backend);
  const Expectation e = expect_by_formula(c, in);
  Tolerance tolerance = e.fp32_out;
  tolerance.magnitudes = slice(e.fp32_out.magnitudes, kStrayRows * 192, 12 * 192);
  EXPECT_CLOSE(slice(dense.out, kStrayRows * 192, 12 * 192), over_rows.out, tolerance);
}

TEST_EACH_BACKEND(DenseAttention, RefusalsNameTheField) {
  DenseAttentionCase c;
  c.num_heads = 8;
  c.num_kv_heads = 2;
  c.queries = {3};
  c.keys = {5};
  const DenseAttentionInputs in(c);
  const auto refusal = [&](auto change) -> std::string {
    DeviceDenseAttention device(backend, c, in);
    change(device.params);
    return refusal_of([&] { device.run(backend); });
  };
  using P = DenseAttentionParams;
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal([](P&) {}), "accepted");
  EXPECT_THAT(refusal([](P& p) { p.num_kv_heads = 0; }), HasSubstr("num_kv_heads is 0"));
  EXPECT_THAT(refusal([](P& p) { p.num_kv_heads = 3; }), HasSubstr("num_heads is 8"));
  EXPECT_THAT(refusal([](P& p) { p.num_heads = 6; }), HasSubstr("q.cols is 512"));
  EXPECT_THAT(refusal([](P& p) { p.k.cols = 64; }), HasSubstr("k.cols is 64"));
  EXPECT_THAT(refusal([](P& p) { p.v.cols = 127; }), HasSubstr("v.cols is 127"));
  EXPECT_THAT(refusal([](P& p) { p.v.rows = 1; }), HasSubstr("v.rows is 1"));
  EXPECT_THAT(refusal([](P& p) { p.out.cols = 500; }), HasSubstr("out.cols is 500"));
  EXPECT_THAT(refusal([](P& p) { p.window = -1; }), HasSubstr("window is -1"));
  EXPECT_THAT(refusal([](P& p) {
                p.window = 4;
                p.causal = false;
              }),
              HasSubstr("window is 4"));
  EXPECT_THAT(refusal([](P& p) { p.q_offsets = nullptr; }), HasSubstr("q_offsets is null"));
  EXPECT_THAT(refusal([](P& p) { p.softmax_scale = std::nanf(""); }), HasSubstr("softmax_scale"));
}

TEST(DenseAttention, CostCountsCausalPairs) {
  DenseAttentionCase c;
  c.queries = {4};
  c.keys = {6};
  const DenseAttentionInputs in(c);
  DeviceDenseAttention device(reference_backend(), c, in);
  DenseAttentionParams p = device.params;
  p.q.rows = p.out.rows = 4;
  p.k.rows = p.v.rows = 6;
  EXPECT_EQ(cost(p).flops, 2.0 * (64 + 64) * 4 * (3 + 4 + 5 + 6));
  p.window = 4;
  EXPECT_EQ(cost(p).flops, 2.0 * (64 + 64) * 4 * (3 + 4 + 4 + 4));
  p.causal = false;
  EXPECT_EQ(cost(p).flops, 2.0 * (64 + 64) * 4 * (4 * 6));
}

}  // namespace
}  // namespace dsv4::testing
