#include "chat_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/atomic_file.h"
#include "text/chat_marks.h"
#include "text/dsml.h"
#include "text/tokenizer.h"

namespace dsv4 {
namespace {

bool has_system(const Conversation& conversation) {
  return !conversation.messages.empty() && conversation.messages[0].role == Role::kSystem;
}

Message& system_message(Conversation& conversation) {
  if (!has_system(conversation)) {
    conversation.messages.insert(conversation.messages.begin(), Message{.role = Role::kSystem});
  }
  return conversation.messages[0];
}

void drop_empty_system(Conversation& conversation) {
  const Message& message = system_message(conversation);
  if (message.content.empty() && message.tools.empty() && !message.response_format) {
    conversation.messages.erase(conversation.messages.begin());
  }
}

JsonValue read_json_file(const std::string& path) {
  return parse_json(read_text_file(path, static_cast<std::int64_t>(JsonLimits{}.max_bytes)), path);
}

}  // namespace

std::string system_text(const Conversation& conversation) {
  return has_system(conversation) ? conversation.messages[0].content : "";
}

void set_system_text(Conversation& conversation, std::string text) {
  system_message(conversation).content = std::move(text);
  drop_empty_system(conversation);
}

std::vector<JsonValue> offered_tools(const Conversation& conversation) {
  std::vector<JsonValue> functions;
  for (const Message& message : conversation.messages) {
    functions.insert(functions.end(), message.tools.begin(), message.tools.end());
  }
  return functions;
}

void set_tools(Conversation& conversation, std::vector<JsonValue> functions) {
  for (Message& message : conversation.messages) message.tools.clear();
  system_message(conversation).tools = std::move(functions);
  drop_empty_system(conversation);
}

void drop_messages(Conversation& conversation) {
  conversation.messages.resize(has_system(conversation) ? 1 : 0);
}

void add_answer(Conversation& conversation, Completion completion) {
  std::size_t num_calls = 0;
  for (const Message& message : conversation.messages) num_calls += message.tool_calls.size();
  for (ToolCall& call : completion.tool_calls) call.id = fmt::format("call_{}", ++num_calls);
  conversation.messages.push_back({.role = Role::kAssistant,
                                   .content = std::move(completion.content),
                                   .reasoning = std::move(completion.reasoning),
                                   .tool_calls = std::move(completion.tool_calls)});
}

std::vector<ToolCall> open_calls(const Conversation& conversation) {
  std::vector<ToolCall> open;
  for (const Message& message : conversation.messages) {
    if (message.role != Role::kTool) {
      open = message.tool_calls;
      continue;
    }
    const auto answered = std::find_if(open.begin(), open.end(), [&message](const ToolCall& call) {
      return call.id == message.tool_call_id;
    });
    if (answered != open.end()) open.erase(answered);
  }
  return open;
}

bool awaits_answer(const Conversation& conversation) {
  if (conversation.messages.empty() || !open_calls(conversation).empty()) return false;
  const Role role = conversation.messages.back().role;
  return role == Role::kUser || role == Role::kTool || role == Role::kDeveloper;
}

bool drop_cut_calls(Completion& completion) {
  std::string& content = completion.content;
  const std::size_t opener = content.find(kToolCallsOpener);
  if (opener != std::string::npos) {
    content.erase(opener);
    return true;
  }
  // The opener itself may be cut. Its first two bytes are line breaks, which an answer may end in.
  for (std::size_t size = std::min(kToolCallsOpener.size() - 1, content.size()); size > 2; --size) {
    if (!content.ends_with(kToolCallsOpener.substr(0, size))) continue;
    content.erase(content.size() - size);
    return true;
  }
  return false;
}

Conversation read_conversation_file(const std::string& path) {
  const JsonValue request = read_json_file(path);
  try {
    Conversation conversation = parse_conversation(request);
    require(conversation.context.empty(), ErrorCode::kBadRequest,
            "context cannot be taken up here; put its messages before those of messages");
    return conversation;
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path, error.what());
  }
}

std::vector<JsonValue> read_tools_file(const std::string& path) {
  const JsonValue file = read_json_file(path);
  const JsonValue* const list = file.as_object() != nullptr ? file.find("tools") : &file;
  require(list != nullptr && list->as_array() != nullptr, ErrorCode::kBadRequest,
          "{} is neither a list of tools nor an object with one as \"tools\"", path);
  std::vector<JsonValue> functions = parse_tools(*list, path);
  for (const JsonValue& function : functions) require_no_chat_mark(print_json(function), path);
  return functions;
}

}  // namespace dsv4
