// nano_model.h: the bundled model as the tests of this folder use it, and its recorded data. Tests
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "io/safetensors_writer.h"
#include "runtime/loaded_model.h"
#include "runtime/model_session.h"

namespace dsv4 {

inline std::filesystem::path nano_dir() {
  return std::filesystem::path(DSV4_SOURCE_DIR) / "models/nano";
}

// Activations as they are: the mode that all recorded values are in.
inline ModelOpenOptions nano_options() {
  ModelOpenOptions options;
  options.model_dir = nano_dir();
  options.model.activations = Activations::kA16;
  return options;
}

inline std::string read_nano_file(const std::string& name) {
  std::ifstream file(nano_dir() / name, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read models/nano/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The first `count` tokens of the held-out text, which begins with the BOS mark.
inline std::vector<TokenId> held_out_tokens(const Tokenizer& tokenizer, std::size_t count) {
  std::vector<TokenId> tokens = tokenizer.encode(read_nano_file("held_out.txt"));
  if (tokens.size() < count) throw std::runtime_error("held_out.txt is too short");
  tokens.resize(count);
  return tokens;
}

struct GreedyCase {
  std::vector<TokenId> prompt, continuation;  // the last one is the end mark
  std::vector<double> margins;                // between the best two logits, before each token
  std::string text;                           // of the continuation, with the end mark
};
inline std::vector<GreedyCase> greedy_cases() {
  std::vector<GreedyCase> cases;
  for (const auto& entry : nlohmann::json::parse(read_nano_file("greedy.json"))) {
    cases.push_back(
        {entry.at("prompt_ids"), entry.at("greedy_ids"), entry.at("margins"), entry.at("text")});
  }
  return cases;
}

// Writes the bundled model to `dir` with a NaN in the head's row of `token`: at every position that
// token's logit is NaN and the others are what they were.
inline void write_nano_with_nan_logit(const std::filesystem::path& dir, TokenId token) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json"}) {
    std::filesystem::copy_file(nano_dir() / name, dir / name);
  }
  const auto file = SafetensorsFile::open(nano_dir() / "model.safetensors");
  std::vector<std::byte> head;
  std::vector<TensorData> tensors;
  for (const TensorInfo& info : file.tensors()) {
    std::span<const std::byte> bytes = file.bytes(info);
    if (info.name == "head.weight") {  // [vocab, dim] BF16, little-endian
      head.assign(bytes.begin(), bytes.end());
      const auto row = static_cast<std::size_t>(token * info.shape[1]) * sizeof(std::uint16_t);
      head.at(row) = std::byte{0xC0};
      head.at(row + 1) = std::byte{0x7F};
      bytes = head;
    }
    tensors.push_back({info.name, info.dtype, info.shape, bytes});
  }
  if (head.empty()) throw std::runtime_error("models/nano has no head.weight");
  write_safetensors(dir / "model.safetensors", tensors);
}

inline std::vector<float> copy_logits(const ModelSession& session) {
  return {session.logits().begin(), session.logits().end()};
}

// The name of the code of the Error that `call` throws, or "no error".
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code()));
  }
  return "no error";
}
inline std::string name_of(ErrorCode code) { return std::string(to_string(code)); }

}  // namespace dsv4
