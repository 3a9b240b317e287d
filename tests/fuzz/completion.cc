// completion.cc: fuzzes the parsers of a whole completion (DSML). First byte: bit 0 is thinking;
// bits 1 and 2 choose what the rest is: the text itself, or the parts of an answer that is encoded.
#include <string>
#include <vector>

#include "fuzz.h"
#include "text/chat_encode.h"
#include "text/chat_marks.h"
#include "text/chat_parse.h"
#include "text/dsml.h"
#include "text/json_print.h"

namespace dsv4::fuzz {
namespace {

// The prompt's print of an answer.
std::string encode(const Completion& completion, bool thinking) {
  std::string text;
  if (thinking) text.append(completion.reasoning).append(kEndThinkMark);
  text.append(completion.content);
  if (!completion.tool_calls.empty()) {
    text.append("\n\n").append(encode_tool_calls(completion.tool_calls));
  }
  return text.append(kEosMark);
}

// Arguments as print_json prints them; others change when they are encoded.
bool has_printed_arguments(const Completion& completion) {
  for (const ToolCall& call : completion.tool_calls) {
    const auto arguments = read_json(call.arguments);
    if (!arguments || print_json(*arguments) != call.arguments) return false;
  }
  return true;
}

std::string without_space(std::string_view text) {
  std::string rest;
  for (const char c : text) {
    if (std::string_view(" \t\n\r\v\f").find(c) == std::string_view::npos) rest.push_back(c);
  }
  return rest;
}

void check_same(const Completion& got, const Completion& want) {
  FUZZ_CHECK(got.reasoning == want.reasoning);
  FUZZ_CHECK(got.content == want.content);
  FUZZ_CHECK(got.tool_calls.size() == want.tool_calls.size());
  for (std::size_t i = 0; i < got.tool_calls.size(); ++i) {
    FUZZ_CHECK(got.tool_calls[i].name == want.tool_calls[i].name);
    FUZZ_CHECK(got.tool_calls[i].arguments == want.tool_calls[i].arguments);
  }
}

// What the strict parser takes, encoding gives back, but for what chat_parse.h excepts: white space
// in the heads of calls, a block of no calls.
void check_accepted(std::string_view text, bool thinking, const Completion& completion) {
  FUZZ_CHECK(find_forbidden_mark(completion.reasoning).empty());
  FUZZ_CHECK(find_forbidden_mark(completion.content).empty());
  if (!has_printed_arguments(completion)) return;
  const std::string again = encode(completion, thinking);
  if (completion.tool_calls.empty()) {
    std::string without = std::string(text);
    const std::string no_calls =
        std::string(kToolCallsOpener).append(kTagEnd).append(kToolCallsCloser);
    if (const std::size_t at = without.find(no_calls); at != std::string::npos) {
      without.erase(at, no_calls.size());
    }
    FUZZ_CHECK(again == without);
    return;
  }
  FUZZ_CHECK(without_space(again) == without_space(text));
  const StrictParse second = parse_completion(again, thinking);
  FUZZ_CHECK(second.ok());
  check_same(second.completion, completion);
}

// What it refuses comes back but for one </think> and one EOS at the end.
void check_refused(std::string_view text, bool thinking, const Completion& completion) {
  FUZZ_CHECK(completion.tool_calls.empty());
  FUZZ_CHECK(!completion.warning.empty());
  FUZZ_CHECK(thinking || completion.reasoning.empty());
  if (text.ends_with(kEosMark)) text.remove_suffix(kEosMark.size());
  FUZZ_CHECK(text.starts_with(completion.reasoning));
  text.remove_prefix(completion.reasoning.size());
  if (thinking && text.starts_with(kEndThinkMark)) text.remove_prefix(kEndThinkMark.size());
  FUZZ_CHECK(text == completion.content);
}

void parse(std::string_view text, bool thinking) {
  const StrictParse strict = parse_completion(text, thinking);
  const Completion lenient = parse_lenient(text, thinking);
  if (strict.ok()) {
    FUZZ_CHECK(lenient.warning.empty());
    check_same(lenient, strict.completion);
    check_accepted(text, thinking, strict.completion);
  } else {
    check_message(strict.problem);
    FUZZ_CHECK(lenient.warning == strict.problem);
    check_refused(text, thinking, lenient);
  }
}

std::size_t count(std::string_view text, std::string_view piece) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(piece, at)) != std::string_view::npos;) {
    ++found;
    at += piece.size();
  }
  return found;
}

// reasoning 0x1e content 0x1e call ..., a call being name 0x1f key 0x1f value 0x1f key ...; a value
// that reads as JSON stands as JSON. The answer is encoded and must come back from the parser,
// unless a part has something in it that the markup, which escapes nothing, cannot hold.
void encode_and_parse(std::string_view parts, bool thinking) {
  constexpr std::string_view kPart = "\x1e", kField = "\x1f";
  bool holds = valid_utf8_prefix(parts) == parts.size();
  Completion want;
  if (thinking) want.reasoning = take_part(parts, kPart);
  want.content = take_part(parts, kPart);
  holds = holds && find_forbidden_mark(want.reasoning).empty() &&
          find_forbidden_mark(want.content).empty();
  std::size_t num_tags = parts.empty() ? 0 : 2;
  while (!parts.empty()) {
    std::string_view call = take_part(parts, kPart);
    const std::string_view name = take_part(call, kField);
    num_tags += 2;
    JsonValue::Object members;
    while (!call.empty()) {
      const std::string_view key = take_part(call, kField), value = take_part(call, kField);
      holds =
          holds && key.find(kStringParameter) == key.npos && key.find(kJsonParameter) == key.npos;
      for (const JsonMember& member : members) holds = holds && member.key != key;
      std::optional<JsonValue> json = read_json(value);
      members.push_back(
          {std::string(key), json ? *std::move(json) : JsonValue{std::string(value)}});
      num_tags += 2;
    }
    want.tool_calls.push_back({{}, std::string(name), print_json({std::move(members)})});
  }
  const std::string text = encode(want, thinking);
  parse(text, thinking);
  if (!holds || count(text, kDsmlMark) != num_tags) return;
  const StrictParse got = parse_completion(text, thinking);
  FUZZ_CHECK(got.ok());
  check_same(got.completion, want);
}

}  // namespace
}  // namespace dsv4::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsv4::fuzz;
  std::string_view text = as_text(data, size);
  const std::uint8_t choice = take_byte(text);
  const bool thinking = choice & 1;
  if (choice & 2) {
    accepted([&] { encode_and_parse(text, thinking); });
  } else {
    accepted([&] { parse(text, thinking); });
  }
  return 0;
}
