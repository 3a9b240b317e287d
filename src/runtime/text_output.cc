#include "runtime/text_output.h"

#include <utility>

namespace dsv4 {

TextOutput::TextOutput(const Tokenizer* tokenizer, std::vector<std::string> stop_strings)
    : tokenizer_(tokenizer), stops_(std::move(stop_strings)) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
}

std::string TextOutput::push(TokenId token) {
  if (!detokenizer_) return {};
  if (tokenizer_->is_token(token)) return stops_.push(detokenizer_->push(token));
  return stops_.push(detokenizer_->flush() + "\xEF\xBF\xBD");
}

std::string TextOutput::finish() {
  if (!detokenizer_) return {};
  std::string text = stops_.push(detokenizer_->flush());
  return text + stops_.flush();
}

}  // namespace dsv4
