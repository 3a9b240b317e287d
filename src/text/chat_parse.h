// chat_parse.h: a whole completion taken apart into reasoning, content and tool calls. While it is
// still being written, chat_stream.h does the same piece by piece.
//
// A completion begins after the prompt's <think> or </think> and ends in EOS; it is UTF-8, as
// Tokenizer::decode gives it (marks included).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/conversation.h"

namespace dsv4 {

struct Completion {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;  // ids empty; arguments may be damaged JSON, see below
  std::string warning;               // of parse_lenient: why the strict parser refused
};

struct StrictParse {
  Completion completion;  // empty if refused
  std::string problem;    // why it was refused; empty: it was not
  bool ok() const { return problem.empty(); }
};

// As DeepSeek's published parser, with EOS required after tool calls, too. Refuses what the prompt
// format cannot have produced, so that encoding the result gives the text back, with exceptions
// that are the published parser's: white space in the head of a call may differ, a block without
// calls counts as none, and parameters with string="false" are taken as they stand, JSON or not.
StrictParse parse_completion(std::string_view text, bool thinking);

// Never refuses and never loses text. What the strict parser refuses comes back without tool calls
// and with a warning: when thinking, the text before the first </think> or tool block is reasoning
// (all of it if there is neither), the rest is content as it stands, but for one EOS at the end.
Completion parse_lenient(std::string_view text, bool thinking);

// Why `text` may not stand in reasoning or content: the mark that it contains; empty if none.
std::string_view find_forbidden_mark(std::string_view text);

// The name in what stands between "<DSML invoke" and the next piece: name="NAME">, a newline and,
// without parameters, an empty line. False if it is damaged.
bool parse_invoke_head(std::string_view head, std::string_view& name);

}  // namespace dsv4
