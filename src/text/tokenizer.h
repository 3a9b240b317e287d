// tokenizer.h: text to token ids and back, as the checkpoint's tokenizer.json says (byte-level
// BPE). Knows nothing of conversations (chat_prompt.h) and adds no BOS or EOS.
//
// A Tokenizer is immutable; any number of threads may use one at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/types.h"

namespace dsv4 {

// Longest text that encode() takes; a million tokens of V4 are about 5 MB.
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;

class Tokenizer {
 public:
  // Reads and validates a tokenizer.json. Throws Error: kNotFound, kIo, kBadCheckpoint (damaged),
  // kUnsupported (a valid setting that this library does not implement; the message names it).
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  // The same from memory; `where` names the source in messages.
  static Tokenizer parse(std::string_view json, std::string_view where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Token ids of `utf8`; marks such as "<think>" inside the text become their tokens. Each maximal
  // invalid UTF-8 sequence is read as U+FFFD. Throws Error: kBadRequest when the text is longer
  // than kMaxTextBytes, kUnsupported when a pattern of the file exceeds its step or time limit.
  std::vector<TokenId> encode(std::string_view utf8) const;

  // Valid UTF-8: the bytes of all tokens, concatenated, each maximal invalid sequence replaced by
  // U+FFFD. `skip_special` leaves out tokens with special = true, no others. Throws Error
  // kBadRequest for an id that is no token.
  std::string decode(std::span<const TokenId> ids, bool skip_special = false) const;

  // The bytes that a token stands for; may be part of a UTF-8 character. Valid while the Tokenizer
  // lives. Throws Error kBadRequest for an id that is no token.
  std::string_view token_bytes(TokenId id) const;

  // Largest id + 1. Ids below it that no entry of the file names are no tokens.
  int vocab_size() const;
  bool is_token(TokenId id) const;
  // Added tokens are matched in the text as a whole before BPE; special ones are a subset.
  bool is_added(TokenId id) const;
  bool is_special(TokenId id) const;
  // The added token with exactly this content.
  std::optional<TokenId> find_added_token(std::string_view content) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace dsv4
