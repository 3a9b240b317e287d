#include "chat_view.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "console.h"

namespace dsv4 {
namespace {

constexpr std::string_view kDim = "\x1B[2m", kBold = "\x1B[1m", kPlain = "\x1B[0m";

// As printable(), but line breaks and tabs stay.
std::string harmless(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
    out += printable(text.substr(0, end));
    if (end < text.size()) out += text[end];
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

ChatView::ChatView() : has_color_(color_is_on(STDOUT_FILENO)), on_terminal_(stdout_is_terminal()) {}

ChatView::~ChatView() {
  try {
    end();
  } catch (...) {
    // stdout is gone; who is on the way out has an error to tell
  }
}

void ChatView::show(const CompletionDelta& delta) {
  using Kind = CompletionDelta::Kind;
  switch (delta.kind) {
    case Kind::kReasoning:
      begin(Part::kReasoning);
      break;
    case Kind::kContent:
      begin(Part::kContent);
      break;
    case Kind::kToolCall:
      if (!delta.name.empty()) {
        begin(Part::kToolCall);
        const std::string name = printable(delta.name);
        write_stdout(has_color_ ? std::string("call ").append(kBold) + name + std::string(kPlain)
                                : "call " + name);
        write_stdout(" ");
      }
      break;
    case Kind::kToolCallsVoided:
      return end_line();
  }
  write(delta.text);
}

void ChatView::end() {
  leave_part();
  end_line();
}

void ChatView::begin(Part part) {
  if (part == part_ && part != Part::kToolCall) return;
  leave_part();
  if (part == Part::kToolCall) end_line();
  if (part == Part::kReasoning) write_stdout(has_color_ ? kDim : "<think>\n");
  part_ = part;
}

void ChatView::leave_part() {
  if (part_ == Part::kReasoning) {
    if (has_color_) write_stdout(kPlain);
    end_line();
    if (!has_color_) write_stdout("</think>\n");
  }
  part_ = Part::kNone;
}

void ChatView::write(std::string_view text) {
  if (text.empty()) return;
  write_stdout(on_terminal_ ? harmless(text) : std::string(text));
  at_line_start_ = text.back() == '\n';
}

void ChatView::end_line() {
  if (!at_line_start_) write_stdout("\n");
  at_line_start_ = true;
}

void write_dim_line(std::string_view text) {
  const bool has_color = color_is_on(STDERR_FILENO);
  write_stderr_line(has_color ? std::string(kDim).append(text).append(kPlain) : std::string(text));
}

}  // namespace dsv4
