// handle.h: one session's share of a KvCache: its state, its pages, its length.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kv/kv_cache.h"

namespace dsv4 {

// Movable owner; gives everything back when destroyed. The cache must outlive it.
class SequenceCache {
 public:
  // Throws Error kOverloaded when all states are held.
  explicit SequenceCache(KvCache& cache);
  SequenceCache(SequenceCache&& other) noexcept;
  SequenceCache& operator=(SequenceCache&& other) noexcept;
  ~SequenceCache();

  // Tokens whose rows and states are in the cache.
  std::int64_t length() const { return length_; }
  std::int32_t state_idx() const { return state_idx_; }
  // Page of row j is page_table(ratio)[j / page_rows].
  std::span<const std::int32_t> page_table(int compress_ratio) const {
    return page_tables_.at(compress_ratio);
  }

  // Makes room for `num_tokens` more. Throws Error kOverloaded and changes nothing if it cannot.
  void reserve(std::int64_t num_tokens);
  // Gives back the room that no counted token needs.
  void unreserve();
  // Counts `num_tokens` reserved tokens as computed.
  void advance(std::int64_t num_tokens);
  // Forgets everything; pages go back, the state stays.
  void clear();

 private:
  void release_pages();

  KvCache* cache_;
  std::int32_t state_idx_;
  std::int64_t length_ = 0;
  std::int64_t reserved_ = 0;
  std::map<int, std::vector<std::int32_t>> page_tables_;
};

}  // namespace dsv4
