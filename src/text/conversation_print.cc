// conversation_print.cc: a conversation as the request JSON that conversation.cc reads.
#include <fmt/format.h>

#include <utility>

#include "text/conversation.h"
#include "text/conversation_names.h"

namespace dsv4 {
namespace {

// Members in the order in which they are added.
class ObjectBuilder {
 public:
  void add(std::string_view key, JsonValue value) {
    members_.push_back({std::string(key), std::move(value)});
  }
  void add_text(std::string_view key, std::string_view text) { add(key, {std::string(text)}); }
  // Leaves out an empty text.
  void add_if_any(std::string_view key, std::string_view text) {
    if (!text.empty()) add_text(key, text);
  }
  JsonValue take() { return {std::move(members_)}; }

 private:
  JsonValue::Object members_;
};

JsonValue call_json(const ToolCall& call) {
  ObjectBuilder function;
  function.add_text("name", call.name);
  function.add_text("arguments", call.arguments);
  ObjectBuilder object;
  object.add_if_any("id", call.id);
  object.add_text("type", "function");
  object.add("function", function.take());
  return object.take();
}

JsonValue tools_json(const std::vector<JsonValue>& functions) {
  JsonValue::Array tools;
  for (const JsonValue& function : functions) {
    ObjectBuilder tool;
    tool.add_text("type", "function");
    tool.add("function", function);
    tools.push_back(tool.take());
  }
  return {std::move(tools)};
}

JsonValue message_json(const Message& message, bool with_tools) {
  ObjectBuilder object;
  object.add_text("role", name_of(kRoles, message.role));
  object.add_if_any("tool_call_id", message.tool_call_id);
  object.add_if_any("reasoning_content", message.reasoning);
  object.add_text("content", message.content);
  if (!message.tool_calls.empty()) {
    JsonValue::Array calls;
    for (const ToolCall& call : message.tool_calls) calls.push_back(call_json(call));
    object.add("tool_calls", {std::move(calls)});
  }
  if (with_tools && !message.tools.empty()) object.add("tools", tools_json(message.tools));
  if (message.response_format) object.add("response_format", *message.response_format);
  if (message.task) object.add_text("task", name_of(kTasks, *message.task));
  if (message.wo_eos) object.add("wo_eos", {true});
  return object.take();
}

std::string messages_text(const std::vector<Message>& messages, bool first_has_tools) {
  std::string text = "[";
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const JsonValue message = message_json(messages[i], /*with_tools=*/i > 0 || first_has_tools);
    text += fmt::format("{}\n    {}", i == 0 ? "" : ",", print_json(message));
  }
  return text + "\n  ]";
}

// Whether parse_conversation gives a request's tools to this message.
bool takes_tools(const Message& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

}  // namespace

std::string print_conversation(const Conversation& conversation) {
  const EncodeOptions& options = conversation.options;
  const std::vector<Message>& messages = conversation.messages;
  const bool tools_on_top =
      !messages.empty() && takes_tools(messages[0]) && !messages[0].tools.empty();
  std::string text = "{\n  \"messages\": " + messages_text(messages, !tools_on_top);
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += fmt::format(",\n  \"{}\": {}", key, value);
  };
  if (tools_on_top) add("tools", print_json(tools_json(messages[0].tools)));
  if (!conversation.context.empty()) add("context", messages_text(conversation.context, true));
  add("thinking", options.thinking ? "true" : "false");
  add("effort", print_json_string(name_of(kEfforts, options.effort)));
  if (!options.drop_thinking) add("drop_thinking", "false");
  if (!options.add_bos) add("add_bos", "false");
  if (options.effort_table != EffortTable::kInitial) {
    add("effort_table", print_json_string(name_of(kEffortTables, options.effort_table)));
  }
  return text + "\n}\n";
}

}  // namespace dsv4
