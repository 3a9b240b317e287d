// shard_index.h: model.safetensors.index.json, which says in which shard each tensor lies. Whether
// that is true is checked by tensor_store.cc. Internal to io/.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {

struct ShardIndex {
  struct Entry {
    std::string tensor;
    int shard;  // position in shard_names
  };
  std::vector<std::string> shard_names;  // ascending; plain file names
  std::vector<Entry> entries;            // in the order of the text, no name twice
};

// Throws Error: kBadCheckpoint; not JSON, no or an empty weight_map, values that are not strings, a
// repeated name, a shard that is not a plain *.safetensors file name (paths would leave the model's
// directory). Keys beside weight_map are skipped.
ShardIndex parse_shard_index(std::string_view json, std::string_view where);

// Adds: kNotFound, kIo, kBadRequest (longer than kMaxIndexBytes, see tensor_store.h).
ShardIndex read_shard_index(const std::filesystem::path& path);

}  // namespace dsv4
