// console.h: what the program writes where: results to stdout, all else to stderr; progress that
// suits a terminal or a pipe; a clean end on Ctrl-C or a closed pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace dsv4 {

// Thrown when stdout takes no more. `message` is empty when the reader of a pipe went away: it has
// what it wanted.
struct OutputClosed {
  std::string message;
};
// Thrown where a command gives up because of Ctrl-C and has nothing left to say.
struct Interrupted {};

// Before all else: keeps descriptors 0 to 2 occupied, so that no file of a model becomes stdout,
// and turns SIGPIPE into an error of write.
void prepare_console();

// Writes all of `text`, unbuffered. Throws OutputClosed.
void write_stdout(std::string_view text);
// The same, and on a terminal a final line break if it lacks one; in a pipe the text is exact.
void write_text(std::string_view text);
// Writes "text\n"; failure is ignored.
void write_stderr_line(std::string_view text);

// One line that a terminal cannot be fooled by: control characters as \n, \t or \xNN, invalid
// UTF-8 as U+FFFD. Messages quote names from files.
std::string printable(std::string_view text);

bool stdin_is_terminal();
bool stdout_is_terminal();

// Whether descriptor 1 or 2 is a terminal that knows escapes: TERM is set and not "dumb".
bool escapes_work(int descriptor);
// Whether to colour what goes there: escapes work and NO_COLOR (no-color.org) is unset or empty.
bool color_is_on(int descriptor);

// Until it is destroyed the first Ctrl-C (SIGINT) or SIGTERM only sets a flag; a second one ends
// the process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();
  // Throws Interrupted if so.
  static void check();
};

// Work that is done sooner has no use for a bar.
inline constexpr std::chrono::milliseconds kQuietTime{500};

// A bar on a terminal, redrawn in place; elsewhere a line at each tenth of the work. On stderr.
class ProgressBar {
 public:
  // `what` such as "reading the prompt"; `unit` such as "tokens". Shows nothing before
  // `shown_from`.
  ProgressBar(std::string what, std::string unit,
              std::chrono::steady_clock::time_point shown_from = {});
  // Removes the bar from a terminal.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `note` is appended, e.g. a value so far.
  void update(std::int64_t done, std::int64_t total, std::string_view note = {});

 private:
  std::string what_, unit_;
  std::chrono::steady_clock::time_point shown_from_;
  bool drawn_ = false;  // a bar stands on the terminal
  std::int64_t tenths_ = 0;
};

// "7 tokens, 35.2 tokens/s" for a text; without the speed where `timed_tokens`, those that the time
// was taken of, are none.
std::string token_figures(std::int64_t tokens, std::int64_t timed_tokens, double seconds);

// "1.5 GB": decimal units, three digits.
std::string format_bytes(std::int64_t bytes);

}  // namespace dsv4
