// question_file.h: conversations with the one right answer each, as a file of JSON lines. Asking
// and judging is evaluate.h's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {

struct Question {
  std::string place;      // "FILE:LINE", for messages
  std::int64_t line = 0;  // from 1
  std::string id_json;    // what the line calls it, as JSON; empty: nothing
  std::string kind;
  std::string answer;
  bool thinking = false;
  std::string conversation;  // the line itself, as Engine::chat_prompt takes it
};

// Reads one JSON object a line: `answer` (a string, may be empty), `kind` (a string; absent:
// "all"), `id` (a string or an integer of 64 bits; may be absent), and the fields of
// parse_conversation (text/conversation.h): `messages`, and perhaps `tools`, `thinking`, `effort`
// ..., but not `context`. Empty lines are skipped, no object may have a key twice. `name` stands in
// messages. Throws Error kBadRequest with name, line, what is wrong and what to do: also for a file
// without a question.
std::vector<Question> parse_questions(std::string_view text, std::string_view name);

}  // namespace dsv4
