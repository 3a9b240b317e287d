// conversation.cc: request JSON checked field by field.
#include "text/conversation.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "text/conversation_names.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

[[noreturn]] void refuse(std::string_view path, std::string_view requirement) {
  fail(ErrorCode::kBadRequest, "{} {}", path, requirement);
}

std::string field_path(std::string_view path, std::string_view field) {
  return path.empty() ? std::string(field) : fmt::format("{}.{}", path, field);
}

std::string item_path(std::string_view path, std::size_t idx) {
  return fmt::format("{}[{}]", path, idx);
}

// A field of an object; null if it is absent or JSON null.
const JsonValue* find_field(const JsonValue& object, std::string_view field) {
  const JsonValue* value = object.find(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// The requirements below are whole sentences with the path before them.

const std::string& string_of(const JsonValue& value, std::string_view path) {
  const std::string* text = value.as_string();
  if (text == nullptr) refuse(path, "must be a string");
  return *text;
}

const JsonValue::Array& array_of(const JsonValue& value, std::string_view path) {
  const JsonValue::Array* items = value.as_array();
  if (items == nullptr) refuse(path, "must be an array");
  return *items;
}

void require_object(const JsonValue& value, std::string_view path) {
  if (value.as_object() == nullptr) refuse(path, "must be an object");
}

std::string string_field(const JsonValue& object, std::string_view field, std::string_view path) {
  const JsonValue* value = find_field(object, field);
  return value == nullptr ? "" : string_of(*value, field_path(path, field));
}

const std::string& required_string(const JsonValue& object, std::string_view field,
                                   std::string_view path) {
  const JsonValue* value = find_field(object, field);
  if (value == nullptr) refuse(field_path(path, field), "is missing");
  return string_of(*value, field_path(path, field));
}

void read_bool(const JsonValue& object, std::string_view field, std::string_view path, bool& out) {
  const JsonValue* value = find_field(object, field);
  if (value == nullptr) return;
  const bool* boolean = value->as_bool();
  if (boolean == nullptr) refuse(field_path(path, field), "must be true or false");
  out = *boolean;
}

// Absent or null leaves `out` alone.
template <class T, std::size_t N, class Out>
void read_named(const std::array<Named<T>, N>& names, const JsonValue& object,
                std::string_view field, std::string_view path, Out& out) {
  const JsonValue* value = find_field(object, field);
  if (value == nullptr) return;
  const std::string where = field_path(path, field);
  out = value_by_name(names, string_of(*value, where), where);
}

// A string, or parts of type "text", which are joined without anything between them.
std::string parse_content(const JsonValue& content, std::string_view path) {
  if (const std::string* text = content.as_string()) return *text;
  if (content.as_array() == nullptr) refuse(path, "must be a string, an array of parts or null");
  const JsonValue::Array& parts = *content.as_array();
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string where = item_path(path, i);
    require_object(parts[i], where);
    const std::string& type = required_string(parts[i], "type", where);
    require(type == "text", ErrorCode::kBadRequest,
            "{}.type is {}; only parts of type \"text\" are understood", where, quote(type));
    text += required_string(parts[i], "text", where);
  }
  return text;
}

// The type of a tool or a tool call may be absent.
void require_function_type(const JsonValue& object, std::string_view path) {
  const std::string type = string_field(object, "type", path);
  require(type.empty() || type == "function", ErrorCode::kBadRequest,
          "{}.type is {}; only \"function\" is understood", path, quote(type));
}

const JsonValue& function_of(const JsonValue& object, std::string_view path) {
  require_object(object, path);
  require_function_type(object, path);
  const JsonValue* function = find_field(object, "function");
  if (function == nullptr) refuse(field_path(path, "function"), "is missing");
  require_object(*function, field_path(path, "function"));
  return *function;
}

std::vector<ToolCall> parse_tool_calls(const JsonValue& calls, std::string_view path) {
  std::vector<ToolCall> result;
  for (const JsonValue& call : array_of(calls, path)) {
    const std::string where = item_path(path, result.size());
    const JsonValue& function = function_of(call, where);
    const std::string function_path = field_path(where, "function");
    result.push_back({.id = string_field(call, "id", where),
                      .name = required_string(function, "name", function_path),
                      .arguments = required_string(function, "arguments", function_path)});
  }
  return result;
}

Message parse_message(const JsonValue& object, std::string_view path) {
  require_object(object, path);
  Message message;
  const std::string role_path = field_path(path, "role");
  message.role = value_by_name(kRoles, required_string(object, "role", path), role_path);
  if (const JsonValue* content = find_field(object, "content")) {
    message.content = parse_content(*content, field_path(path, "content"));
  }
  message.reasoning = string_field(object, "reasoning_content", path);
  if (const JsonValue* calls = find_field(object, "tool_calls")) {
    message.tool_calls = parse_tool_calls(*calls, field_path(path, "tool_calls"));
  }
  if (const JsonValue* tools = find_field(object, "tools")) {
    message.tools = parse_tools(*tools, field_path(path, "tools"));
  }
  if (const JsonValue* schema = find_field(object, "response_format")) {
    require_object(*schema, field_path(path, "response_format"));
    if (!schema->as_object()->empty()) message.response_format = *schema;
  }
  read_named(kTasks, object, "task", path, message.task);
  message.tool_call_id = string_field(object, "tool_call_id", path);
  read_bool(object, "wo_eos", path, message.wo_eos);
  if (message.role == Role::kDeveloper && message.content.empty()) {
    refuse(field_path(path, "content"), "must not be empty in a developer message");
  }
  return message;
}

}  // namespace

std::vector<Message> parse_messages(const JsonValue& messages, std::string_view path) {
  std::vector<Message> result;
  for (const JsonValue& message : array_of(messages, path)) {
    result.push_back(parse_message(message, item_path(path, result.size())));
  }
  return result;
}

std::vector<JsonValue> parse_tools(const JsonValue& tools, std::string_view path) {
  std::vector<JsonValue> functions;
  std::unordered_map<std::string_view, std::size_t> places;  // of the names
  for (const JsonValue& tool : array_of(tools, path)) {
    const std::string where = item_path(path, functions.size());
    const JsonValue& function = function_of(tool, where);
    const std::string function_path = field_path(where, "function");
    const std::string& name = required_string(function, "name", function_path);
    if (name.empty()) refuse(field_path(function_path, "name"), "must not be empty");
    const auto [place, is_new] = places.emplace(name, functions.size());
    if (!is_new) {
      fail(ErrorCode::kBadRequest, "{}.name is {}, as that of {}; a call could mean either",
           function_path, quote(name), item_path(path, place->second));
    }
    functions.push_back(function);
  }
  return functions;
}

void offer_tools(std::vector<JsonValue> tools, std::vector<Message>& messages) {
  if (tools.empty()) return;
  if (messages.empty() ||
      (messages[0].role != Role::kSystem && messages[0].role != Role::kDeveloper)) {
    messages.insert(messages.begin(), Message{.role = Role::kSystem});
  }
  if (!messages[0].tools.empty()) refuse("tools", "stand in the request and in messages[0], too");
  messages[0].tools = std::move(tools);
}

Conversation parse_conversation(const JsonValue& request, EffortTable default_table) {
  require(request.as_object() != nullptr, ErrorCode::kBadRequest,
          "the request must be an object with messages, such as {}",
          R"({"messages": [{"role": "user", "content": "Hello"}]})");
  Conversation conversation;
  const JsonValue* messages = find_field(request, "messages");
  if (messages == nullptr) refuse("messages", "is missing");
  conversation.messages = parse_messages(*messages, "messages");
  if (conversation.messages.empty()) refuse("messages", "must not be empty");
  if (const JsonValue* context = find_field(request, "context")) {
    conversation.context = parse_messages(*context, "context");
  }
  if (const JsonValue* tools = find_field(request, "tools")) {
    offer_tools(parse_tools(*tools, "tools"), conversation.messages);
  }
  EncodeOptions& options = conversation.options;
  options.effort_table = default_table;
  read_bool(request, "thinking", "", options.thinking);
  read_bool(request, "drop_thinking", "", options.drop_thinking);
  read_bool(request, "add_bos", "", options.add_bos);
  read_named(kEfforts, request, "effort", "", options.effort);
  read_named(kEffortTables, request, "effort_table", "", options.effort_table);
  return conversation;
}

Conversation parse_conversation(std::string_view json_text, EffortTable default_table) {
  return parse_conversation(parse_json(json_text, "the request"), default_table);
}

}  // namespace dsv4
