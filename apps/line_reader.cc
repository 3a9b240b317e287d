#include "line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/error.h"
#include "chat_signals.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

constexpr int kHistoryLines = 1000;

// As ::read, but a signal that wants attention is no failure: -1 with EINTR. `on_terminal_change`
// is called after such a signal.
template <class Callback>
ssize_t read_input(char* bytes, std::size_t count, const Callback& on_terminal_change) {
  for (;;) {
    const Wakeup wakeup = wait_for_input(STDIN_FILENO);
    if (wakeup == Wakeup::kAttention) {
      errno = EINTR;
      return -1;
    }
    if (wakeup == Wakeup::kTerminalChange) {
      on_terminal_change();
      continue;
    }
    const ssize_t num_read = ::read(STDIN_FILENO, bytes, count);
    if (num_read >= 0 || errno != EINTR) return num_read;
  }
}

[[noreturn]] void fail_to_read() {
  fail(ErrorCode::kIo, "cannot read standard input: {}", std::strerror(errno));
}

class PipedLines : public LineReader {
 public:
  Outcome read(std::string_view, std::string& line) override {
    std::size_t end = 0;
    while ((end = text_.find('\n', searched_)) == std::string::npos) {
      searched_ = text_.size();
      require(text_.size() <= kMaxTextBytes, ErrorCode::kBadRequest,
              "a line of standard input is longer than {} bytes; give shorter lines",
              kMaxTextBytes);
      const ssize_t count = read_input(part_.data(), part_.size(), [] {});
      if (count < 0 && errno == EINTR) return Outcome::kInterrupted;
      if (count < 0) fail_to_read();
      if (count == 0) return take_rest(line);
      text_.append(part_.data(), static_cast<std::size_t>(count));
    }
    take_line(end, line);
    text_.erase(0, end + 1);
    return Outcome::kLine;
  }

 private:
  Outcome take_rest(std::string& line) {
    if (text_.empty()) return Outcome::kEnd;
    take_line(text_.size(), line);
    text_.clear();
    return Outcome::kLine;
  }
  void take_line(std::size_t num_bytes, std::string& line) {
    std::string_view bytes = std::string_view(text_).substr(0, num_bytes);
    if (bytes.ends_with('\r')) bytes.remove_suffix(1);
    line.clear();
    append_final_utf8(bytes, line);
    searched_ = 0;
  }

  std::array<char, 1 << 16> part_;
  std::string text_;          // read and not yet given
  std::size_t searched_ = 0;  // there is no line break before it
};

wchar_t code_point(std::string_view character) {
  const auto byte = [character](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return static_cast<wchar_t>(byte(0));
  // The lead byte has as many ones as the character has bytes, then a zero.
  unsigned value = byte(0) & (0x7Fu >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) value = value << 6 | (byte(i) & 0x3Fu);
  return static_cast<wchar_t>(value);
}

class EditedLines : public LineReader {
 public:
  EditedLines() : history_(history_init()) {
    // The program speaks UTF-8 whatever the locale says; the editor asks the locale.
    std::setlocale(LC_CTYPE, "C.UTF-8");
    editor_ = el_init("dsv4", stdin, stderr, stderr);
    if (editor_ == nullptr || history_ == nullptr) throw std::bad_alloc();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_PROMPT, &EditedLines::prompt_of);
    el_set(editor_, EL_GETCFN, &EditedLines::read_character);
    el_source(editor_, nullptr);  // the user's ~/.editrc, if there is one
  }
  ~EditedLines() override {
    el_end(editor_);
    history_end(history_);
  }
  EditedLines(const EditedLines&) = delete;
  EditedLines& operator=(const EditedLines&) = delete;

  Outcome read(std::string_view prompt, std::string& line) override {
    prompt_ = prompt;
    pending_.clear();
    el_resize(editor_);  // the window may have changed while nobody read
    // Before the prompt and not after it, as the editor would: what is typed in between would be
    // echoed twice.
    el_set(editor_, EL_PREP_TERM, 1);
    int count = 0;
    const char* const text = el_gets(editor_, &count);
    if (text == nullptr || count <= 0) {
      const bool has_attention = ChatSignals::wants_attention();
      std::fputs(has_attention && !ChatSignals::terminated() ? "^C\n" : "\n", stderr);
      if (has_attention) return Outcome::kInterrupted;
      errno = read_error_;
      if (count < 0) fail_to_read();
      return Outcome::kEnd;
    }
    line.assign(text, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    HistEvent event;
    if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    return Outcome::kLine;
  }

 private:
  static EditedLines& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<EditedLines*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt_.data(); }

  // 1, or 0 at the end, or -1 with errno.
  static int read_character(EditLine* editor, wchar_t* character) {
    EditedLines& self = of(editor);
    while (!self.take_character(*character)) {
      char byte = 0;
      const ssize_t count = read_input(&byte, 1, [editor] { set_up_again(editor); });
      self.read_error_ = errno;
      if (count <= 0) return static_cast<int>(count);
      self.pending_.push_back(byte);
    }
    return 1;
  }

  static void set_up_again(EditLine* editor) {
    el_resize(editor);
    // After a stop the shell has had the terminal; without the 0 the editor would not look.
    el_set(editor, EL_PREP_TERM, 0);
    el_set(editor, EL_PREP_TERM, 1);
    el_set(editor, EL_REFRESH);
  }

  bool take_character(wchar_t& character) {
    if (pending_.empty()) return false;
    const Utf8Unit unit = next_utf8(pending_);
    if (unit.kind == Utf8Kind::kIncomplete) return false;
    character = unit.kind == Utf8Kind::kCharacter ? code_point(pending_.substr(0, unit.num_bytes))
                                                  : L'\uFFFD';
    pending_.erase(0, unit.num_bytes);
    return true;
  }

  History* history_;
  EditLine* editor_ = nullptr;
  std::string prompt_;
  std::string pending_;  // of a character that is not complete
  int read_error_ = 0;   // the editor's own calls change errno
};

}  // namespace

std::unique_ptr<LineReader> open_line_reader() {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1) {
    return std::make_unique<EditedLines>();
  }
  return std::make_unique<PipedLines>();
}

}  // namespace dsv4
