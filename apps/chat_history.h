// chat_history.h: what dsv4 chat does to a conversation: its parts set and read, answers added,
// tool calls that still wait. What the prompt of a conversation is: text/chat_encode.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat_parse.h"
#include "text/conversation.h"

namespace dsv4 {

// The system message is messages[0], if it is one; a system message without text and tools is none.
std::string system_text(const Conversation& conversation);
void set_system_text(Conversation& conversation, std::string text);
// Of all messages.
std::vector<JsonValue> offered_tools(const Conversation& conversation);
void set_tools(Conversation& conversation, std::vector<JsonValue> functions);
// Leaves the system message.
void drop_messages(Conversation& conversation);

// Appends the answer; its calls get ids that are new in the conversation.
void add_answer(Conversation& conversation, Completion completion);
// Calls of the last answer that have no result, unless the user has spoken since.
std::vector<ToolCall> open_calls(const Conversation& conversation);
// Whether the last word is a user's, or results for all calls.
bool awaits_answer(const Conversation& conversation);

// Of an answer that ended before its end token: takes off tool-call markup, which is not complete.
// Whether there was any.
bool drop_cut_calls(Completion& completion);

// A file of print_conversation, or written by hand. Throws Error: kNotFound, kIo, kBadRequest (by
// field; a context, which a program that computes nothing before cannot take).
Conversation read_conversation_file(const std::string& path);
// A list of tools as OpenAI's API has them, or an object with such a list as "tools"; the
// functions. Throws Error: kNotFound, kIo, kBadRequest.
std::vector<JsonValue> read_tools_file(const std::string& path);

}  // namespace dsv4
