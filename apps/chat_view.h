// chat_view.h: how an answer looks on stdout while it is written. What its parts are is decided by
// the parser (text/chat_stream.h).
#pragma once

#include <string_view>

#include "text/chat_stream.h"

namespace dsv4 {

// One answer. Reasoning is dim where stdout has colours, otherwise it stands between lines <think>
// and </think>; a tool call is a line "call NAME ARGUMENTS". On a terminal control characters are
// spelled out: a model repeats what it was given, and that may come from anywhere. Throws
// OutputClosed.
class ChatView {
 public:
  ChatView();
  // Ends the line and the colour, if end() has not.
  ~ChatView();
  ChatView(const ChatView&) = delete;
  ChatView& operator=(const ChatView&) = delete;

  void show(const CompletionDelta& delta);
  void end();
  // What is on the terminal's line is not all ours: it has echoed ^C.
  void note_echo() { at_line_start_ = false; }

 private:
  enum class Part { kNone, kReasoning, kContent, kToolCall };
  void begin(Part part);
  void leave_part();
  void write(std::string_view text);
  void end_line();

  const bool has_color_, on_terminal_;
  Part part_ = Part::kNone;
  bool at_line_start_ = true;
};

// `text` as one dim line on stderr.
void write_dim_line(std::string_view text);

}  // namespace dsv4
