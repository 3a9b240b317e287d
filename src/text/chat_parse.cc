// chat_parse.cc: the grammar of completions, read front to back over the whole text.
#include "text/chat_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "text/chat_marks.h"
#include "text/dsml.h"
#include "text/find_either.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

// Thrown inside this file only: the place and the expectation are the message.
struct Refusal {
  std::string problem;
};

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Refusal{fmt::format(format, std::forward<Args>(args)...)};
}

// The text that is still to be read.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  bool take(std::string_view piece) {
    if (!rest_.starts_with(piece)) return false;
    rest_.remove_prefix(piece.size());
    return true;
  }

  struct Found {
    std::string_view before;  // all the rest if there is none
    std::string_view stop;    // empty if there is none
  };
  // Moves past the stop.
  Found take_until(std::string_view stop) {
    const std::size_t at = rest_.find(stop);
    if (at == std::string_view::npos) return {std::exchange(rest_, {}), {}};
    const Found found = {rest_.substr(0, at), stop};
    rest_.remove_prefix(at + stop.size());
    return found;
  }
  // Moves past the first of two stops.
  Found take_until(std::string_view stop_a, std::string_view stop_b) {
    const EitherPiece stop = find_either(rest_, stop_a, stop_b);
    if (stop.at == std::string_view::npos) return {std::exchange(rest_, {}), {}};
    const Found found = {rest_.substr(0, stop.at), stop.is_first ? stop_a : stop_b};
    rest_.remove_prefix(stop.at + found.stop.size());
    return found;
  }

 private:
  std::string_view rest_;
};

// ` name="K" string="true|false">value`; the reader stands after the parameter's closer.
void append_parameter(Reader& reader, std::unordered_set<std::string>& keys,
                      std::string& arguments) {
  // The closer is searched without its "<", as published: a value cannot contain either.
  const std::string_view closer = kParameterCloser.substr(1);
  const Reader::Found tag = reader.take_until(closer);
  if (tag.stop.empty()) refuse("the text ends inside a parameter");
  if (!tag.before.ends_with('<')) refuse("a parameter's closing tag is damaged");
  Reader inner(tag.before.substr(0, tag.before.size() - 1));
  if (!inner.take(kNameAttribute)) refuse("a parameter has no name");
  const Reader::Found key = inner.take_until(kStringParameter, kJsonParameter);
  if (key.stop.empty()) refuse("a parameter says neither string=\"true\" nor string=\"false\"");
  if (!keys.emplace(key.before).second) {
    refuse("the parameter {} is given twice", quote(key.before));
  }
  arguments.append(arguments.size() > 1 ? ", " : "").append(print_json_string(key.before));
  arguments.append(": ");
  if (key.stop == kStringParameter) {
    arguments.append(print_json_string(inner.rest()));
  } else {
    arguments.append(inner.rest());
  }
}

// From after "<DSML invoke" to after "</DSML invoke".
ToolCall parse_invoke(Reader& reader) {
  const Reader::Found head = reader.take_until(kParameterOpener, kInvokeCloser);
  std::string_view name;
  if (head.stop.empty()) refuse("the text ends inside a tool call's head");
  if (!parse_invoke_head(head.before, name)) {
    refuse("a tool call's head is damaged: {}", quote(head.before));
  }
  ToolCall call{.id = {}, .name = std::string(name), .arguments = "{"};
  std::unordered_set<std::string> keys;
  for (bool more = head.stop == kParameterOpener; more;) {
    append_parameter(reader, keys, call.arguments);
    if (!reader.take(kTagEnd)) refuse("a parameter's closing tag is damaged");
    more = reader.take(kParameterOpener);
    if (!more && !reader.take(kInvokeCloser)) {
      refuse("after a parameter stands neither another nor the end of its tool call");
    }
  }
  call.arguments.push_back('}');
  return call;
}

// From after "<DSML tool_calls" to after the block.
std::vector<ToolCall> parse_tool_calls(Reader& reader) {
  std::vector<ToolCall> calls;
  while (true) {
    if (!reader.take(kTagEnd)) refuse("a tag of the tool calls is damaged");
    if (reader.take(kToolCallsCloser)) return calls;
    if (!reader.take(kInvokeOpener)) {
      refuse("after tool call {} stands neither another nor the end of the calls", calls.size());
    }
    calls.push_back(parse_invoke(reader));
  }
}

void require_no_mark(std::string_view text, std::string_view what) {
  const std::string_view mark = find_forbidden_mark(text);
  if (!mark.empty()) refuse("the {} contains {}", what, mark);
}

Completion parse_strictly(std::string_view text, bool thinking) {
  Reader reader(text);
  Completion completion;
  if (thinking) {
    const Reader::Found reasoning = reader.take_until(kEndThinkMark, kToolCallsOpener);
    if (reasoning.stop != kEndThinkMark) refuse("the reasoning has no {}", kEndThinkMark);
    require_no_mark(reasoning.before, "reasoning");
    completion.reasoning = reasoning.before;
  }
  const Reader::Found content = reader.take_until(kEosMark, kToolCallsOpener);
  if (content.stop.empty()) refuse("the text does not end in {}", kEosMark);
  require_no_mark(content.before, "content");
  completion.content = content.before;
  if (content.stop == kToolCallsOpener) {
    completion.tool_calls = parse_tool_calls(reader);
    if (!reader.take(kEosMark)) refuse("the tool calls are not followed by {}", kEosMark);
  }
  if (!reader.at_end()) refuse("text follows {}", kEosMark);
  return completion;
}

}  // namespace

StrictParse parse_completion(std::string_view text, bool thinking) {
  try {
    return {parse_strictly(text, thinking), {}};
  } catch (const Refusal& refusal) {
    return {{}, refusal.problem};
  }
}

Completion parse_lenient(std::string_view text, bool thinking) {
  StrictParse strict = parse_completion(text, thinking);
  if (strict.ok()) return std::move(strict.completion);
  Completion completion;
  completion.warning = std::move(strict.problem);
  if (text.ends_with(kEosMark)) text.remove_suffix(kEosMark.size());
  if (thinking) {
    Reader reader(text);
    const Reader::Found reasoning = reader.take_until(kEndThinkMark, kToolCallsOpener);
    completion.reasoning = reasoning.before;
    text.remove_prefix(reasoning.before.size());
    if (reasoning.stop == kEndThinkMark) text.remove_prefix(kEndThinkMark.size());
  }
  completion.content = text;
  return completion;
}

std::string_view find_forbidden_mark(std::string_view text) {
  constexpr std::array kForbidden = {kBosMark, kEosMark, kThinkMark, kEndThinkMark, kDsmlMark};
  for (const std::string_view mark : kForbidden) {
    if (text.find(mark) != std::string_view::npos) return mark;
  }
  return {};
}

bool parse_invoke_head(std::string_view head, std::string_view& name) {
  // Published as a regular expression, ^\s*name="(.*?)">\n$, whose $ also stands before a final
  // newline: that is the empty line of a call without parameters.
  head.remove_prefix(std::min(head.find_first_not_of(" \t\n\r\v\f"), head.size()));
  const std::string_view attribute = kNameAttribute.substr(1);
  if (!head.starts_with(attribute)) return false;
  head.remove_prefix(attribute.size());
  if (head.ends_with("\n\n")) head.remove_suffix(1);
  if (!head.ends_with(kInvokeHeadEnd)) return false;
  name = head.substr(0, head.size() - kInvokeHeadEnd.size());
  return true;
}

}  // namespace dsv4
