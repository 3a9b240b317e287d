#include "kv/state_cache.h"

namespace dsv4 {

StateCache::StateCache(Backend& backend, const CacheSchema& schema, int max_sessions)
    : states_(max_sessions) {
  for (const LayerCacheSchema& schema_layer : schema.layers) {
    Layer& layer = layers_.emplace_back();
    const std::int64_t ring_bytes = schema.ring_rows * schema_layer.raw_rows.row_bytes();
    layer.raw_memory = backend.allocate(max_sessions * ring_bytes);
    layer.raw = {{layer.raw_memory.data(), schema_layer.raw_rows, schema.ring_rows, ring_bytes,
                  max_sessions}};
    const auto float_bytes = static_cast<std::int64_t>(sizeof(float)) * max_sessions;
    layer.comp_states = backend.allocate(float_bytes * schema_layer.comp_state_floats);
    layer.index_states = backend.allocate(float_bytes * schema_layer.index_state_floats);
  }
}

}  // namespace dsv4
