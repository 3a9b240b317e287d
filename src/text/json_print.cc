// json_print.cc: nlohmann's lexer feeding a builder, and the printer.
#include "text/json_print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "text/strict_json.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

using nlohmann::json;

// Receives nlohmann's events, iteratively, so that nesting costs no stack.
class JsonBuilder : public nlohmann::json_sax<json> {
 public:
  // `text`: what is parsed.
  JsonBuilder(std::string_view text, const JsonLimits& limits) : text_(text), limits_(limits) {}

  bool null() override { return add({nullptr}); }
  bool boolean(bool value) override { return add({value}); }
  bool number_integer(std::int64_t value) override {
    return add({JsonInteger{std::to_string(value)}});
  }
  bool number_unsigned(std::uint64_t value) override {
    return add({JsonInteger{std::to_string(value)}});
  }
  // Integers beyond 64 bits arrive here, too, with their text.
  bool number_float(double value, const std::string& text) override {
    const bool integer = text.find_first_not_of("-0123456789") == std::string::npos;
    return integer ? add({JsonInteger{text}}) : add({value});
  }
  bool string(std::string& value) override { return add({std::move(value)}); }
  bool binary(json::binary_t&) override { return false; }  // not in text

  bool start_array(std::size_t) override { return open({JsonValue::Array()}); }
  bool start_object(std::size_t) override { return open({JsonValue::Object()}); }
  bool key(std::string& key) override {
    if (limits_.unique_keys && open_.back().places.count(key) > 0) {
      fail(ErrorCode::kBadRequest, "the key {} stands twice in one object", quote(key));
    }
    open_.back().key = std::move(key);
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }

  bool parse_error(std::size_t, const std::string&, const json::exception& e) override {
    problem_ = json_problem(text_, e);
    return false;
  }

  JsonValue take() { return std::move(root_); }
  const std::string& problem() const { return problem_; }

 private:
  struct Open {
    JsonValue value;
    std::string key;                                      // of the member to come
    std::unordered_map<std::string, std::size_t> places;  // of an object's members
  };

  bool open(JsonValue value) {
    count();
    require(open_.size() < limits_.max_depth, ErrorCode::kBadRequest,
            "JSON nested more than {} levels deep", limits_.max_depth);
    open_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    JsonValue value = std::move(open_.back().value);
    open_.pop_back();
    attach(std::move(value));
    return true;
  }

  bool add(JsonValue value) {
    count();
    attach(std::move(value));
    return true;
  }

  void count() {
    require(++num_values_ <= limits_.max_values, ErrorCode::kBadRequest,
            "JSON of more than {} values", limits_.max_values);
  }

  void attach(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = open_.back();
    if (auto* items = std::get_if<JsonValue::Array>(&parent.value.data)) {
      items->push_back(std::move(value));
      return;
    }
    auto& members = std::get<JsonValue::Object>(parent.value.data);
    const auto [place, is_new] = parent.places.emplace(parent.key, members.size());
    if (is_new) {
      members.push_back({std::move(parent.key), std::move(value)});
    } else {
      members[place->second].value = std::move(value);
    }
  }

  const std::string_view text_;
  const JsonLimits limits_;
  JsonValue root_;
  std::vector<Open> open_;
  std::size_t num_values_ = 0;
  std::string problem_;
};

// Python's repr: the shortest digits that round-trip; plain from 1e-4 up to below 1e16.
void append_float(double value, std::string& out) {
  DSV4_CHECK(std::isfinite(value), "JSON has no spelling for it");
  char buffer[32];  // "-1.7976931348623157e+308" is the longest
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  const std::size_t exponent_begin = e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(text.data() + exponent_begin, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    out.append(text);  // to_chars writes an exponent as Python does: a sign, two digits or more
    return;
  }
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c == '-') out.push_back(c);
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
    return;
  }
  const auto num_whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() < num_whole + 1) digits.resize(num_whole + 1, '0');
  out.append(digits, 0, num_whole).append(".").append(digits, num_whole);
}

void append_string(std::string_view text, std::string& out) {
  out.push_back('"');
  append_json_escaped(text, out);
  out.push_back('"');
}

void append_value(const JsonValue& value, std::string& out);

void append_object(const JsonValue::Object& members, std::string& out) {
  out.push_back('{');
  std::string_view separator;
  for (const JsonMember& member : members) {
    out.append(separator);
    append_string(member.key, out);
    out.append(": ");
    append_value(member.value, out);
    separator = ", ";
  }
  out.push_back('}');
}

void append_array(const JsonValue::Array& items, std::string& out) {
  out.push_back('[');
  std::string_view separator;
  for (const JsonValue& item : items) {
    out.append(separator);
    append_value(item, out);
    separator = ", ";
  }
  out.push_back(']');
}

void append_value(const JsonValue& value, std::string& out) {
  if (value.is_null()) {
    out.append("null");
  } else if (const bool* boolean = value.as_bool()) {
    out.append(*boolean ? "true" : "false");
  } else if (const auto* integer = std::get_if<JsonInteger>(&value.data)) {
    out.append(integer->digits);
  } else if (const auto* number = std::get_if<double>(&value.data)) {
    append_float(*number, out);
  } else if (const std::string* text = value.as_string()) {
    append_string(*text, out);
  } else if (const auto* items = value.as_array()) {
    append_array(*items, out);
  } else {
    append_object(*value.as_object(), out);
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const Object* members = as_object();
  if (members == nullptr) return nullptr;
  for (const JsonMember& member : *members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::optional<JsonValue> read_json(std::string_view text, std::string* problem,
                                   const JsonLimits& limits) {
  require(text.size() <= limits.max_bytes, ErrorCode::kBadRequest, "JSON of {} bytes, more than {}",
          text.size(), limits.max_bytes);
  std::string reason;
  JsonBuilder builder(text, limits);
  // nlohmann takes a NUL for the end of the text and skips a byte order mark.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
    reason = fmt::format("byte {}: a NUL byte", nul);
  } else if (text.starts_with("\xEF\xBB\xBF")) {
    reason = "byte 0: a byte order mark";
  } else if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    reason = builder.problem();
  }
  if (reason.empty()) return builder.take();
  if (problem != nullptr) *problem = std::move(reason);
  return std::nullopt;
}

JsonValue parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  std::string problem;
  std::optional<JsonValue> value;
  try {
    value = read_json(text, &problem, limits);
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", where, e.what());
  }
  require(value.has_value(), ErrorCode::kBadRequest, "{}: not valid JSON: {}", where, problem);
  return *std::move(value);
}

std::string print_json(const JsonValue& value) {
  std::string out;
  append_value(value, out);
  return out;
}

std::string print_json_string(std::string_view text) {
  std::string out;
  append_string(text, out);
  return out;
}

void append_json_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out.append("\\\"");
        break;
      case '\\':
        out.append("\\\\");
        break;
      case '\b':
        out.append("\\b");
        break;
      case '\f':
        out.append("\\f");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
        } else {
          out.push_back(c);
        }
    }
  }
}

}  // namespace dsv4
