// tensor_store.h: all tensors of a model, from one .safetensors file or from shards and their
// index. Knows names, sizes and bytes; what they mean is checkpoint/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dsv4/types.h"
#include "io/name_index.h"
#include "io/safetensors.h"

namespace dsv4 {

inline constexpr std::string_view kSingleFileName = "model.safetensors";
inline constexpr std::string_view kIndexFileName = "model.safetensors.index.json";
// 188,245 tensors, the largest model known, take about 20 MB.
inline constexpr std::int64_t kMaxIndexBytes = 100'000'000;

struct StoredTensor {
  const TensorInfo* info = nullptr;
  std::span<const std::byte> bytes;  // empty in a store made from headers
  int shard = 0;                     // position in shard_paths(); 0 in a store made from headers

  // Whether bytes may be read through a pointer to the dtype's own type. The format does not
  // promise it; whoever binds a tensor in place copies the unaligned ones. An empty tensor's
  // address counts like any other.
  bool aligned() const;
};

// Owns the mappings; infos and bytes live as long as the store, also when it is moved. Const calls
// may come from several threads.
class TensorStore {
 public:
  // `model` is a directory or one .safetensors file. In a directory the index, if present, decides
  // and a model.safetensors beside it is read only if the index names it; without an index,
  // model.safetensors is the model. Headers and index must agree in both directions: every tensor
  // lies in exactly the shard that the index names. The index's metadata (total_size) is ignored:
  // it is stale in many converted models. Shards are plain file names in the same directory
  // (symbolic links are followed).
  // `progress`, if not null, is called before the first file and after each.
  // Throws Error: kNotFound (no model there), kBadCheckpoint, kUnsupported, kBadRequest, kIo.
  static TensorStore open(const std::filesystem::path& model,
                          const LoadProgressCallback& progress = nullptr);

  // Headers without data, to check a model's structure: sizes come from dtype and shape; begin and
  // end are overwritten as if the tensors lay one after the other.
  // Throws Error: kBadCheckpoint (a bad or repeated name, a size past 2^63 - 1).
  static TensorStore from_headers(std::vector<TensorInfo> tensors);

  TensorStore(TensorStore&&) = default;
  TensorStore& operator=(TensorStore&&) = default;

  std::optional<StoredTensor> find(std::string_view name) const;
  // Shard after shard, each in the order of its data section.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  // Sum of the tensors' sizes; also for a store made from headers.
  std::int64_t payload_bytes() const { return payload_bytes_; }
  // Whether tensors have bytes: false for a store made from headers.
  bool has_data() const { return !shards_.empty(); }
  // Ascending by file name.
  std::span<const std::filesystem::path> shard_paths() const { return shard_paths_; }
  // Of one shard, 0 <= shard < shard_paths().size().
  const TensorMetadata& metadata(int shard) const;

  // MappedFile's hints on one tensor of this store, or on `count` bytes of it from byte `begin`;
  // nothing happens without data.
  void will_need(const StoredTensor& tensor) const;
  void will_need(const StoredTensor& tensor, std::int64_t begin, std::int64_t count) const;
  void release(const StoredTensor& tensor) const;
  void release(const StoredTensor& tensor, std::int64_t begin, std::int64_t count) const;
  // Of all shards: also what was mapped along with tensors that were read.
  void release_all() const;

 private:
  TensorStore() = default;
  void add_tensor(const StoredTensor& tensor);
  const MappedFile& mapping_of(const StoredTensor& tensor) const;
  // Returns the positions of a repeated name, if any.
  std::optional<std::pair<std::int64_t, std::int64_t>> index_names();

  std::vector<SafetensorsFile> shards_;
  std::vector<std::filesystem::path> shard_paths_;
  std::vector<TensorInfo> headers_;  // only of a store made from headers
  std::vector<StoredTensor> tensors_;
  NameIndex by_name_;
  std::int64_t payload_bytes_ = 0;
};

}  // namespace dsv4
