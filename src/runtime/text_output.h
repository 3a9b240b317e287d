// text_output.h: the text of a request's tokens as they are drawn: whole characters, up to a stop
// string.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dsv4/types.h"
#include "runtime/stop_strings.h"
#include "text/detokenizer.h"

namespace dsv4 {

// All pieces, joined, are the decoded tokens up to the first stop string.
class TextOutput {
 public:
  // `tokenizer` null: no text. Otherwise it must outlive this.
  TextOutput(const Tokenizer* tokenizer, std::vector<std::string> stop_strings);

  // The text that `token` completes. An id that is no token reads as U+FFFD.
  std::string push(TokenId token);
  // What is still held back, at the end. May find a stop string, too.
  std::string finish();

  const std::optional<std::string>& stop_string() const { return stops_.match(); }

 private:
  const Tokenizer* tokenizer_;
  std::optional<Detokenizer> detokenizer_;
  StopStrings stops_;
};

}  // namespace dsv4
