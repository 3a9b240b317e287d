// The indexer, plainly: every visible row scored in FP64, then the best rows picked.
#include "ops/indexer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/row_checks.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"
#include "tensor/kv_row_codec.h"

namespace dsv4 {
namespace {

// A NaN counts below every number, -inf included.
bool ranks_before(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return a > b;
}

std::vector<float> query_heads(const IndexerParams& p, std::int64_t token) {
  const std::int64_t width = p.queries.layout.width;
  std::vector<float> heads(static_cast<std::size_t>(p.num_heads * width));
  for (std::int64_t h = 0; h < p.num_heads; ++h) {
    const std::int64_t slot = token * p.num_heads + h;
    decode_kv_row(p.queries.layout, p.queries.row_data(slot), p.queries.row_scales(slot),
                  heads.data() + h * width);
  }
  return heads;
}

std::vector<float> score_rows(const IndexerParams& p, std::int64_t token, std::int64_t visible) {
  if (visible == 0) return {};
  const std::int64_t width = p.rows.layout.width;
  const std::vector<float> queries = query_heads(p, token);
  const std::vector<float> weights = decoded_row(p.head_weights, token);
  const std::int32_t* const pages = p.pages + p.sequences[token] * p.pages_stride;
  std::vector<float> row(static_cast<std::size_t>(width));
  std::vector<float> scores(static_cast<std::size_t>(visible));
  for (std::int64_t j = 0; j < visible; ++j) {
    const std::int64_t page = pages[j / p.rows.page_rows];
    DSV4_CHECK(page >= 0 && page < p.rows.num_pages, "page {} of {}", page, p.rows.num_pages);
    const std::int64_t slot = page * p.rows.page_rows + j % p.rows.page_rows;
    decode_kv_row(p.rows.layout, p.rows.row_data(slot), p.rows.row_scales(slot), row.data());
    double score = 0;
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      const double product = dot(queries.data() + h * width, row.data(), width);
      // Written so that NaN stays: a poisoned row must not look like a score of 0.
      const float weight = weights[h] * p.head_weight_factor;
      score += weight * (product < 0 ? 0.0 : product);
    }
    scores[j] = static_cast<float>(score);
  }
  return scores;
}

void select_rows(const std::vector<float>& scores, std::int64_t top_k, std::int32_t* row_indices) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return ranks_before(scores[a], scores[b]);
  });
  if (static_cast<std::int64_t>(order.size()) > top_k) order.resize(top_k);
  std::sort(order.begin(), order.end());
  std::fill_n(row_indices, top_k, -1);
  std::copy(order.begin(), order.end(), row_indices);
}

}  // namespace

void ReferenceBackend::compute(const IndexerParams& p, const OpContext&) {
  for (std::int64_t t = 0; t < p.head_weights.rows; ++t) {
    if (p.positions[t] < 0) continue;
    const std::int64_t visible = (std::int64_t{p.positions[t]} + 1) / p.compress_ratio;
    DSV4_CHECK(visible <= p.max_visible_rows, "{} rows visible, max_visible_rows {}", visible,
               p.max_visible_rows);
    const std::vector<float> scores = score_rows(p, t, visible);
    select_rows(scores, p.index_top_k, p.row_indices + t * p.index_top_k);
    if (p.index_scores.data == nullptr) continue;
    std::copy(scores.begin(), scores.end(),
              static_cast<float*>(p.index_scores.data) + t * p.index_scores.row_stride);
  }
}

}  // namespace dsv4
