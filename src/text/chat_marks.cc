// chat_marks.cc: the look-up of each mark.
#include "text/chat_marks.h"

#include "base/error.h"

namespace dsv4 {
namespace {

TokenId find_mark(const Tokenizer& tokenizer, std::string_view mark) {
  const std::optional<TokenId> id = tokenizer.find_added_token(mark);
  require(id.has_value(), ErrorCode::kBadCheckpoint,
          "the tokenizer has no added token {}; is it DeepSeek-V4's?", mark);
  return *id;
}

}  // namespace

ChatMarks find_chat_marks(const Tokenizer& tokenizer) {
  return {
      .bos = find_mark(tokenizer, kBosMark),
      .eos = find_mark(tokenizer, kEosMark),
      .user = find_mark(tokenizer, kUserMark),
      .assistant = find_mark(tokenizer, kAssistantMark),
      .think = find_mark(tokenizer, kThinkMark),
      .end_think = find_mark(tokenizer, kEndThinkMark),
  };
}

}  // namespace dsv4
