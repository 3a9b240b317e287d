// json_fields.cc: parsing and typed access; see json_fields.h.
#include "checkpoint/json_fields.h"

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"

namespace dsv4 {
namespace {

using nlohmann::json;

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxShownBytes = 80;

// A value as it is quoted in a message.
std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "...";
  return text;
}

}  // namespace

std::string in_quotes(std::string_view text) { return shown(json(text)); }

json parse_json_object(std::string_view text, std::string_view where) {
  std::set<std::string> root_keys;
  const auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    const bool opens =
        event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    if (opens && depth >= kMaxDepth) {
      fail(ErrorCode::kBadCheckpoint, "{}: nested deeper than {} levels", where, kMaxDepth);
    }
    if (event == json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!root_keys.insert(key).second) {
        fail(ErrorCode::kBadCheckpoint, "{}: {} is there twice", where, in_quotes(key));
      }
    }
    return true;
  };
  // The parser takes a NUL for the end of the text and would not look at what follows.
  const std::size_t nul = text.find('\0');
  require(nul == std::string_view::npos, ErrorCode::kBadCheckpoint, "{}: not JSON: byte {} is NUL",
          where, nul);
  json root;
  try {
    root = json::parse(text.begin(), text.end(), callback);
  } catch (const json::parse_error& e) {  // its own message repeats the text, which may be long
    fail(ErrorCode::kBadCheckpoint,
         "{}: not JSON in UTF-8 (a syntax error, or cut short), at byte {}", where, e.byte);
  } catch (const json::exception&) {
    fail(ErrorCode::kBadCheckpoint, "{}: not JSON: a number is out of range", where);
  }
  require(root.is_object(), ErrorCode::kBadCheckpoint, "{}: the file holds no JSON object", where);
  return root;
}

std::pair<std::string_view, const json*> JsonFields::find(Keys keys) const {
  std::pair<std::string_view, const json*> found{};
  for (std::string_view key : keys) {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null()) continue;
    require(found.second == nullptr, ErrorCode::kBadCheckpoint,
            "{}: {}{} and {}{} are both there; keep one", where_, path_, found.first, path_, key);
    found = {key, &*it};
  }
  return found;
}

std::pair<std::string_view, const json*> JsonFields::get(Keys keys) const {
  const auto found = find(keys);
  require(found.second != nullptr, ErrorCode::kBadCheckpoint, "{}: {}{} is missing", where_, path_,
          *keys.begin());
  return found;
}

void JsonFields::reject(std::string_view key, std::string_view requirement) const {
  const auto found = find({key});
  fail(ErrorCode::kBadCheckpoint, "{}: {}{} is {}; it must be {}", where_, path_, key,
       found.second == nullptr ? "missing" : shown(*found.second), requirement);
}

std::int64_t JsonFields::long_integer(Keys keys) const {
  const auto [key, value] = get(keys);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() &&
       value->get<std::uint64_t>() > static_cast<std::uint64_t>(kMax))) {
    reject(key, "a 64-bit integer");
  }
  return value->get<std::int64_t>();
}

int JsonFields::to_int(std::string_view key, const json& value,
                       std::string_view requirement) const {
  if (value.is_number_integer()) {
    constexpr std::int64_t kMin = std::numeric_limits<int>::min();
    constexpr std::int64_t kMax = std::numeric_limits<int>::max();
    const bool huge = value.is_number_unsigned() && value.get<std::uint64_t>() > kMax;
    if (!huge && value.get<std::int64_t>() >= kMin && value.get<std::int64_t>() <= kMax) {
      return static_cast<int>(value.get<std::int64_t>());
    }
  }
  reject(key, requirement);
}

int JsonFields::integer(Keys keys) const {
  const auto [key, value] = get(keys);
  return to_int(key, *value, "a 32-bit integer");
}

double JsonFields::number(Keys keys) const {
  const auto [key, value] = get(keys);
  if (!value->is_number() || !std::isfinite(value->get<double>())) reject(key, "a finite number");
  return value->get<double>();
}

std::string JsonFields::text(Keys keys) const {
  const auto [key, value] = get(keys);
  if (!value->is_string()) reject(key, "a string");
  return value->get<std::string>();
}

std::vector<int> JsonFields::integers(Keys keys) const {
  const auto [key, value] = get(keys);
  constexpr std::string_view kRequirement = "an array of 32-bit integers";
  if (!value->is_array()) reject(key, kRequirement);
  std::vector<int> result;
  result.reserve(value->size());
  for (const json& item : *value) result.push_back(to_int(key, item, kRequirement));
  return result;
}

std::vector<int> JsonFields::one_or_more_integers(Keys keys) const {
  const auto found = get(keys);
  if (!found.second->is_array()) return {integer(keys)};
  if (found.second->empty()) reject(found.first, "an integer or an array that is not empty");
  return integers(keys);
}

std::vector<std::string> JsonFields::texts(Keys keys) const {
  const auto [key, value] = get(keys);
  if (!value->is_array()) reject(key, "an array of strings");
  std::vector<std::string> result;
  result.reserve(value->size());
  for (const json& item : *value) {
    if (!item.is_string()) reject(key, "an array of strings");
    result.push_back(item.get<std::string>());
  }
  return result;
}

JsonFields JsonFields::object(Keys keys) const {
  const auto [key, value] = get(keys);
  if (!value->is_object()) reject(key, "an object");
  return JsonFields(*value, where_, path_ + std::string(key) + ".");
}

std::optional<int> JsonFields::optional_integer(Keys keys) const {
  if (find(keys).second == nullptr) return std::nullopt;
  return integer(keys);
}

std::optional<double> JsonFields::optional_number(Keys keys) const {
  if (find(keys).second == nullptr) return std::nullopt;
  return number(keys);
}

std::optional<bool> JsonFields::optional_boolean(Keys keys) const {
  const auto [key, value] = find(keys);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) reject(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonFields::optional_text(Keys keys) const {
  if (find(keys).second == nullptr) return std::nullopt;
  return text(keys);
}

std::optional<JsonFields> JsonFields::optional_object(Keys keys) const {
  if (find(keys).second == nullptr) return std::nullopt;
  return object(keys);
}

}  // namespace dsv4
