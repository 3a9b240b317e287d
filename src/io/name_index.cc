#include "io/name_index.h"

#include <algorithm>
#include <cstddef>

namespace dsv4 {

NameIndex::NameIndex(const std::vector<std::string_view>& names) {
  sorted_.reserve(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    sorted_.emplace_back(names[i], static_cast<std::int64_t>(i));
  }
  std::sort(sorted_.begin(), sorted_.end());
}

std::optional<std::int64_t> NameIndex::find(std::string_view name) const {
  const auto it =
      std::lower_bound(sorted_.begin(), sorted_.end(), std::pair(name, std::int64_t{0}));
  if (it == sorted_.end() || it->first != name) return std::nullopt;
  return it->second;
}

std::optional<std::pair<std::int64_t, std::int64_t>> NameIndex::duplicate() const {
  for (std::size_t i = 1; i < sorted_.size(); ++i) {
    if (sorted_[i - 1].first == sorted_[i].first) {
      return std::pair(sorted_[i - 1].second, sorted_[i].second);
    }
  }
  return std::nullopt;
}

}  // namespace dsv4
