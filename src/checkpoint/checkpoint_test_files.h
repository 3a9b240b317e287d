// checkpoint_test_files.h: what the tests of checkpoint/ share: the bundled models, reading what
// was bound, and copies of models in memory that a test damages before it loads them.
#pragma once

#include <algorithm>
#include <cstdint>
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
#include "tensor/matrix_codec.h"

namespace dsv4 {

inline std::filesystem::path golden_dir(const std::string& name) {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "tests/data/golden" / name;
}
inline std::filesystem::path nano_dir() {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "models/nano";
}

inline StoredTensor stored(const ModelWeights& weights, const std::string& name) {
  const auto tensor = weights.store->find(name);
  if (!tensor) throw std::runtime_error("no tensor " + name);
  return *tensor;
}

// Number `idx` of a tensor of Ts, wherever it lies.
template <class T>
T value_at(const StoredTensor& tensor, std::size_t idx) {
  T value;
  std::memcpy(&value, tensor.bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

inline std::vector<float> decoded_row(const MatrixView& matrix, std::int64_t row) {
  std::vector<float> out(static_cast<std::size_t>(matrix.cols));
  decode_matrix_row(matrix, row, out.data());
  return out;
}

// Bytes of all tensors that the report lists, used or not.
inline std::int64_t accounted_bytes(const BindReport& report) {
  std::int64_t bytes = 0;
  for (const FormatTotal& total : report.totals) bytes += total.bytes;
  for (const UnusedTensor& tensor : report.unused) bytes += tensor.bytes;
  return bytes;
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
