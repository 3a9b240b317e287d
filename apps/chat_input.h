// chat_input.h: what the user of dsv4 chat says: a text, maybe of several lines, or a command. What
// commands do is chat_loop.h's.
#pragma once

#include <string>
#include <string_view>

#include "line_reader.h"

namespace dsv4 {

struct ChatInput {
  enum class Kind {
    kText,
    kCommand,
    kInterrupted,
    kUnfinished,  // the input ended inside a text of several lines, which is dropped
    kEnd,
  };
  Kind kind;
  std::string text = {};      // of a command: its name, without the slash
  std::string argument = {};  // of a command: the rest of the line, without blanks around it
};

// A line that begins with """ begins a text that goes on, line breaks included, up to the next """,
// which must end a line. Otherwise a line that begins with / is a command, and // stands for a text
// that begins with /. A signal drops the whole text. Throws what LineReader throws, and Error
// kBadRequest for a text of more than kMaxTextBytes.
ChatInput read_chat_input(LineReader& reader, std::string_view prompt);

}  // namespace dsv4
