// chat_marks.cc: the look-up of each mark, in a tokenizer and in a text.
#include "text/chat_marks.h"

#include <algorithm>

#include "base/error.h"
#include "text/dsml.h"

namespace dsv4 {
namespace {

TokenId find_mark(const Tokenizer& tokenizer, std::string_view mark) {
  const std::optional<TokenId> id = tokenizer.find_added_token(mark);
  require(id.has_value(), ErrorCode::kBadCheckpoint,
          "the tokenizer has no added token {}; is it DeepSeek-V4's?", mark);
  return *id;
}

constexpr std::array kStructureMarks = {kBosMark,      kEosMark,   kUserMark,     kAssistantMark,
                                        kReminderMark, kThinkMark, kEndThinkMark, kDsmlMark};

}  // namespace

std::string_view find_chat_mark(std::string_view text) {
  const auto holds = [text](std::string_view mark) { return text.find(mark) != text.npos; };
  const auto mark = std::find_if(kStructureMarks.begin(), kStructureMarks.end(), holds);
  if (mark != kStructureMarks.end()) return *mark;
  const auto task = std::find_if(kTaskMarks.begin(), kTaskMarks.end(), holds);
  return task == kTaskMarks.end() ? std::string_view() : *task;
}

void require_no_chat_mark(std::string_view text, std::string_view what) {
  const std::string_view mark = find_chat_mark(text);
  require(mark.empty(), ErrorCode::kBadRequest,
          "{} holds {}, a mark that V4's prompts are built of and cannot quote; leave it out", what,
          mark);
}

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
