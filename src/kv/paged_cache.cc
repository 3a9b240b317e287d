#include "kv/paged_cache.h"

#include <limits>

#include "base/error.h"
#include "base/math.h"

namespace dsv4 {
namespace {

MutablePagedRowsView rows_view(const DeviceBuffer& memory, const RowLayout& layout,
                               std::int64_t page_rows, std::int64_t num_pages) {
  return {{memory.data(), layout, page_rows, page_rows * layout.row_bytes(), num_pages}};
}

}  // namespace

PagedCache::PagedCache(Backend& backend, const CacheSchema& schema, std::int64_t capacity_tokens,
                       int max_sessions) {
  for (const int ratio : schema.compress_ratios()) {
    const std::int64_t num_pages = capacity_tokens / ratio / schema.page_rows + max_sessions;
    require(num_pages <= std::numeric_limits<std::int32_t>::max(), ErrorCode::kBadRequest,
            "a KV capacity of {} tokens needs {} pages of ratio {}; at most 2^31 - 1 are supported",
            capacity_tokens, num_pages, ratio);
    pools_.emplace(ratio, PageAllocator(static_cast<std::int32_t>(num_pages)));
  }
  for (const LayerCacheSchema& schema_layer : schema.layers) {
    Layer& layer = layers_.emplace_back();
    if (schema_layer.compress_ratio == 0) continue;
    const std::int64_t num_pages = pools_.at(schema_layer.compress_ratio).capacity();
    const std::int64_t num_rows = num_pages * schema.page_rows;
    layer.comp_memory = backend.allocate(num_rows * schema_layer.comp_rows.row_bytes());
    layer.comp = rows_view(layer.comp_memory, schema_layer.comp_rows, schema.page_rows, num_pages);
    if (!schema_layer.has_indexer()) continue;
    layer.index_memory = backend.allocate(num_rows * schema_layer.index_rows.row_bytes());
    layer.index =
        rows_view(layer.index_memory, schema_layer.index_rows, schema.page_rows, num_pages);
  }
}

}  // namespace dsv4
