// The attention sublayer: queries, window rows, compressed rows, indexer, attention, output
// projection.
#include <cmath>

#include "base/check.h"
#include "model/layer.h"

namespace dsv4 {
namespace {

using Buffers = StepBuffers;

MatrixView rows_of(const MutableMatrixView& buffer, std::int64_t rows) {
  return Buffers::rows(buffer, rows);
}

// The heads of each token as rows of their own.
MutableMatrixView as_heads(const MutableMatrixView& m, std::int64_t num_heads) {
  return Buffers::part(m, m.rows * num_heads, m.cols / num_heads);
}

void run_queries(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                 const LayerPrecision& precision) {
  const std::int64_t tokens = c.plan.num_tokens;
  const MatrixView x = rows_of(c.buffers.x, tokens);
  const MutableMatrixView q_low = Buffers::rows(c.buffers.q_low, tokens);
  const MutableMatrixView q = Buffers::rows(c.buffers.q, tokens);
  const auto eps = static_cast<float>(c.config.norm_eps);
  ops.linear(x, layer.q_a, q_low, precision.q_a);
  ops.run(RmsNormParams{.x = q_low, .weight = layer.q_norm, .eps = eps, .out = q_low});
  ops.linear(q_low, layer.q_b, q, precision.q_b);
  const MutableMatrixView heads = as_heads(q, c.config.num_heads);
  ops.run(RmsNormParams{.x = heads, .weight = {}, .eps = eps, .out = heads});
  ops.run(RopeParams{.x = q,
                     .num_heads = c.config.num_heads,
                     .rope_dim = static_cast<int>(c.config.rope_dim),
                     .frequencies = c.frequencies,
                     .positions = c.plan.positions});
}

void write_window_rows(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                       const LayerPrecision& precision) {
  const std::int64_t tokens = c.plan.num_tokens;
  const MutableMatrixView kv = Buffers::rows(c.buffers.kv, tokens);
  ops.linear(rows_of(c.buffers.x, tokens), layer.kv, kv, precision.kv);
  ops.run(RmsNormParams{
      .x = kv, .weight = layer.kv_norm, .eps = static_cast<float>(c.config.norm_eps), .out = kv});
  ops.run(RopeParams{.x = kv,
                     .rope_dim = static_cast<int>(c.config.rope_dim),
                     .frequencies = c.frequencies,
                     .positions = c.plan.positions});
  ops.run(KvWriteParams{
      .x = kv,
      .slots = c.plan.ring_slots,
      .rounding = c.options.simulate_rows ? RowRounding::kAttention : RowRounding::kNone,
      .rope_dim = c.config.rope_dim,
      .rows = c.cache.state.raw_rows(c.layer_idx)});
}

// Where a compressor's rows go and how they are rounded on the way.
struct RowTarget {
  MutablePagedRowsView rows;
  float* states = nullptr;
  bool for_index = false;
};

void write_compressed_rows(OpRunner& ops, const LayerContext& c,
                           const CompressorWeights& compressor, int compress_ratio,
                           const RowTarget& target) {
  const std::int64_t tokens = c.plan.num_tokens;
  const StepPlan::Ratio& ratio = c.plan.ratios.at(compress_ratio);
  const std::int64_t row_dim = target.rows.layout.width;
  const bool overlapping = is_overlapping(compress_ratio);
  const std::int64_t width = compressor_width(compress_ratio, row_dim);
  const MatrixView x = rows_of(c.buffers.x, tokens);
  const MutableMatrixView values = Buffers::part(c.buffers.comp_values, tokens, width);
  const MutableMatrixView scores = Buffers::part(c.buffers.comp_scores, tokens, width);
  const MutableMatrixView rows = Buffers::part(c.buffers.comp_rows, tokens, row_dim);
  ops.linear(x, compressor.value_proj, values, {});
  ops.linear(x, compressor.score_proj, scores, {});
  const CompressorTokens step{
      .compress_ratio = compress_ratio,
      .overlapping = overlapping,
      .row_dim = row_dim,
      .values = values,
      .scores = scores,
      .ape = compressor.ape,
      .positions = c.plan.positions,
      .num_sequences = c.plan.num_sequences,
      .token_offsets = c.plan.token_offsets,
      .state_idx = c.plan.state_idx,
      .state_stride = compressor_state_floats(compress_ratio, overlapping, row_dim)};
  ops.run(CompressParams{.tokens = step,
                         .states = target.states,
                         .norm_weight = compressor.norm,
                         .eps = static_cast<float>(c.config.norm_eps),
                         .rows = rows});
  ops.run(CompressorCommitParams{.tokens = step, .num_accepted = nullptr, .states = target.states});
  ops.run(RopeParams{.x = rows,
                     .rope_dim = static_cast<int>(c.config.rope_dim),
                     .frequencies = c.frequencies,
                     .positions = ratio.row_positions});
  const RowRounding rounding = target.for_index ? RowRounding::kIndexer : RowRounding::kAttention;
  ops.run(KvWriteParams{.x = rows,
                        .slots = ratio.slots,
                        .hadamard = target.for_index,
                        .rounding = c.options.simulate_rows ? rounding : RowRounding::kNone,
                        .rope_dim = c.config.rope_dim,
                        .rows = target.rows});
}

// Leaves the selected rows in buffers.row_indices.
void run_indexer(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                 const LayerPrecision& precision) {
  const IndexerWeights& indexer = *layer.indexer;
  const std::int64_t tokens = c.plan.num_tokens;
  const StepPlan::Ratio& ratio = c.plan.ratios.at(layer.compress_ratio);
  const MutablePagedRowsView index_rows = c.cache.paged.index_rows(c.layer_idx);
  write_compressed_rows(ops, c, indexer.compressor, layer.compress_ratio,
                        {index_rows, c.cache.state.index_states(c.layer_idx), true});

  const MutableMatrixView q = Buffers::rows(c.buffers.index_q, tokens);
  const MutableMatrixView head_weights = Buffers::rows(c.buffers.index_head_weights, tokens);
  ops.linear(rows_of(c.buffers.q_low, tokens), indexer.q_b, q, precision.index_q_b);
  ops.run(RopeParams{.x = q,
                     .num_heads = c.config.index_heads,
                     .rope_dim = static_cast<int>(c.config.rope_dim),
                     .frequencies = c.frequencies,
                     .positions = c.plan.positions});
  ops.run(KvWriteParams{
      .x = q,
      .rows_per_token = c.config.index_heads,
      .hadamard = true,
      .rounding = c.options.simulate_rows ? RowRounding::kIndexer : RowRounding::kNone,
      .rows = c.buffers.index_queries});
  ops.linear(rows_of(c.buffers.x, tokens), indexer.head_weights_proj, head_weights, {});
  ops.run(IndexerParams{
      .queries = c.buffers.index_queries,
      .head_weights = head_weights,
      .head_weight_factor = static_cast<float>(
          1.0 / std::sqrt(static_cast<double>(c.config.index_head_dim) * c.config.index_heads)),
      .num_heads = c.config.index_heads,
      .positions = c.plan.positions,
      .sequences = c.plan.sequences,
      .rows = index_rows,
      .pages = ratio.pages,
      .pages_stride = ratio.pages_stride,
      .compress_ratio = layer.compress_ratio,
      .max_visible_rows = ratio.max_visible_rows,
      .index_top_k = c.config.index_top_k,
      .row_indices = c.buffers.row_indices});
}

void run_output_projection(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                           const LayerPrecision& precision) {
  const std::int64_t tokens = c.plan.num_tokens;
  const MutableMatrixView attention = Buffers::rows(c.buffers.attention, tokens);
  const MutableMatrixView o_low = Buffers::rows(c.buffers.o_low, tokens);
  ops.run(RopeParams{.x = attention,
                     .num_heads = c.config.num_heads,
                     .rope_dim = static_cast<int>(c.config.rope_dim),
                     .frequencies = c.frequencies,
                     .positions = c.plan.positions,
                     .inverse = true});
  ops.linear(attention, layer.o_a, o_low, {}, c.config.num_output_groups);
  ops.linear(o_low, layer.o_b, Buffers::rows(c.buffers.sublayer_out, tokens), precision.o_b);
}

}  // namespace

void run_attention(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                   const LayerPrecision& precision) {
  const std::int64_t tokens = c.plan.num_tokens;
  run_queries(ops, c, layer, precision);
  write_window_rows(ops, c, layer, precision);
  AttentionParams params{
      .q = rows_of(c.buffers.q, tokens),
      .num_heads = c.config.num_heads,
      .positions = c.plan.positions,
      .sequences = c.plan.sequences,
      .raw_rows = c.cache.state.raw_rows(c.layer_idx),
      .raw_pages = c.plan.state_idx,
      .window = c.config.window,
      .compress_ratio = layer.compress_ratio,
      .attn_sink = layer.attn_sink,
      .softmax_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.config.head_dim))),
      .out = Buffers::rows(c.buffers.attention, tokens)};
  if (layer.compress_ratio != 0) {
    const StepPlan::Ratio& ratio = c.plan.ratios.at(layer.compress_ratio);
    params.comp_rows = c.cache.paged.comp_rows(c.layer_idx);
    params.comp_pages = ratio.pages;
    params.comp_pages_stride = ratio.pages_stride;
    write_compressed_rows(
        ops, c, *layer.compressor, layer.compress_ratio,
        {c.cache.paged.comp_rows(c.layer_idx), c.cache.state.comp_states(c.layer_idx), false});
    if (layer.indexer.has_value()) {
      run_indexer(ops, c, layer, precision);
      params.row_indices = c.buffers.row_indices;
      params.num_indices = c.config.index_top_k;
    }
  }
  ops.run(params);
  run_output_projection(ops, c, layer, precision);
}

}  // namespace dsv4
