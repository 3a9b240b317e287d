// Refusals and cost of both attentions.
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/op_checks.h"
#include "ops/row_checks.h"

namespace dsv4 {
namespace {

void check_softmax_scale(const FieldPath& field, float softmax_scale) {
  require(std::isfinite(softmax_scale), ErrorCode::kBadRequest, "{} is {}, must be finite", field,
          softmax_scale);
}

void check_compressed_part(const AttentionParams& p, std::int64_t head_dim) {
  check_rows("AttentionParams.comp_rows", p.comp_rows, "q.cols / num_heads", head_dim);
  check_at_least("AttentionParams.comp_pages_stride", p.comp_pages_stride, 0);
  check_at_least("AttentionParams.num_indices", p.num_indices, 0);
  if (p.q.rows > 0 && p.comp_pages_stride > 0) {
    check_pointer("AttentionParams.comp_pages", p.comp_pages, "[sequences, comp_pages_stride]");
  }
}

// Rows that a token attends to at most, raw and compressed: the exact number is known on the device
// only.
std::int64_t max_compressed_rows(const AttentionParams& p) {
  if (p.compress_ratio == 0) return 0;
  const std::int64_t mapped = p.comp_pages_stride * p.comp_rows.page_rows;
  return p.row_indices == nullptr ? mapped : std::min(mapped, p.num_indices);
}

// Pairs of query and key with every sequence of the same length: the lengths are known on the
// device only.
double dense_pairs(const DenseAttentionParams& p) {
  if (p.num_sequences == 0) return 0;
  const double queries = static_cast<double>(p.q.rows) / p.num_sequences;
  const double keys = static_cast<double>(p.k.rows) / p.num_sequences;
  if (!p.causal) return queries * keys * p.num_sequences;
  double pairs = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(queries); ++i) {
    const double visible = std::max(0.0, keys - queries + static_cast<double>(i) + 1);
    pairs += p.window > 0 ? std::min(visible, static_cast<double>(p.window)) : visible;
  }
  return pairs * p.num_sequences;
}

}  // namespace

void check(const AttentionParams& p) {
  check_at_least("AttentionParams.num_heads", p.num_heads, 1);
  check_matrix("AttentionParams.q", p.q, kPlainFormats);
  require(p.q.cols > 0 && p.q.cols % p.num_heads == 0, ErrorCode::kBadRequest,
          "AttentionParams.q.cols is {}, must be a positive multiple of num_heads = {}", p.q.cols,
          p.num_heads);
  const std::int64_t head_dim = p.q.cols / p.num_heads;
  check_matrix("AttentionParams.out", p.out, kPlainFormats);
  check_equal("AttentionParams.out.rows", p.out.rows, "q.rows", p.q.rows);
  check_equal("AttentionParams.out.cols", p.out.cols, "q.cols", p.q.cols);
  check_at_least("AttentionParams.window", p.window, 0);
  if (p.window > 0) {
    check_rows("AttentionParams.raw_rows", p.raw_rows, "q.cols / num_heads", head_dim);
    check_at_most("AttentionParams.window", p.window, "raw_rows.page_rows", p.raw_rows.page_rows);
  }
  check_at_least("AttentionParams.compress_ratio", p.compress_ratio, 0);
  if (p.compress_ratio > 0) check_compressed_part(p, head_dim);
  check_softmax_scale("AttentionParams.softmax_scale", p.softmax_scale);
  if (p.q.rows == 0) return;
  check_pointer("AttentionParams.positions", p.positions, "[tokens]");
  check_pointer("AttentionParams.sequences", p.sequences, "[tokens]");
  if (p.window > 0) check_pointer("AttentionParams.raw_pages", p.raw_pages, "[sequences]");
}

Cost cost(const AttentionParams& p) {
  const std::int64_t tokens = p.q.rows;
  const std::int64_t comp_rows = max_compressed_rows(p);
  Cost cost;
  cost.flops = 4.0 * static_cast<double>(p.q.cols) * static_cast<double>(tokens) *
               static_cast<double>(p.window + comp_rows);
  cost.bytes_read = matrix_bytes(p.q) + 8 * tokens;
  if (p.window > 0) {
    cost.bytes_read +=
        std::min(tokens * p.window, num_slots(p.raw_rows)) * p.raw_rows.layout.row_bytes();
  }
  if (p.compress_ratio > 0) {
    cost.bytes_read +=
        std::min(tokens * comp_rows, num_slots(p.comp_rows)) * p.comp_rows.layout.row_bytes();
    if (p.row_indices != nullptr) cost.bytes_read += 4 * tokens * p.num_indices;
  }
  cost.bytes_written = matrix_bytes(p.out) + (p.lse == nullptr ? 0 : 4 * tokens * p.num_heads);
  return cost;
}

void check(const DenseAttentionParams& p) {
  check_at_least("DenseAttentionParams.num_heads", p.num_heads, 1);
  check_at_least("DenseAttentionParams.num_kv_heads", p.num_kv_heads, 1);
  require(p.num_heads % p.num_kv_heads == 0, ErrorCode::kBadRequest,
          "DenseAttentionParams.num_heads is {}, must be a multiple of num_kv_heads = {}",
          p.num_heads, p.num_kv_heads);
  check_matrix("DenseAttentionParams.q", p.q, kActivationFormats);
  check_matrix("DenseAttentionParams.k", p.k, kActivationFormats);
  check_matrix("DenseAttentionParams.v", p.v, kActivationFormats);
  require(p.q.cols > 0 && p.q.cols % p.num_heads == 0, ErrorCode::kBadRequest,
          "DenseAttentionParams.q.cols is {}, must be a positive multiple of num_heads = {}",
          p.q.cols, p.num_heads);
  check_equal("DenseAttentionParams.k.cols", p.k.cols, "num_kv_heads * (q.cols / num_heads)",
              p.num_kv_heads * (p.q.cols / p.num_heads));
  require(p.v.cols > 0 && p.v.cols % p.num_kv_heads == 0, ErrorCode::kBadRequest,
          "DenseAttentionParams.v.cols is {}, must be a positive multiple of num_kv_heads = {}",
          p.v.cols, p.num_kv_heads);
  check_equal("DenseAttentionParams.v.rows", p.v.rows, "k.rows", p.k.rows);
  check_matrix("DenseAttentionParams.out", p.out, kPlainFormats);
  check_equal("DenseAttentionParams.out.rows", p.out.rows, "q.rows", p.q.rows);
  check_equal("DenseAttentionParams.out.cols", p.out.cols, "num_heads * (v.cols / num_kv_heads)",
              p.num_heads * (p.v.cols / p.num_kv_heads));
  check_at_least("DenseAttentionParams.window", p.window, 0);
  require(p.window == 0 || p.causal, ErrorCode::kBadRequest,
          "DenseAttentionParams.window is {}, must be 0 unless causal", p.window);
  check_softmax_scale("DenseAttentionParams.softmax_scale", p.softmax_scale);
  check_at_least("DenseAttentionParams.num_sequences", p.num_sequences, 0);
  if (p.num_sequences == 0) return;
  check_pointer("DenseAttentionParams.q_offsets", p.q_offsets, "[num_sequences + 1]");
  check_pointer("DenseAttentionParams.kv_offsets", p.kv_offsets, "[num_sequences + 1]");
}

Cost cost(const DenseAttentionParams& p) {
  const auto values = static_cast<double>(p.q.cols + p.out.cols);
  Cost cost;
  cost.flops = 2 * values * dense_pairs(p);
  cost.bytes_read =
      matrix_bytes(p.q) + matrix_bytes(p.k) + matrix_bytes(p.v) + 8 * (p.num_sequences + 1);
  cost.bytes_written = matrix_bytes(p.out) + (p.lse == nullptr ? 0 : 4 * p.q.rows * p.num_heads);
  return cost;
}

}  // namespace dsv4
