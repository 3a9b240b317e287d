#include "chat_input.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer.h"

namespace dsv4 {
namespace {

using Outcome = LineReader::Outcome;

constexpr std::string_view kFence = "\"\"\"";
constexpr std::string_view kBlockPrompt = "... ";
constexpr std::string_view kBlanks = " \t";

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// `text`: what stands after the fence in the first line.
ChatInput read_block(LineReader& reader, std::string text) {
  std::string line = text;
  while (!line.ends_with(kFence)) {
    const Outcome outcome = reader.read(kBlockPrompt, line);
    if (outcome == Outcome::kInterrupted) return {.kind = ChatInput::Kind::kInterrupted};
    if (outcome == Outcome::kEnd) return {.kind = ChatInput::Kind::kUnfinished};
    text.append("\n").append(line);
    require(text.size() <= kMaxTextBytes, ErrorCode::kBadRequest,
            "the text is longer than {} bytes, the most that is taken; give a shorter one",
            kMaxTextBytes);
  }
  text.resize(text.size() - kFence.size());
  // The fences may stand on lines of their own.
  if (text.starts_with('\n')) text.erase(0, 1);
  if (text.ends_with('\n')) text.pop_back();
  return {.kind = ChatInput::Kind::kText, .text = std::move(text)};
}

ChatInput command_of(std::string_view line) {
  const std::size_t end = std::min(line.find_first_of(kBlanks), line.size());
  return {.kind = ChatInput::Kind::kCommand,
          .text = std::string(line.substr(1, end - 1)),
          .argument = std::string(trim(line.substr(end)))};
}

}  // namespace

ChatInput read_chat_input(LineReader& reader, std::string_view prompt) {
  std::string line;
  const Outcome outcome = reader.read(prompt, line);
  if (outcome == Outcome::kInterrupted) return {.kind = ChatInput::Kind::kInterrupted};
  if (outcome == Outcome::kEnd) return {.kind = ChatInput::Kind::kEnd};
  if (line.starts_with(kFence)) return read_block(reader, line.substr(kFence.size()));
  if (line.starts_with("//")) return {.kind = ChatInput::Kind::kText, .text = line.substr(1)};
  if (line.starts_with('/')) return command_of(line);
  return {.kind = ChatInput::Kind::kText, .text = std::move(line)};
}

}  // namespace dsv4
