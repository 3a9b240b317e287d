// name_index.h: from a tensor's name to its position in a list.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace dsv4 {

// A sorted array, not a hash table: names come from untrusted files, and chosen collisions would
// make a hash table quadratic. The text of the names is not copied and must outlive the index.
class NameIndex {
 public:
  NameIndex() = default;
  explicit NameIndex(const std::vector<std::string_view>& names);

  // Position of `name` in the list given; the first one if it is there twice.
  std::optional<std::int64_t> find(std::string_view name) const;
  // Positions of two equal names, the smaller first.
  std::optional<std::pair<std::int64_t, std::int64_t>> duplicate() const;

 private:
  std::vector<std::pair<std::string_view, std::int64_t>> sorted_;
};

}  // namespace dsv4
