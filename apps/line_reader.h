// line_reader.h: lines from standard input: with an editor and history on a terminal, plainly from
// a pipe. What a line means is the caller's.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace dsv4 {

class LineReader {
 public:
  enum class Outcome {
    kLine,
    kInterrupted,  // a signal came (chat_signals.h); what was typed is dropped
    kEnd,
  };
  virtual ~LineReader() = default;

  // The next line without its line break, as valid UTF-8 (invalid parts are U+FFFD). The editor
  // shows `prompt` on stderr; a pipe gets none, and its last line needs no line break. Throws
  // Error: kIo, kBadRequest (a line of more than kMaxTextBytes).
  virtual Outcome read(std::string_view prompt, std::string& line) = 0;
};

// The editor if standard input and stderr are terminals. One at a time; needs a ChatSignals.
std::unique_ptr<LineReader> open_line_reader();

}  // namespace dsv4
