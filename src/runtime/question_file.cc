#include "runtime/question_file.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "text/conversation.h"
#include "text/json_print.h"

namespace dsv4 {
namespace {

constexpr std::string_view kWhatToDo =
    "a line is a JSON object with messages, answer and perhaps kind, id, tools, thinking and "
    "effort; correct the line or delete it";

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// The member, unless it is absent or null.
const JsonValue* find_field(const JsonValue& object, std::string_view field) {
  const JsonValue* value = object.find(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const std::string& string_of(const JsonValue& value, std::string_view field) {
  require(value.as_string() != nullptr, ErrorCode::kBadRequest, "{} must be a string", field);
  return *value.as_string();
}

template <class Integer>
bool fits(const std::string& digits) {
  Integer value = 0;
  return std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
}

std::string id_json_of(const JsonValue& value) {
  const auto* const integer = std::get_if<JsonInteger>(&value.data);
  require(integer != nullptr || value.as_string() != nullptr, ErrorCode::kBadRequest,
          "id must be a string or an integer");
  if (integer == nullptr) return print_json(value);
  require(fits<std::int64_t>(integer->digits) || fits<std::uint64_t>(integer->digits),
          ErrorCode::kBadRequest,
          "id is an integer of more than 64 bits, which most JSON readers cannot keep; make it a "
          "string");
  return integer->digits;
}

// Messages lack the place.
Question parse_question(std::string_view line) {
  std::string problem;
  const std::optional<JsonValue> parsed = read_json(line, &problem, {.unique_keys = true});
  require(parsed.has_value(), ErrorCode::kBadRequest, "not valid JSON: {}", problem);
  const JsonValue& object = *parsed;
  const Conversation conversation = parse_conversation(object);
  require(conversation.context.empty(), ErrorCode::kBadRequest,
          "context cannot be taken up here, where nothing was computed before; put its messages "
          "before those of messages");
  Question question;
  question.thinking = conversation.options.thinking;
  const JsonValue* answer = find_field(object, "answer");
  require(answer != nullptr, ErrorCode::kBadRequest, "answer is missing");
  question.answer = string_of(*answer, "answer");
  const JsonValue* kind = find_field(object, "kind");
  question.kind = kind == nullptr ? "all" : string_of(*kind, "kind");
  if (const JsonValue* id = find_field(object, "id")) question.id_json = id_json_of(*id);
  question.conversation = line;
  return question;
}

}  // namespace

std::vector<Question> parse_questions(std::string_view text, std::string_view name) {
  std::vector<Question> questions;
  std::int64_t line_number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (is_blank(line)) continue;
    const std::string place = fmt::format("{}:{}", name, line_number);
    try {
      Question& question = questions.emplace_back(parse_question(line));
      question.place = place;
      question.line = line_number;
    } catch (const Error& error) {
      fail(error.code(), "{}: {}; {}", place, error.what(), kWhatToDo);
    }
  }
  require(!questions.empty(), ErrorCode::kBadRequest, "{}: there is no question in it; {}", name,
          "give a file with one JSON object a line");
  return questions;
}

}  // namespace dsv4
