// schema.h: what every layer keeps for a session, in bytes; the plan behind cache memory.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/kv_rows.h"

namespace dsv4 {

struct LayerCacheSchema {
  int compress_ratio = 0;  // 0: window only; the rest below is then unused
  RowLayout raw_rows;      // the window ring
  RowLayout comp_rows;
  RowLayout index_rows;  // width 0: the layer has no indexer
  std::int64_t comp_state_floats = 0;
  std::int64_t index_state_floats = 0;

  bool has_indexer() const { return index_rows.width > 0; }
};

struct CacheSchema {
  std::int64_t ring_rows = 0;  // window - 1 + the largest step: rows of a step can be taken back
  std::int64_t page_rows = 0;  // compressed rows in a page, the same for every layer
  std::vector<LayerCacheSchema> layers;

  // Ratios that occur, ascending. Layers of one ratio share page tables: page n of ratio r is page
  // n in the pool of each of its layers.
  std::vector<int> compress_ratios() const;
  // Bytes of one page over all layers of a ratio.
  std::int64_t page_bytes(int compress_ratio) const;
  // Bytes that grow with each token, averaged over groups.
  double bytes_per_token() const;
  // Bytes that a session holds whatever its length: rings and open groups.
  std::int64_t fixed_bytes() const;
};

}  // namespace dsv4
