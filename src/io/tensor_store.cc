#include "io/tensor_store.h"

#include <cstdint>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "io/json_events.h"
#include "io/shard_index.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;

struct ModelFiles {
  fs::path directory;               // of an indexed model
  std::optional<ShardIndex> index;  // none: a single file
  std::vector<fs::path> shard_paths;
};

bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::none) {
    fail(ErrorCode::kIo, "cannot look at {}: {}", path.c_str(), error.message());
  }
  return status.type() != fs::file_type::not_found;
}

std::vector<fs::path> paths_of_shards(const fs::path& directory, const ShardIndex& index) {
  std::vector<fs::path> paths;
  std::size_t num_missing = 0;
  const std::string* first_missing = nullptr;
  for (const std::string& name : index.shard_names) {
    paths.push_back(directory / name);
    if (is_there(paths.back())) continue;
    if (num_missing++ == 0) first_missing = &name;
  }
  if (num_missing > 0) {
    fail(ErrorCode::kBadCheckpoint,
         "{}: {} of {} shards that {} names are missing, the first is {}; complete the download",
         directory.c_str(), num_missing, paths.size(), kIndexFileName, quote_text(*first_missing));
  }
  return paths;
}

ModelFiles find_model_files(const fs::path& model) {
  require(is_there(model), ErrorCode::kNotFound, "{}: there is no such file or directory",
          model.c_str());
  ModelFiles files;
  std::error_code ignored;
  if (!fs::is_directory(model, ignored)) {
    require(model.extension() == ".safetensors", ErrorCode::kBadRequest,
            "{} is neither a model directory nor a .safetensors file", model.c_str());
    files.shard_paths = {model};
    return files;
  }
  files.directory = model;
  const fs::path index_path = model / kIndexFileName;
  const fs::path single_path = model / kSingleFileName;
  if (is_there(index_path)) {
    files.index = read_shard_index(index_path);
    files.shard_paths = paths_of_shards(model, *files.index);
    return files;
  }
  require(is_there(single_path), ErrorCode::kNotFound,
          "{}: neither {} nor {} is there; name a directory that holds a model", model.c_str(),
          kSingleFileName, kIndexFileName);
  files.shard_paths = {single_path};
  return files;
}

// Every tensor found lies where the index says, and every tensor of the index was found. `store`
// has no name twice.
void check_against_index(const TensorStore& store, const ShardIndex& index,
                         const fs::path& directory) {
  std::vector<std::string_view> names;
  names.reserve(index.entries.size());
  for (const ShardIndex::Entry& entry : index.entries) names.push_back(entry.tensor);
  const NameIndex by_name(names);
  const std::vector<std::string>& shards = index.shard_names;
  for (const StoredTensor& tensor : store.tensors()) {
    const std::string& shard = shards[static_cast<std::size_t>(tensor.shard)];
    const std::optional<std::int64_t> position = by_name.find(tensor.info->name);
    if (!position) {
      fail(ErrorCode::kBadCheckpoint, "{}: tensor {} is in shard {}, but {} does not name it",
           directory.c_str(), quote_text(tensor.info->name), quote_text(shard), kIndexFileName);
    }
    const int indexed_shard = index.entries[static_cast<std::size_t>(*position)].shard;
    if (indexed_shard != tensor.shard) {
      fail(ErrorCode::kBadCheckpoint, "{}: tensor {} is in shard {}, but {} places it in {}",
           directory.c_str(), quote_text(tensor.info->name), quote_text(shard), kIndexFileName,
           quote_text(shards[static_cast<std::size_t>(indexed_shard)]));
    }
  }
  for (const ShardIndex::Entry& entry : index.entries) {
    if (!store.find(entry.tensor)) {
      fail(ErrorCode::kBadCheckpoint, "{}: {} places tensor {} in shard {}, which does not have it",
           directory.c_str(), kIndexFileName, quote_text(entry.tensor),
           quote_text(shards[static_cast<std::size_t>(entry.shard)]));
    }
  }
}

std::span<const std::byte> part_of(const StoredTensor& tensor, std::int64_t begin,
                                   std::int64_t count) {
  const std::int64_t size = std::ssize(tensor.bytes);
  DSV4_CHECK(begin >= 0 && count >= 0 && begin <= size && count <= size - begin,
             "bytes {} + {} of tensor {} of {} bytes", begin, count, tensor.info->name, size);
  return tensor.bytes.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count));
}

}  // namespace

bool StoredTensor::aligned() const {
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  return address % static_cast<std::uintptr_t>(dtype_bytes(info->dtype)) == 0;
}

TensorStore TensorStore::open(const fs::path& model, const LoadProgressCallback& progress) {
  ModelFiles files = find_model_files(model);
  TensorStore store;
  store.shard_paths_ = std::move(files.shard_paths);
  store.shards_.reserve(store.shard_paths_.size());
  const auto report = [&](std::int64_t files_done) {
    if (!progress) return;
    progress({.stage = LoadProgress::Stage::kFiles,
              .done = files_done,
              .total = std::ssize(store.shard_paths_)});
  };
  report(0);
  for (const fs::path& path : store.shard_paths_) {
    const SafetensorsFile& shard = store.shards_.emplace_back(SafetensorsFile::open(path));
    const int shard_idx = static_cast<int>(store.shards_.size()) - 1;
    for (const TensorInfo& info : shard.tensors()) {
      store.add_tensor({&info, shard.bytes(info), shard_idx});
    }
    report(shard_idx + 1);
  }
  if (const auto duplicate = store.index_names()) {
    const StoredTensor& a = store.tensors_[static_cast<std::size_t>(duplicate->first)];
    const StoredTensor& b = store.tensors_[static_cast<std::size_t>(duplicate->second)];
    fail(ErrorCode::kBadCheckpoint, "{}: tensor {} is in two shards, {} and {}", model.c_str(),
         quote_text(a.info->name),
         store.shard_paths_[static_cast<std::size_t>(a.shard)].filename().c_str(),
         store.shard_paths_[static_cast<std::size_t>(b.shard)].filename().c_str());
  }
  if (files.index) check_against_index(store, *files.index, files.directory);
  return store;
}

TensorStore TensorStore::from_headers(std::vector<TensorInfo> tensors) {
  TensorStore store;
  store.headers_ = std::move(tensors);
  for (TensorInfo& info : store.headers_) {
    const std::string_view fault = tensor_name_fault(info.name);
    if (!fault.empty()) {
      fail(ErrorCode::kBadCheckpoint, "tensor {}: {}", quote_text(info.name), fault);
    }
    const std::optional<std::int64_t> size = tensor_bytes(info.dtype, info.shape);
    const std::optional<std::int64_t> end =
        size ? checked_add(store.payload_bytes_, *size) : std::nullopt;
    if (!end) {
      fail(ErrorCode::kBadCheckpoint, "tensor {}: {} {} is no shape, or ends past 2^63 - 1 bytes",
           quote_text(info.name), dtype_name(info.dtype), info.shape.to_string());
    }
    info.begin = store.payload_bytes_;
    info.end = *end;
    store.add_tensor({&info, {}, 0});
  }
  if (const auto duplicate = store.index_names()) {
    fail(ErrorCode::kBadCheckpoint, "tensor {} is there twice",
         quote_text(store.headers_[static_cast<std::size_t>(duplicate->first)].name));
  }
  return store;
}

std::optional<StoredTensor> TensorStore::find(std::string_view name) const {
  const std::optional<std::int64_t> position = by_name_.find(name);
  if (!position) return std::nullopt;
  return tensors_[static_cast<std::size_t>(*position)];
}

const TensorMetadata& TensorStore::metadata(int shard) const {
  DSV4_CHECK(shard >= 0 && static_cast<std::size_t>(shard) < shards_.size(), "shard {}", shard);
  return shards_[static_cast<std::size_t>(shard)].metadata();
}

void TensorStore::will_need(const StoredTensor& tensor) const {
  will_need(tensor, 0, std::ssize(tensor.bytes));
}

void TensorStore::will_need(const StoredTensor& tensor, std::int64_t begin,
                            std::int64_t count) const {
  if (has_data()) mapping_of(tensor).will_need(part_of(tensor, begin, count));
}

void TensorStore::release(const StoredTensor& tensor) const {
  release(tensor, 0, std::ssize(tensor.bytes));
}

void TensorStore::release(const StoredTensor& tensor, std::int64_t begin,
                          std::int64_t count) const {
  if (has_data()) mapping_of(tensor).release(part_of(tensor, begin, count));
}

void TensorStore::release_all() const {
  for (const SafetensorsFile& shard : shards_) shard.mapping().release(shard.mapping().bytes());
}

const MappedFile& TensorStore::mapping_of(const StoredTensor& tensor) const {
  return shards_[static_cast<std::size_t>(tensor.shard)].mapping();
}

// The sum cannot overflow: each caller has bounded it, by the files' sizes or by checked_add.
void TensorStore::add_tensor(const StoredTensor& tensor) {
  tensors_.push_back(tensor);
  payload_bytes_ += tensor.info->size_bytes();
}

std::optional<std::pair<std::int64_t, std::int64_t>> TensorStore::index_names() {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const StoredTensor& tensor : tensors_) names.push_back(tensor.info->name);
  by_name_ = NameIndex(names);
  return by_name_.duplicate();
}

}  // namespace dsv4
