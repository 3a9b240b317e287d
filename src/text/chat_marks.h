// chat_marks.h: the texts of V4's conversation marks and their ids in a tokenizer. How they are put
// together is chat_prompt.h's.
#pragma once

#include <array>
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
inline constexpr std::array<std::string_view, 6> kTaskMarks = {  // in the order of Task
    "<\uFF5Caction\uFF5C>", "<\uFF5Cquery\uFF5C>", "<\uFF5Cauthority\uFF5C>",
    "<\uFF5Cdomain\uFF5C>", "<\uFF5Ctitle\uFF5C>", "<\uFF5Cread_url\uFF5C>"};

// A mark of the prompt format in `text`, the tool-call markup's among them; empty if there is none.
// V4 has no escape: a text of a user or a tool that holds one would change the conversation's
// structure, so programs refuse it.
std::string_view find_chat_mark(std::string_view text);
// Throws Error kBadRequest naming the mark in `what`, such as "the message", if there is one.
void require_no_chat_mark(std::string_view text, std::string_view what);

struct ChatMarks {
  TokenId bos, eos, user, assistant, think, end_think;
};

// Ids by content: they differ between checkpoints. Throws Error kBadCheckpoint naming the mark when
// the tokenizer lacks one.
ChatMarks find_chat_marks(const Tokenizer& tokenizer);

}  // namespace dsv4
