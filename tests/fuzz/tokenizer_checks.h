// tokenizer_checks.h: what holds for any tokenizer that loads and any text.
#pragma once

#include <string>
#include <vector>

#include "fuzz.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace dsv4::fuzz {

inline std::string decode_in_pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                    bool skip_special) {
  Detokenizer detokenizer(tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    FUZZ_CHECK(valid_utf8_prefix(piece) == piece.size());
    text += piece;
  }
  return text + detokenizer.flush();
}

// Tokens spell the text that they were made of. Throws what encode() throws.
inline void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  for (const TokenId id : ids) FUZZ_CHECK(tokenizer.is_token(id));
  std::string repaired;
  append_final_utf8(text, repaired);
  FUZZ_CHECK(ids.size() <= repaired.size());
  FUZZ_CHECK(tokenizer.decode(ids) == repaired);
  FUZZ_CHECK(tokenizer.encode(repaired) == ids);
  for (const bool skip_special : {false, true}) {
    FUZZ_CHECK(decode_in_pieces(tokenizer, ids, skip_special) ==
               tokenizer.decode(ids, skip_special));
  }
}

// Any ids, tokens or not, in the order that `bytes` gives.
inline void check_ids(const Tokenizer& tokenizer, std::string_view bytes) {
  std::vector<TokenId> ids;
  for (const char c : bytes) {
    const TokenId id = (static_cast<std::uint8_t>(c) * 7) % (tokenizer.vocab_size() + 1);
    FUZZ_CHECK(accepted([&] { tokenizer.token_bytes(id); }) == tokenizer.is_token(id));
    if (tokenizer.is_token(id)) ids.push_back(id);
  }
  const std::string text = tokenizer.decode(ids);
  FUZZ_CHECK(valid_utf8_prefix(text) == text.size());
  FUZZ_CHECK(decode_in_pieces(tokenizer, ids, false) == text);
}

}  // namespace dsv4::fuzz
