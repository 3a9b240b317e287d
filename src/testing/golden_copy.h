// golden_copy.h: copies of the recorded golden values in a temporary folder, less or other than the
// originals, for tests that must see a judgement refuse or run short.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "io/safetensors_writer.h"

namespace dsv4 {

// `model` is a folder of tests/data/golden.
inline std::filesystem::path golden_dir(std::string_view model) {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "tests/data/golden" / model;
}

// A folder that lives as long as the object, named after the running test.
class TestFolder {
 public:
  TestFolder() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    std::string name = std::string(test->test_suite_name()) + "." + test->name();
    for (char& c : name) {
      if (c == '/') c = '_';
    }
    path_ = std::filesystem::path(DSV4_BINARY_DIR) / "test_files" / name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct GoldenTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<std::byte> bytes;
};

// One golden file and its prompts.json in memory; change them, then write them.
class GoldenCopy {
 public:
  // `mode`: "fp32" for golden-fp32.safetensors.
  GoldenCopy(std::string_view model, std::string_view mode) {
    const auto file =
        SafetensorsFile::open(golden_dir(model) / ("golden-" + std::string(mode) + ".safetensors"));
    for (const TensorInfo& info : file.tensors()) {
      const std::span<const std::byte> bytes = file.bytes(info);
      tensors.push_back({info.name, info.dtype, info.shape, {bytes.begin(), bytes.end()}});
    }
    std::ifstream(golden_dir(model) / "prompts.json") >> prompts;
  }

  // Keeps the prompts that decide layer by layer (mid) and have draft logits (short): a fifth of
  // the tokens.
  void keep_short_prompts() {
    for (const char* name : {"one", "window", "ratio", "long"}) remove_prompt(name);
  }
  void remove_prompt(const std::string& name) {
    prompts.erase(name);
    remove_tensors([&](const std::string& tensor) { return tensor.rfind(name + ".", 0) == 0; });
  }
  void remove_tensors(const std::function<bool(const std::string&)>& predicate) {
    std::vector<GoldenTensor> kept;
    for (GoldenTensor& tensor : tensors) {
      if (!predicate(tensor.name)) kept.push_back(std::move(tensor));
    }
    tensors = std::move(kept);
  }
  GoldenTensor& tensor(std::string_view name) {
    for (GoldenTensor& t : tensors) {
      if (t.name == name) return t;
    }
    ADD_FAILURE() << "no golden tensor " << name;
    return tensors.front();
  }

  // Returns the path of the golden file.
  std::filesystem::path write(const std::filesystem::path& folder) const {
    std::vector<TensorData> data;
    for (const GoldenTensor& t : tensors) data.push_back({t.name, t.dtype, t.shape, t.bytes});
    write_safetensors(folder / "golden.safetensors", data);
    std::ofstream(folder / "prompts.json") << prompts.dump();
    return folder / "golden.safetensors";
  }

  std::vector<GoldenTensor> tensors;
  nlohmann::json prompts;
};

}  // namespace dsv4
