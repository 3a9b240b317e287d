#include "io/json_events.h"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace dsv4 {
namespace {

using nlohmann::json;

// nlohmann's SAX interface (https://json.nlohmann.me/features/parsing/sax_interface/). Its parser
// keeps a stack of bits, so the text cannot exhaust the call stack.
class SaxAdapter {
 public:
  SaxAdapter(std::string_view where, JsonEvents& events) : where_(where), events_(events) {}

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  // The parser calls this for tokens with a minus sign only, "-0" included.
  bool number_integer(std::int64_t) { return other("a negative number"); }
  bool number_unsigned(std::uint64_t value) {
    events_.whole_number(value);
    return true;
  }
  // Also for whole numbers past 2^64 - 1.
  bool number_float(double, const std::string&) {
    return other("a fraction or a number past 2^64 - 1");
  }
  bool string(std::string& value) {
    events_.string(value);
    return true;
  }
  bool binary(json::binary_t&) { return other("binary"); }  // not part of JSON text
  bool start_object(std::size_t) {
    enter();
    events_.begin_object();
    return true;
  }
  bool key(std::string& name) {
    events_.key(name);
    return true;
  }
  bool end_object() {
    --depth_;
    events_.end_object();
    return true;
  }
  bool start_array(std::size_t) {
    enter();
    events_.begin_array();
    return true;
  }
  bool end_array() {
    --depth_;
    events_.end_array();
    return true;
  }
  // The parser's own message repeats the offending token, which may be as long as the file.
  bool parse_error(std::size_t position, const std::string&, const json::exception& error) {
    const std::string_view what = error.what();
    std::string_view reason = "it is not JSON (a syntax error, or cut short)";
    if (what.find("UTF-8") != std::string_view::npos) reason = "it is not UTF-8";
    if (dynamic_cast<const json::out_of_range*>(&error)) reason = "a number is out of range";
    fail(ErrorCode::kBadCheckpoint, "{}: {}, at byte {} of the text", where_, reason, position);
  }

 private:
  bool other(std::string_view kind) {
    events_.other(kind);
    return true;
  }
  void enter() {
    require(++depth_ <= kMaxJsonDepth, ErrorCode::kBadCheckpoint,
            "{}: the JSON is nested deeper than {} levels", where_, kMaxJsonDepth);
  }

  std::string_view where_;
  JsonEvents& events_;
  int depth_ = 0;
};

}  // namespace

void parse_json_events(std::string_view text, std::string_view where, JsonEvents& events) {
  // The parser takes a NUL for the end of the text and would not look at what follows.
  const std::size_t nul = text.find('\0');
  require(nul == std::string_view::npos, ErrorCode::kBadCheckpoint,
          "{}: it is not JSON: byte {} is NUL", where, nul);
  SaxAdapter adapter(where, events);
  json::sax_parse(text.data(), text.data() + text.size(), &adapter);
}

std::string quote_text(std::string_view text) {
  constexpr std::size_t kMaxShown = 160;
  const bool cut = text.size() > kMaxShown;
  return json(std::string(text.substr(0, kMaxShown)))
             .dump(-1, ' ', true, json::error_handler_t::replace) +
         (cut ? "..." : "");
}

}  // namespace dsv4
