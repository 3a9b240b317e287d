// state_cache.h: the memory a session holds whatever its length: window rings and open groups.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/allocator.h"
#include "kv/schema.h"
#include "ops/backend.h"
#include "tensor/kv_rows.h"

namespace dsv4 {

// State number s of every layer belongs to one session. The ring of a layer is page s of its raw
// rows; position p lies in row p % ring_rows.
class StateCache {
 public:
  StateCache(Backend& backend, const CacheSchema& schema, int max_sessions);

  PageAllocator& states() { return states_; }
  MutablePagedRowsView raw_rows(int layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)].raw;
  }
  // [max_sessions, state_floats] of the layer's schema; null where that is 0.
  float* comp_states(int layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)].comp_states.as<float>();
  }
  float* index_states(int layer_idx) const {
    return layers_[static_cast<std::size_t>(layer_idx)].index_states.as<float>();
  }

 private:
  struct Layer {
    DeviceBuffer raw_memory;
    DeviceBuffer comp_states;
    DeviceBuffer index_states;
    MutablePagedRowsView raw;
  };
  PageAllocator states_;
  std::vector<Layer> layers_;
};

}  // namespace dsv4
