// chat_marks.h: the texts of V4's conversation marks and their ids in a tokenizer. How they are put
// together is chat_prompt.h's.
#pragma once

#include <string_view>

#include "text/tokenizer.h"

namespace dsv4 {

// U+FF5C is the fullwidth bar, U+2581 the low block. Escapes keep the source plain ASCII.
inline constexpr std::string_view kBosMark = "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>";
inline constexpr std::string_view kEosMark = "<\uFF5Cend\u2581of\u2581sentence\uFF5C>";
inline constexpr std::string_view kUserMark = "<\uFF5CUser\uFF5C>";
inline constexpr std::string_view kAssistantMark = "<\uFF5CAssistant\uFF5C>";
inline constexpr std::string_view kReminderMark = "<\uFF5Clatest_reminder\uFF5C>";
inline constexpr std::string_view kThinkMark = "<think>";
inline constexpr std::string_view kEndThinkMark = "</think>";

struct ChatMarks {
  TokenId bos, eos, user, assistant, think, end_think;
};

// Ids by content: they differ between checkpoints. Throws Error kBadCheckpoint naming the mark when
// the tokenizer lacks one.
ChatMarks find_chat_marks(const Tokenizer& tokenizer);

}  // namespace dsv4
