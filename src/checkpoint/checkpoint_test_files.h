// checkpoint_test_files.h: what the tests of checkpoint/ share: the bundled models, and copies of
// them in memory that a test damages before it loads them.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/bind.h"
#include "io/io_test_files.h"
#include "io/safetensors_writer.h"

namespace dsv4 {

inline std::filesystem::path golden_dir(const std::string& name) {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "tests/data/golden" / name;
}
inline std::filesystem::path nano_dir() {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "models/nano";
}

// A model's files in memory, to edit and to write to a directory of its own.
class EditableModel {
 public:
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    std::vector<std::byte> bytes;

    template <class T>
    void set(std::size_t idx, T value) {
      std::memcpy(bytes.data() + idx * sizeof(T), &value, sizeof(T));
    }
  };

  explicit EditableModel(const std::filesystem::path& dir)
      : config(nlohmann::json::parse(get_file(dir / "config.json"))) {
    const TensorStore store = TensorStore::open(dir);
    for (const StoredTensor& t : store.tensors()) {
      tensors.push_back(
          {t.info->name, t.info->dtype, t.info->shape, {t.bytes.begin(), t.bytes.end()}});
    }
  }

  Tensor& tensor(const std::string& name) {
    const auto it = find(name);
    if (it == tensors.end()) throw std::runtime_error("the test model has no " + name);
    return *it;
  }
  void remove(const std::string& name) {
    tensor(name);
    tensors.erase(find(name));
  }
  void remove_prefix(const std::string& prefix) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name.starts_with(prefix); });
  }
  void remove_suffix(const std::string& suffix) {
    std::erase_if(tensors, [&](const Tensor& t) { return t.name.ends_with(suffix); });
  }
  void add(const std::string& name, DType dtype, const Shape& shape) {
    const auto size = static_cast<std::size_t>(*tensor_bytes(dtype, shape));
    tensors.push_back({name, dtype, shape, std::vector<std::byte>(size)});
  }
  // The same bytes under another type.
  void retype(const std::string& name, DType dtype, const Shape& shape) {
    Tensor& t = tensor(name);
    t.dtype = dtype;
    t.shape = shape;
    t.bytes.resize(static_cast<std::size_t>(*tensor_bytes(dtype, shape)));
  }

  std::shared_ptr<const ModelWeights> load(const LoadOptions& options = {}) {
    std::vector<TensorData> data;
    for (const Tensor& t : tensors) data.push_back({t.name, t.dtype, t.shape, t.bytes});
    write_safetensors(dir_ / kSingleFileName, data);
    put_file(dir_ / "config.json", config.dump());
    return load_checkpoint(dir_.path(), options);
  }
  const TempDir& dir() const { return dir_; }

  nlohmann::json config;
  std::vector<Tensor> tensors;

 private:
  std::vector<Tensor>::iterator find(const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const Tensor& t) { return t.name == name; });
  }

  TempDir dir_;
};

// Loading the edited model fails with this code and words.
inline void expect_refused(EditableModel& model, ErrorCode code,
                           const std::vector<std::string>& parts, const LoadOptions& options = {}) {
  expect_error(code, parts, [&] { model.load(options); });
}

}  // namespace dsv4
