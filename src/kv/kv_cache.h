// kv_cache.h: all cache memory of a model on one device. Sessions hold parts of it (handle.h).
#pragma once

#include <utility>

#include "kv/paged_cache.h"
#include "kv/schema.h"
#include "kv/state_cache.h"

namespace dsv4 {

struct KvCache {
  // Throws Error kOutOfMemory. The backend must outlive the cache.
  KvCache(Backend& backend, CacheSchema cache_schema, std::int64_t capacity_tokens,
          int max_sessions)
      : schema(std::move(cache_schema)),
        paged(backend, schema, capacity_tokens, max_sessions),
        state(backend, schema, max_sessions) {}

  CacheSchema schema;
  PagedCache paged;
  StateCache state;
};

}  // namespace dsv4
