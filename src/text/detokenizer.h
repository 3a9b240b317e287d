// detokenizer.h: tokens of a running generation to text, piece by piece. Whole sequences are
// Tokenizer::decode's; this agrees with it to the byte.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace dsv4 {

// One sequence of tokens; belongs to one thread at a time. The Tokenizer must outlive it.
//
//   Detokenizer text(tokenizer);
//   for (TokenId id : ids) out += text.push(id);
//   out += text.flush();  // out == tokenizer.decode(ids)
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = false);

  // The text that `id` completes: valid UTF-8, perhaps empty. Up to three bytes of a character that
  // is not complete are held back. Throws Error kBadRequest for an id that is no token.
  std::string push(TokenId id);

  // Ends the sequence: a held-back incomplete character becomes U+FFFD. Ready for a new one after.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string tail_;  // incomplete UTF-8 sequence, at most three bytes
};

}  // namespace dsv4
