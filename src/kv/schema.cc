#include "kv/schema.h"

#include <algorithm>

namespace dsv4 {
namespace {

std::int64_t grown_row_bytes(const LayerCacheSchema& layer) {
  return layer.comp_rows.row_bytes() + (layer.has_indexer() ? layer.index_rows.row_bytes() : 0);
}

}  // namespace

std::vector<int> CacheSchema::compress_ratios() const {
  std::vector<int> ratios;
  for (const LayerCacheSchema& layer : layers) {
    if (layer.compress_ratio != 0) ratios.push_back(layer.compress_ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
  return ratios;
}

std::int64_t CacheSchema::page_bytes(int compress_ratio) const {
  std::int64_t bytes = 0;
  for (const LayerCacheSchema& layer : layers) {
    if (layer.compress_ratio == compress_ratio) bytes += page_rows * grown_row_bytes(layer);
  }
  return bytes;
}

double CacheSchema::bytes_per_token() const {
  double bytes = 0;
  for (const LayerCacheSchema& layer : layers) {
    if (layer.compress_ratio != 0)
      bytes += static_cast<double>(grown_row_bytes(layer)) / layer.compress_ratio;
  }
  return bytes;
}

std::int64_t CacheSchema::fixed_bytes() const {
  std::int64_t bytes = 0;
  for (const LayerCacheSchema& layer : layers) {
    bytes += ring_rows * layer.raw_rows.row_bytes() +
             static_cast<std::int64_t>(sizeof(float)) *
                 (layer.comp_state_floats + layer.index_state_floats);
  }
  return bytes;
}

}  // namespace dsv4
