// tool_arguments.cc: names from the schemas, and the wrapper taken off.
#include "text/tool_arguments.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

// Keywords by which a schema may have parameters that "properties" does not list.
constexpr std::array<std::string_view, 5> kIndirect = {"$ref", "allOf", "anyOf", "oneOf",
                                                       "patternProperties"};

bool is_indirect(const JsonValue& schema) {
  return std::any_of(kIndirect.begin(), kIndirect.end(), [&schema](std::string_view keyword) {
    return schema.find(keyword) != nullptr;
  });
}

// Empty for text past the reader's limits, too: the call then stays as it is.
std::optional<JsonValue> read_object(std::string_view text) {
  try {
    std::optional<JsonValue> value = read_json(text);
    if (value && value->as_object() != nullptr) return value;
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace

ToolParameters::ToolParameters(const std::vector<JsonValue>& functions) {
  for (const JsonValue& function : functions) {
    const JsonValue* name = function.find("name");
    if (name == nullptr || name->as_string() == nullptr) continue;
    std::unordered_set<std::string> names;
    if (const JsonValue* schema = function.find("parameters")) {
      if (is_indirect(*schema)) continue;
      const JsonValue* properties = schema->find("properties");
      if (properties != nullptr && properties->as_object() != nullptr) {
        for (const JsonMember& property : *properties->as_object()) names.insert(property.key);
      }
    }
    parameters_[*name->as_string()] = std::move(names);
  }
}

bool ToolParameters::is_wrapper(std::string_view tool, std::string_view parameter) const {
  if (parameter != "arguments" && parameter != "input") return false;
  const auto found = parameters_.find(std::string(tool));
  return found != parameters_.end() && !found->second.contains(std::string(parameter));
}

bool ToolParameters::unwrap(ToolCall& call) const {
  const std::optional<JsonValue> arguments = read_object(call.arguments);
  if (!arguments || arguments->as_object()->size() != 1) return false;
  const JsonMember& member = arguments->as_object()->front();
  if (!is_wrapper(call.name, member.key)) return false;
  if (member.value.as_object() != nullptr) {
    call.arguments = print_json(member.value);
    return true;
  }
  const std::string* text = member.value.as_string();
  if (text == nullptr) return false;
  const std::optional<JsonValue> inner = read_object(*text);
  if (!inner) return false;
  call.arguments = print_json(*inner);
  return true;
}

}  // namespace dsv4
