// golden_codecs.h: the tensors of tests/data/golden/codecs, for tests below io/, which must not use
// the product's own reader. Trusts its file; anything odd throws std::runtime_error.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace dsv4 {

static_assert(std::endian::native == std::endian::little);

// One safetensors file, whole in memory.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot open " + path);
    bytes_.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    std::uint64_t header_bytes = 0;
    if (bytes_.size() < sizeof(header_bytes)) throw std::runtime_error("no header in " + path);
    std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
    data_begin_ = sizeof(header_bytes) + header_bytes;
    if (data_begin_ > bytes_.size()) throw std::runtime_error("header cut short in " + path);
    header_ = nlohmann::json::parse(bytes_.begin() + sizeof(header_bytes),
                                    bytes_.begin() + static_cast<std::ptrdiff_t>(data_begin_));
  }

  // The names of all tensors.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : header_.items()) {
      if (entry.key() != "__metadata__") result.push_back(entry.key());
    }
    return result;
  }

  std::vector<std::int64_t> shape(const std::string& name) const {
    return header_.at(name).at("shape").get<std::vector<std::int64_t>>();
  }

  // All elements of a tensor stored as `dtype`, whose elements are as wide as T.
  template <class T>
  std::vector<T> values(const std::string& name, const std::string& dtype) const {
    const nlohmann::json& entry = header_.at(name);
    if (entry.at("dtype") != dtype) throw std::runtime_error(name + " is not " + dtype);
    const auto offsets = entry.at("data_offsets").get<std::vector<std::uint64_t>>();
    const std::uint64_t size = offsets.at(1) - offsets.at(0);
    if (size % sizeof(T) != 0 || data_begin_ + offsets[1] > bytes_.size()) {
      throw std::runtime_error(name + " has impossible offsets");
    }
    std::vector<T> result(size / sizeof(T));
    std::memcpy(result.data(), bytes_.data() + data_begin_ + offsets[0], size);
    return result;
  }

 private:
  std::vector<char> bytes_;
  std::uint64_t data_begin_ = 0;
  nlohmann::json header_;
};

}  // namespace dsv4
