// json_print.h: JSON that keeps what printing needs (key order, every digit of an integer), printed
// as V4's prompts have it: Python's json.dumps with ensure_ascii=False. What a document must
// contain is the caller's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dsv4 {

struct JsonMember;

// An integer of any size: its decimal digits, "-" before a negative one.
struct JsonInteger {
  std::string digits;
};

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<JsonMember>;  // in the order of the first appearance of each key

  std::variant<std::nullptr_t, bool, JsonInteger, double, std::string, Array, Object> data;

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(data); }
  const bool* as_bool() const { return std::get_if<bool>(&data); }
  const std::string* as_string() const { return std::get_if<std::string>(&data); }
  const Array* as_array() const { return std::get_if<Array>(&data); }
  const Object* as_object() const { return std::get_if<Object>(&data); }
  // The member of an object; null if there is none or this is no object.
  const JsonValue* find(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  JsonValue value;
};

// What untrusted text may be. A value costs up to about 300 bytes while it is read, whatever its
// text.
struct JsonLimits {
  std::size_t max_bytes = std::size_t{16} << 20;
  std::size_t max_values = std::size_t{1} << 20;
  std::size_t max_depth = 128;  // of open arrays and objects; printing recurses as deep
  bool unique_keys = false;     // a key that stands twice in one object is refused
};

// Reads one JSON document; empty if `text` is none, with the reason in `problem` (may be null).
// A repeated key keeps its first place and its last value, unless `limits` refuse it. Stricter than
// Python's json.loads: NaN, Infinity, numbers past the double range and lone surrogates (\ud800
// without its partner, which no UTF-8 prompt can hold) are no JSON. Throws Error kBadRequest for
// text past `limits`.
std::optional<JsonValue> read_json(std::string_view text, std::string* problem = nullptr,
                                   const JsonLimits& limits = {});

// The same, with Error kBadRequest beginning with `where` for text that is no JSON, too.
JsonValue parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});

// Separators ", " and ": ", floats as Python's repr. Numbers must be finite.
std::string print_json(const JsonValue& value);

// `text` as a JSON string in quotes. Escapes only ", \ and what is below 0x20.
std::string print_json_string(std::string_view text);

// Appends what stands between the quotes. Bytes are escaped one by one, so text may come in pieces.
void append_json_escaped(std::string_view text, std::string& out);

}  // namespace dsv4
