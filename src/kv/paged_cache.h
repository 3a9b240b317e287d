// paged_cache.h: the memory of compressed rows and index rows, in pages; which session holds which
// page is handle.h's matter.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kv/allocator.h"
#include "kv/schema.h"
#include "ops/backend.h"
#include "tensor/kv_rows.h"

namespace dsv4 {

class PagedCache {
 public:
  // Allocates all pages at once: enough for `capacity_tokens` tokens over all sessions, however
  // they are spread over up to `max_sessions` of them. Throws Error kOutOfMemory.
  PagedCache(Backend& backend, const CacheSchema& schema, std::int64_t capacity_tokens,
             int max_sessions);

  PageAllocator& pages(int compress_ratio) { return pools_.at(compress_ratio); }
  MutablePagedRowsView comp_rows(int layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)].comp;
  }
  MutablePagedRowsView index_rows(int layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)].index;
  }

 private:
  struct Layer {
    DeviceBuffer comp_memory;
    DeviceBuffer index_memory;
    MutablePagedRowsView comp;
    MutablePagedRowsView index;
  };
  std::map<int, PageAllocator> pools_;
  std::vector<Layer> layers_;
};

}  // namespace dsv4
