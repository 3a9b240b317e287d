// conversation.h: a conversation as V4's prompt format knows it, read from request JSON and
// printed. The prompt is built by chat_encode.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_print.h"

namespace dsv4 {

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool, kLatestReminder };

// Short answers that V4 was trained to give after a mark of its own.
enum class Task { kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

enum class ReasoningEffort { kNone, kLow, kHigh, kMax };

// What an effort prints differs between releases.
enum class EffortTable {
  kInitial,
  k0731,  // and 0813: the checkpoints whose config has dspark_* keys
};

// One call of a function by the assistant.
struct ToolCall {
  std::string id;  // empty: none
  std::string name;
  std::string arguments;  // JSON text of an object, as the model or the client wrote it
};

// UTF-8 throughout. Marks inside the texts are not escaped: V4 has no escape, so whoever distrusts
// a text must refuse it.
struct Message {
  Role role = Role::kUser;
  std::string content;
  std::string reasoning;                     // of an assistant
  std::vector<ToolCall> tool_calls;          // of an assistant
  std::vector<JsonValue> tools;              // functions on offer: {name, description, parameters}
  std::optional<JsonValue> response_format;  // JSON schema of the answer
  std::optional<Task> task;
  std::string tool_call_id;  // of a tool: the call that it answers; empty: unknown
  bool wo_eos = false;       // an assistant's turn without EOS, to be continued
};

struct EncodeOptions {
  bool thinking = false;
  bool drop_thinking = true;  // leave out the reasoning before the last user turn
  bool add_bos = true;
  ReasoningEffort effort = ReasoningEffort::kNone;
  EffortTable effort_table = EffortTable::kInitial;
};

struct Conversation {
  std::vector<Message> context;  // turns already in the prompt: they count, but are not printed
  std::vector<Message> messages;
  EncodeOptions options;
};

// Reads {messages, tools, thinking, drop_thinking, add_bos, effort, effort_table, context}; all but
// messages may be absent or null, other fields are ignored. Tools of the request are given to
// messages[0], before which an empty system message is put unless it is system or developer.
// `default_table` is the effort table of a request that names none.
// Throws Error kBadRequest naming the field.
Conversation parse_conversation(std::string_view json_text,
                                EffortTable default_table = EffortTable::kInitial);
Conversation parse_conversation(const JsonValue& request,
                                EffortTable default_table = EffortTable::kInitial);

// The opposite: a request from which parse_conversation reads the same conversation. JSON of
// several lines, one a message; options that have their usual value are left out, but for thinking
// and effort. Texts must be valid UTF-8.
std::string print_conversation(const Conversation& conversation);

// Reads a list of messages, e.g. messages of an OpenAI request. `path` begins the error messages.
std::vector<Message> parse_messages(const JsonValue& messages, std::string_view path);

// Reads a list of {"type": "function", "function": {...}}; the functions. Their names differ, and
// none is empty.
std::vector<JsonValue> parse_tools(const JsonValue& tools, std::string_view path);

// Gives a request's tools to messages[0] as parse_conversation does. Throws Error kBadRequest if it
// has tools already.
void offer_tools(std::vector<JsonValue> tools, std::vector<Message>& messages);

}  // namespace dsv4
