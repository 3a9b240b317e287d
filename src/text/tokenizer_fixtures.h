// tokenizer_fixtures.h: the tokenizers that tests use, loaded once a program. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "text/tokenizer.h"

namespace dsv4 {

inline std::filesystem::path source_dir() { return DSV4_SOURCE_DIR; }

inline std::string read_text_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline const std::filesystem::path& nano_tokenizer_path() {
  static const std::filesystem::path path = source_dir() / "models/nano/tokenizer.json";
  return path;
}

inline const Tokenizer& nano_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(nano_tokenizer_path());
  return tokenizer;
}

// DeepSeek-V4's own, fetched into the build folder on first use (a lock in the script keeps
// parallel tests apart).
struct FetchedTokenizer {
  std::unique_ptr<const Tokenizer> tokenizer;  // null: could not be downloaded, see reason
  std::string reason;
};
inline const FetchedTokenizer& v4_tokenizer() {
  static const FetchedTokenizer fetched = [] {
    const std::filesystem::path folder = std::filesystem::path(DSV4_BINARY_DIR) / "testdata";
    const std::string command = "python3 '" +
                                (source_dir() / "tools/fetch_v4_tokenizer.py").string() + "' '" +
                                folder.string() + "' 2>&1";
    FetchedTokenizer result;
    FILE* output = popen(command.c_str(), "r");
    if (output == nullptr) return FetchedTokenizer{nullptr, "popen failed"};
    for (int c; (c = std::fgetc(output)) != EOF;) result.reason.push_back(static_cast<char>(c));
    const int status = pclose(output);
    constexpr int kNotDownloaded = 3, kNoPython = 127;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      result.tokenizer = std::make_unique<Tokenizer>(Tokenizer::load(folder / "v4_tokenizer.json"));
    } else if (!WIFEXITED(status) ||
               (WEXITSTATUS(status) != kNotDownloaded && WEXITSTATUS(status) != kNoPython)) {
      throw std::runtime_error(command + ": " + result.reason);
    }
    return result;
  }();
  return fetched;
}

// Names `tokenizer` in the calling test, or skips the test with the reason.
#define DSV4_V4_TOKENIZER_OR_SKIP(tokenizer)                                      \
  if (v4_tokenizer().tokenizer == nullptr) GTEST_SKIP() << v4_tokenizer().reason; \
  const Tokenizer& tokenizer = *v4_tokenizer().tokenizer

struct TokenizerCase {
  std::string text;
  std::vector<TokenId> ids;
};
inline std::vector<TokenizerCase> read_tokenizer_cases(const std::filesystem::path& path) {
  std::vector<TokenizerCase> cases;
  for (const auto& entry : nlohmann::json::parse(read_text_file(path))) {
    cases.push_back({entry.at("text"), entry.at("ids")});
  }
  return cases;
}

}  // namespace dsv4
