// json_events.h: walks an untrusted JSON text value by value, in bounded memory and depth, so that
// a reader sees what a document tree hides (repeated keys, numbers that do not fit). Internal to
// io/; small trusted JSON is read as a tree elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dsv4 {

// The reader throws from a handler to stop. Strings may be moved from.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void begin_object() = 0;
  virtual void key(std::string& name) = 0;
  virtual void end_object() = 0;
  virtual void begin_array() = 0;
  virtual void end_array() = 0;
  virtual void string(std::string& value) = 0;
  virtual void whole_number(std::uint64_t value) = 0;
  // `kind` is the words for a message: "null", "a boolean", "a negative number", "a fraction".
  virtual void other(std::string_view kind) = 0;
};

// Deeper nesting is refused; a header needs 3 levels.
inline constexpr int kMaxJsonDepth = 64;

// Throws Error kBadCheckpoint, starting with `where`, for text that is not one JSON value in UTF-8.
void parse_json_events(std::string_view text, std::string_view where, JsonEvents& events);

// Untrusted text for a message: in quotes, all but printable ASCII escaped, cut to a readable
// length. It costs an allocation or two: in a loop call it on failure only (require() evaluates its
// arguments always).
std::string quote_text(std::string_view text);

}  // namespace dsv4
