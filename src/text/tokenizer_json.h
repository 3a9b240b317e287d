// tokenizer_json.h: reads a tokenizer.json into plain tables and refuses what the tables cannot
// say. Using them is tokenizer.h's.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"

namespace dsv4 {

inline constexpr std::size_t kMaxTokenizerJsonBytes = std::size_t{64} << 20;  // V4's has 6.4 MB
inline constexpr int kMaxVocab = 1 << 20;                                     // V4's has 129,280
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;                      // V4's longest has 56

struct TokenizerTables {
  // Bytes of each token by id; empty: the id is no token.
  std::vector<std::string> token_bytes;
  std::vector<AddedToken> added;  // contents and ids distinct
  std::array<TokenId, 256> byte_tokens;
  std::vector<BpeMerge> merges;  // pairs distinct
  std::vector<std::string> split_patterns;
};

// `where` names the file in messages. Throws Error: kBadCheckpoint for JSON that is damaged,
// repeats a key, gives an id twice or out of range, or whose merges name unknown tokens;
// kUnsupported for settings with a meaning that this reader does not know. Gaps between ids are
// allowed.
TokenizerTables parse_tokenizer_json(std::string_view json, std::string_view where);

// The whole file, at most kMaxTokenizerJsonBytes. Throws Error: kNotFound, kIo, kBadCheckpoint.
std::string read_tokenizer_json(const std::filesystem::path& path);

}  // namespace dsv4
