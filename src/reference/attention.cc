// Both attentions, plainly: list the attended rows, score them, find the maximum, sum in FP64.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/row_checks.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"
#include "tensor/kv_row_codec.h"

namespace dsv4 {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The rows that one query attends to, decoded, in ascending order: [count, stride] each.
struct AttendedRows {
  const float* keys = nullptr;
  const float* values = nullptr;
  std::int64_t count = 0;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
};

// One head: out [value_dim]; returns the LSE. `sink` is -inf for none.
float attend(const float* query, std::int64_t head_dim, const AttendedRows& rows,
             std::int64_t value_dim, double softmax_scale, double sink, float* out) {
  std::fill_n(out, value_dim, 0.0f);
  if (rows.count == 0) return static_cast<float>(-kInfinity);
  std::vector<double> scores(static_cast<std::size_t>(rows.count));
  double max_score = -kInfinity;
  for (std::int64_t r = 0; r < rows.count; ++r) {
    scores[r] = dot(query, rows.keys + r * rows.key_stride, head_dim) * softmax_scale;
    max_score = std::max(max_score, scores[r]);
  }
  double score_sum = 0;  // of exp(score - max_score): the LSE leaves the sink out
  for (double score : scores) score_sum += std::exp(score - max_score);
  const auto lse = static_cast<float>(max_score + std::log(score_sum));
  if (sink == kInfinity) return lse;  // the sink takes all the weight

  // Relative to the larger of both, so that no exponential overflows whatever the sink is.
  const double top = std::max(max_score, sink);
  double denominator = std::exp(sink - top);
  std::vector<double> acc(static_cast<std::size_t>(value_dim));
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const double weight = std::exp(scores[r] - top);
    denominator += weight;
    const float* const value = rows.values + r * rows.value_stride;
    for (std::int64_t i = 0; i < value_dim; ++i) acc[i] += weight * value[i];
  }
  for (std::int64_t i = 0; i < value_dim; ++i) out[i] = static_cast<float>(acc[i] / denominator);
  return lse;
}

double sink_of(const float* attn_sink, std::int64_t head) {
  return attn_sink == nullptr ? -kInfinity : static_cast<double>(attn_sink[head]);
}

void append_row(const PagedRowsView& pool, std::int64_t page, std::int64_t row_in_page,
                std::vector<float>& rows) {
  DSV4_CHECK(page >= 0 && page < pool.num_pages, "page {} of {}", page, pool.num_pages);
  const std::int64_t slot = page * pool.page_rows + row_in_page;
  rows.resize(rows.size() + static_cast<std::size_t>(pool.layout.width));
  decode_kv_row(pool.layout, pool.row_data(slot), pool.row_scales(slot),
                rows.data() + rows.size() - pool.layout.width);
}

void append_window_rows(const AttentionParams& p, std::int64_t pos, std::int64_t sequence,
                        std::vector<float>& rows) {
  for (std::int64_t q = std::max<std::int64_t>(0, pos - p.window + 1); q <= pos; ++q) {
    append_row(p.raw_rows, p.raw_pages[sequence], q % p.raw_rows.page_rows, rows);
  }
}

void append_compressed_rows(const AttentionParams& p, std::int64_t token, std::int64_t pos,
                            std::int64_t sequence, std::vector<float>& rows) {
  const std::int64_t visible = (pos + 1) / p.compress_ratio;
  const std::int64_t count = p.row_indices == nullptr ? visible : p.num_indices;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t j = p.row_indices == nullptr ? i : p.row_indices[token * p.num_indices + i];
    if (j < 0) break;
    const std::int64_t page_idx = j / p.comp_rows.page_rows;
    DSV4_CHECK(j < visible && page_idx < p.comp_pages_stride, "row {} of {} visible", j, visible);
    append_row(p.comp_rows, p.comp_pages[sequence * p.comp_pages_stride + page_idx],
               j % p.comp_rows.page_rows, rows);
  }
}

// All rows of a matrix, decoded.
std::vector<float> decoded_matrix(const MatrixView& m) {
  std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
  for (std::int64_t r = 0; r < m.rows; ++r) decode_matrix_row(m, r, values.data() + r * m.cols);
  return values;
}

}  // namespace

void ReferenceBackend::compute(const AttentionParams& p, const OpContext&) {
  const std::int64_t head_dim = p.q.cols / p.num_heads;
  for (std::int64_t t = 0; t < p.q.rows; ++t) {
    const std::int64_t pos = p.positions[t];
    if (pos < 0) continue;
    std::vector<float> kv;
    if (p.window > 0) append_window_rows(p, pos, p.sequences[t], kv);
    if (p.compress_ratio > 0) append_compressed_rows(p, t, pos, p.sequences[t], kv);
    const AttendedRows rows{kv.data(), kv.data(), static_cast<std::int64_t>(kv.size()) / head_dim,
                            head_dim, head_dim};
    const std::vector<float> q = decoded_row(p.q, t);
    std::vector<float> out(q.size());
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      const float lse = attend(q.data() + h * head_dim, head_dim, rows, head_dim, p.softmax_scale,
                               sink_of(p.attn_sink, h), out.data() + h * head_dim);
      if (p.lse != nullptr) p.lse[t * p.num_heads + h] = lse;
    }
    store_matrix_row(p.out, t, out.data());
  }
}

void ReferenceBackend::compute(const DenseAttentionParams& p, const OpContext&) {
  const std::int64_t head_dim = p.q.cols / p.num_heads;
  const std::int64_t value_dim = p.v.cols / p.num_kv_heads;
  const std::int64_t heads_per_kv_head = p.num_heads / p.num_kv_heads;
  const std::vector<float> k = decoded_matrix(p.k);
  const std::vector<float> v = decoded_matrix(p.v);
  for (std::int64_t s = 0; s < p.num_sequences; ++s) {
    const std::int64_t queries = p.q_offsets[s + 1] - p.q_offsets[s];
    const std::int64_t keys = p.kv_offsets[s + 1] - p.kv_offsets[s];
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t row = p.q_offsets[s] + i;
      const std::int64_t end = p.causal ? std::max<std::int64_t>(0, keys - queries + i + 1) : keys;
      const std::int64_t begin = p.window > 0 ? std::max<std::int64_t>(0, end - p.window) : 0;
      const std::int64_t first = p.kv_offsets[s] + begin;
      const std::vector<float> q = decoded_row(p.q, row);
      std::vector<float> out(static_cast<std::size_t>(p.out.cols));
      for (std::int64_t h = 0; h < p.num_heads; ++h) {
        const std::int64_t kv_head = h / heads_per_kv_head;
        const AttendedRows rows{k.data() + first * p.k.cols + kv_head * head_dim,
                                v.data() + first * p.v.cols + kv_head * value_dim, end - begin,
                                p.k.cols, p.v.cols};
        const float lse =
            attend(q.data() + h * head_dim, head_dim, rows, value_dim, p.softmax_scale,
                   sink_of(p.attn_sink, h), out.data() + h * value_dim);
        if (p.lse != nullptr) p.lse[row * p.num_heads + h] = lse;
      }
      store_matrix_row(p.out, row, out.data());
    }
  }
}

}  // namespace dsv4
