// detokenizer.cc: holds back what next_utf8 calls incomplete.
#include "text/detokenizer.h"

#include "text/utf8.h"

namespace dsv4 {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special) {}

std::string Detokenizer::push(TokenId id) {
  const std::string_view bytes = tokenizer_->token_bytes(id);
  std::string text;
  if (skip_special_ && tokenizer_->is_special(id)) return text;
  tail_ += bytes;
  tail_.erase(0, append_valid_utf8(tail_, text));
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  append_final_utf8(tail_, text);
  tail_.clear();
  return text;
}

}  // namespace dsv4
