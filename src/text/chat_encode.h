// chat_encode.h: the prompt of a conversation, byte for byte as DeepSeek's published encoder for V4
// builds it. Reading requests is conversation.h's, tokens are tokenizer.h's.
//
// A conversation that ends in a user, tool or developer message ends with the generation prompt:
// the assistant's mark, then <think> or, without thinking, </think>. With drop_thinking, an old
// turn's <think> becomes </think> when a new user message comes, so a cached prefix ends at that
// turn's assistant mark.
#pragma once

#include <string>
#include <string_view>

#include "text/conversation.h"

namespace dsv4 {

// Throws Error kBadRequest: an effort that the table lacks, an empty developer message, arguments
// of a call that are JSON but no object.
std::string encode_conversation(const Conversation& conversation);

// The tool-call markup of `calls` (not empty), from "<" to ">", without the newlines before it.
// Arguments that are no JSON become one string parameter named "arguments".
std::string encode_tool_calls(const std::vector<ToolCall>& calls);

}  // namespace dsv4
