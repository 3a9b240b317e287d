#include "io/shard_index.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/error.h"
#include "io/atomic_file.h"
#include "io/json_events.h"
#include "io/name_index.h"
#include "io/safetensors.h"
#include "io/tensor_store.h"

namespace dsv4 {
namespace {

// No directory, and nothing that would write to a terminal when the name stands in a message.
bool is_plain_shard_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  return name.size() > kSuffix.size() && name.ends_with(kSuffix) &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) {
           return c == '/' || c == '\\' || c < 0x20 || c == 0x7f;
         });
}

class IndexEvents : public JsonEvents {
 public:
  explicit IndexEvents(std::string_view where) : where_(where) {}

  ShardIndex take() {
    if (!has_map_) refuse("weight_map is missing");
    if (index_.entries.empty()) refuse("weight_map is empty");
    // std::map has sorted the names; entries still count them in order of appearance.
    std::vector<int> sorted_position(shards_.size());
    for (auto& [name, appearance] : shards_) {
      sorted_position[static_cast<std::size_t>(appearance)] =
          static_cast<int>(index_.shard_names.size());
      index_.shard_names.push_back(name);
    }
    for (ShardIndex::Entry& entry : index_.entries) {
      entry.shard = sorted_position[static_cast<std::size_t>(entry.shard)];
    }
    return std::move(index_);
  }

  void begin_object() override {
    if (depth_ >= 2 && in_map_) bad_shard("an object");
    ++depth_;
  }
  void key(std::string& name) override {
    if (depth_ == 1) {
      in_map_ = name == "weight_map";
      if (in_map_ && std::exchange(has_map_, true)) refuse("weight_map is there twice");
    } else if (in_map_) {
      tensor_ = std::move(name);
      const std::string_view fault = tensor_name_fault(tensor_);
      if (!fault.empty()) refuse("weight_map: tensor {}: {}", quote_text(tensor_), fault);
    }
  }
  void end_object() override { --depth_; }
  void begin_array() override {
    scalar_or_array("an array");
    ++depth_;
  }
  void end_array() override { --depth_; }
  void string(std::string& value) override {
    if (depth_ != 2 || !in_map_) return scalar_or_array("a string");
    if (!is_plain_shard_name(value)) {
      refuse("tensor {}: the shard {} is not the name of a .safetensors file in this directory",
             quote_text(tensor_), quote_text(value));
    }
    const int appearance = static_cast<int>(shards_.size());
    const int shard = shards_.emplace(std::move(value), appearance).first->second;
    index_.entries.push_back({std::move(tensor_), shard});
  }
  void whole_number(std::uint64_t) override { scalar_or_array("a number"); }
  void other(std::string_view kind) override { scalar_or_array(kind); }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::kBadCheckpoint, "{}: {}", where_,
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void bad_shard(std::string_view kind) const {
    refuse("tensor {}: the shard is {}; it must be a string", quote_text(tensor_), kind);
  }
  // Everywhere but inside weight_map such a value is skipped.
  void scalar_or_array(std::string_view kind) const {
    if (depth_ == 0) refuse("it is {}; it must be an object", kind);
    if (depth_ == 1 && in_map_) refuse("weight_map is {}; it must be an object", kind);
    if (depth_ == 2 && in_map_) bad_shard(kind);
  }

  std::string_view where_;
  ShardIndex index_;
  std::map<std::string, int> shards_;  // to order of appearance
  int depth_ = 0;
  bool in_map_ = false, has_map_ = false;
  std::string tensor_;
};

}  // namespace

ShardIndex parse_shard_index(std::string_view json, std::string_view where) {
  IndexEvents events(where);
  parse_json_events(json, where, events);
  ShardIndex index = events.take();
  std::vector<std::string_view> names;
  names.reserve(index.entries.size());
  for (const ShardIndex::Entry& entry : index.entries) names.push_back(entry.tensor);
  if (const auto duplicate = NameIndex(names).duplicate()) {
    fail(ErrorCode::kBadCheckpoint, "{}: tensor {} is there twice", where,
         quote_text(names[static_cast<std::size_t>(duplicate->first)]));
  }
  return index;
}

ShardIndex read_shard_index(const std::filesystem::path& path) {
  return parse_shard_index(read_text_file(path, kMaxIndexBytes), path.native());
}

}  // namespace dsv4
