#include "console.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "text/utf8.h"

namespace dsv4 {
namespace {

constexpr int kBarColumns = 24;
constexpr std::string_view kClearLine = "\r\x1B[K";

// Returns 0, or errno.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

volatile std::sig_atomic_t interrupt_flag = 0;

void set_interrupt_flag(int) { interrupt_flag = 1; }

void handle_interrupts(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // Back to the default after the first: a second Ctrl-C ends a program that does not react.
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace

void prepare_console() {
  for (int descriptor = 0; descriptor <= 2; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The wrong direction, so that using it fails as using a closed one does. open returns the
    // lowest free number, which is this one.
    if (::open("/dev/null", descriptor == 0 ? O_WRONLY : O_RDONLY) < 0) continue;
  }
  std::signal(SIGPIPE, SIG_IGN);
}

void write_stdout(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text);
  if (error == 0) return;
  if (error == EPIPE) throw OutputClosed{};
  if (error == EBADF) throw OutputClosed{"cannot write to standard output: it is closed"};
  throw OutputClosed{fmt::format("cannot write to standard output: {}", std::strerror(error))};
}

void write_text(std::string_view text) {
  write_stdout(text);
  if (stdout_is_terminal() && !text.empty() && text.back() != '\n') write_stdout("\n");
}

void write_stderr_line(std::string_view text) {
  write_all(STDERR_FILENO, std::string(text) + "\n");
}

std::string printable(std::string_view text) {
  std::string valid;
  append_final_utf8(text, valid);
  std::string out;
  for (std::size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<unsigned char>(valid[i]);
    // U+0080 .. U+009F are control characters, too: C2 80 .. C2 9F.
    const bool is_c1 =
        byte == 0xC2 && i + 1 < valid.size() && static_cast<unsigned char>(valid[i + 1]) < 0xA0;
    if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else if (is_c1) {
      out += fmt::format("\\x{:02X}", static_cast<unsigned char>(valid[++i]));
    } else {
      out += valid[i];
    }
  }
  return out;
}

bool stdin_is_terminal() { return isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return isatty(STDOUT_FILENO) == 1; }

bool escapes_work(int descriptor) {
  const char* const term = std::getenv("TERM");
  return term != nullptr && std::string_view(term) != "dumb" && isatty(descriptor) == 1;
}

bool color_is_on(int descriptor) {
  const char* const no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && escapes_work(descriptor);
}

InterruptGuard::InterruptGuard() {
  interrupt_flag = 0;
  handle_interrupts(set_interrupt_flag);
}
InterruptGuard::~InterruptGuard() { handle_interrupts(SIG_DFL); }
bool InterruptGuard::interrupted() { return interrupt_flag != 0; }
void InterruptGuard::check() {
  if (interrupted()) throw Interrupted{};
}

ProgressBar::ProgressBar(std::string what, std::string unit,
                         std::chrono::steady_clock::time_point shown_from)
    : what_(std::move(what)), unit_(std::move(unit)), shown_from_(shown_from) {}

ProgressBar::~ProgressBar() {
  if (drawn_) write_all(STDERR_FILENO, kClearLine);
}

void ProgressBar::update(std::int64_t done, std::int64_t total, std::string_view note) {
  if (total <= 0 || std::chrono::steady_clock::now() < shown_from_) return;
  std::string line = fmt::format("{}: {} of {} {}", what_, done, total, unit_);
  if (!note.empty()) line += fmt::format(", {}", note);
  if (escapes_work(STDERR_FILENO)) {
    const auto filled = static_cast<std::size_t>(
        static_cast<double>(kBarColumns) * static_cast<double>(done) / static_cast<double>(total));
    const std::string bar = std::string(filled, '#') + std::string(kBarColumns - filled, '.');
    write_all(STDERR_FILENO, fmt::format("{}[{}] {}", kClearLine, bar, line));
    drawn_ = true;
    return;
  }
  const auto tenths =
      static_cast<std::int64_t>(10.0 * static_cast<double>(done) / static_cast<double>(total));
  if (tenths > tenths_) write_stderr_line(line);
  tenths_ = tenths;
}

std::string token_figures(std::int64_t tokens, std::int64_t timed_tokens, double seconds) {
  std::string text = fmt::format("{} {}", tokens, tokens == 1 ? "token" : "tokens");
  if (timed_tokens > 0 && seconds > 0) {
    text += fmt::format(", {:.1f} tokens/s", static_cast<double>(timed_tokens) / seconds);
  }
  return text;
}

std::string format_bytes(std::int64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  constexpr std::array<std::string_view, 6> kUnits{"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  std::size_t unit = 0;
  // 999.5 would be printed as 1000.
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace dsv4
