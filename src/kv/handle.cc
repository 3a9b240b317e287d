#include "kv/handle.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"

namespace dsv4 {

SequenceCache::SequenceCache(KvCache& cache)
    : cache_(&cache), state_idx_(cache.state.states().allocate("sessions")) {
  for (const int ratio : cache.schema.compress_ratios()) page_tables_[ratio];
}

SequenceCache::SequenceCache(SequenceCache&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      state_idx_(other.state_idx_),
      length_(other.length_),
      reserved_(other.reserved_),
      page_tables_(std::move(other.page_tables_)) {}

SequenceCache& SequenceCache::operator=(SequenceCache&& other) noexcept {
  SequenceCache taken(std::move(other));
  std::swap(cache_, taken.cache_);
  std::swap(state_idx_, taken.state_idx_);
  std::swap(length_, taken.length_);
  std::swap(reserved_, taken.reserved_);
  std::swap(page_tables_, taken.page_tables_);
  return *this;
}

SequenceCache::~SequenceCache() {
  if (cache_ == nullptr) return;
  release_pages();
  cache_->state.states().release(state_idx_);
}

void SequenceCache::reserve(std::int64_t num_tokens) {
  const std::int64_t end = length_ + num_tokens;
  const auto missing_pages = [&](int ratio, const std::vector<std::int32_t>& table) {
    return ceil_div(end / ratio, cache_->schema.page_rows) -
           static_cast<std::int64_t>(table.size());
  };
  for (const auto& [ratio, table] : page_tables_) {
    const std::int64_t missing = missing_pages(ratio, table);
    require(missing <= cache_->paged.pages(ratio).num_free(), ErrorCode::kOverloaded,
            "a session of {} tokens needs {} more pages of compress ratio {}, {} are free; finish "
            "a session or open the model with more kv_tokens",
            end, missing, ratio, cache_->paged.pages(ratio).num_free());
  }
  for (auto& [ratio, table] : page_tables_) {
    for (std::int64_t missing = missing_pages(ratio, table); missing > 0; --missing) {
      table.push_back(cache_->paged.pages(ratio).allocate("pages"));
    }
  }
  if (end > reserved_) reserved_ = end;
}

void SequenceCache::unreserve() {
  for (auto& [ratio, table] : page_tables_) {
    const auto needed =
        static_cast<std::size_t>(ceil_div(length_ / ratio, cache_->schema.page_rows));
    for (; table.size() > needed; table.pop_back()) {
      cache_->paged.pages(ratio).release(table.back());
    }
  }
  reserved_ = length_;
}

void SequenceCache::advance(std::int64_t num_tokens) {
  DSV4_CHECK(length_ + num_tokens <= reserved_, "{} + {} tokens, {} reserved", length_, num_tokens,
             reserved_);
  length_ += num_tokens;
}

void SequenceCache::clear() {
  release_pages();
  length_ = 0;
  reserved_ = 0;
}

void SequenceCache::release_pages() {
  for (auto& [ratio, table] : page_tables_) {
    for (const std::int32_t page : table) cache_->paged.pages(ratio).release(page);
    table.clear();
  }
}

}  // namespace dsv4
