// json_fields.h: typed access to the keys of an untrusted JSON object, with errors that name file,
// key, value and requirement. What the keys mean is model_config.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dsv4 {

// ModelOpt's older schema lists every expert matrix in config.json: about 10 MB for Pro.
inline constexpr std::int64_t kMaxConfigBytes = 64'000'000;

// Parses an object. Nesting is bounded, and a key of the root given twice is refused.
// Throws Error: kBadCheckpoint.
nlohmann::json parse_json_object(std::string_view text, std::string_view where);

// Whether FP32, in which models compute, makes 0 of a number that is none.
inline bool vanishes_in_fp32(double value) { return value != 0 && static_cast<float>(value) == 0; }

// Untrusted text for a message: in quotes, escaped, cut to a readable length.
std::string in_quotes(std::string_view text);

// One object of a file. Keys may have several spellings, of which at most one may be there.
// All functions throw Error kBadCheckpoint unless the value has the type asked for; those that
// return no optional also when the key is missing. JSON null is as good as missing.
class JsonFields {
 public:
  using Keys = std::initializer_list<std::string_view>;

  // `object` and `where` outlive this. `path` is the object's own key with a dot, or empty.
  JsonFields(const nlohmann::json& object, std::string_view where, std::string path = "")
      : object_(object), where_(where), path_(std::move(path)) {}

  bool has(std::string_view key) const { return find({key}).second != nullptr; }

  int integer(Keys keys) const;  // of the range of int
  std::int64_t long_integer(Keys keys) const;
  double number(Keys keys) const;  // finite
  std::string text(Keys keys) const;
  std::vector<int> integers(Keys keys) const;              // an array
  std::vector<int> one_or_more_integers(Keys keys) const;  // an integer or an array
  std::vector<std::string> texts(Keys keys) const;         // an array
  JsonFields object(Keys keys) const;

  std::optional<int> optional_integer(Keys keys) const;
  std::optional<double> optional_number(Keys keys) const;
  std::optional<bool> optional_boolean(Keys keys) const;
  std::optional<std::string> optional_text(Keys keys) const;
  std::optional<JsonFields> optional_object(Keys keys) const;

  // Throws Error kBadCheckpoint: the value of `key` is not what it must be.
  [[noreturn]] void reject(std::string_view key, std::string_view requirement) const;

 private:
  std::pair<std::string_view, const nlohmann::json*> find(Keys keys) const;
  std::pair<std::string_view, const nlohmann::json*> get(Keys keys) const;
  int to_int(std::string_view key, const nlohmann::json& value, std::string_view requirement) const;

  const nlohmann::json& object_;
  std::string_view where_;
  std::string path_;
};

}  // namespace dsv4
