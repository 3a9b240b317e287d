// strict_json.cc: a parse with a callback that sees every key.
#include "text/strict_json.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "text/utf8.h"

namespace dsv4 {

using nlohmann::json;

constexpr int kMaxDepth = 32;

json parse_strict_json(std::string_view text, std::string_view where) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto inspect = [&](int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        require(depth < kMaxDepth, ErrorCode::kBadCheckpoint,
                "{}: JSON nested more than {} levels deep", where, kMaxDepth);
        if (event == json::parse_event_t::object_start) keys.emplace_back();
        break;
      case json::parse_event_t::key: {
        const auto& key = parsed.get_ref<const std::string&>();
        require(keys.back().insert(key).second, ErrorCode::kBadCheckpoint,
                "{}: the key {} stands twice in one object", where, quote(key));
        break;
      }
      case json::parse_event_t::object_end:
        keys.pop_back();
        break;
      default:
        break;
    }
    return true;
  };
  // The parser takes a NUL for the end of the text and would not look at what follows.
  const std::size_t nul = text.find('\0');
  require(nul == std::string_view::npos, ErrorCode::kBadCheckpoint,
          "{}: not valid JSON: byte {} is NUL", where, nul);
  try {
    return json::parse(text.begin(), text.end(), inspect);
  } catch (const json::exception& e) {
    fail(ErrorCode::kBadCheckpoint, "{}: not valid JSON: {}", where, json_problem(text, e));
  }
}

std::string json_problem(std::string_view text, const json::exception& error) {
  std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
  if (const std::size_t name = what.find("] "); name != std::string_view::npos) {
    what.remove_prefix(name + 2);
  }
  constexpr std::string_view kAt = "parse error at ", kLineOne = "line 1, ";
  if (what.starts_with(kAt)) what.remove_prefix(kAt.size());
  if (what.starts_with(kLineOne) && text.find('\n') == std::string_view::npos) {
    what.remove_prefix(kLineOne.size());
  }
  constexpr std::size_t kShown = 200;  // it repeats the text that it met
  return printable_utf8(what, kShown);
}

std::string quote(std::string_view text) {
  constexpr std::size_t kShown = 60;
  return fmt::format("\"{}{}\"", printable_utf8(text, kShown), text.size() > kShown ? "..." : "");
}

}  // namespace dsv4
