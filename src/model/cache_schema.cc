#include "model/cache_schema.h"

#include "base/check.h"
#include "base/error.h"
#include "ops/compressor.h"

namespace dsv4 {
namespace {

RowLayout attention_row(const ModelConfig& config, const ModelOptions& options) {
  switch (options.kv) {
    case KvFormat::kFp8:
      return {RowKind::kAttentionFp8, config.head_dim, config.rope_dim};
    case KvFormat::kBf16:
      return {RowKind::kBf16, config.head_dim, 0};
    case KvFormat::kF32:
      return {RowKind::kF32, config.head_dim, 0};
  }
  DSV4_CHECK(false);
  return {};
}

LayerCacheSchema layer_schema(const ModelConfig& config, const ModelOptions& options,
                              int compress_ratio) {
  LayerCacheSchema layer;
  layer.compress_ratio = compress_ratio;
  layer.raw_rows = attention_row(config, options);
  if (compress_ratio == 0) return layer;
  const bool overlapping = is_overlapping(compress_ratio);
  layer.comp_rows = layer.raw_rows;
  layer.comp_state_floats = compressor_state_floats(compress_ratio, overlapping, config.head_dim);
  if (!overlapping) return layer;
  layer.index_rows = {options.simulate_rows ? RowKind::kIndexerFp4 : RowKind::kF32,
                      config.index_head_dim, 0};
  layer.index_state_floats =
      compressor_state_floats(compress_ratio, overlapping, config.index_head_dim);
  return layer;
}

}  // namespace

CacheSchema make_cache_schema(const ModelConfig& config, const ModelOptions& options,
                              bool with_draft) {
  require(options.simulate_rows || options.kv != KvFormat::kFp8, ErrorCode::kBadRequest,
          "exact rows cannot be stored as FP8: choose a BF16 or FP32 KV cache, or simulated rows");
  require(options.max_step_tokens > 0 && options.max_step_tokens <= kMaxStepTokens,
          ErrorCode::kBadRequest, "max_step_tokens is {}, must be 1 to {}", options.max_step_tokens,
          kMaxStepTokens);
  require(options.page_rows > 0 && options.page_rows <= kMaxPageRows, ErrorCode::kBadRequest,
          "page_rows is {}, must be 1 to {}", options.page_rows, kMaxPageRows);
  CacheSchema schema;
  schema.ring_rows = config.window - 1 + options.max_step_tokens;
  schema.page_rows = options.page_rows;
  for (const int ratio : config.compress_ratios)
    schema.layers.push_back(layer_schema(config, options, ratio));
  if (with_draft) schema.layers.push_back(layer_schema(config, options, 0));
  return schema;
}

}  // namespace dsv4
