// conversation_print_test.cc: what was printed is read as the same conversation.
#include <gtest/gtest.h>

#include "text/chat_encode.h"
#include "text/conversation.h"
#include "text/tokenizer_fixtures.h"

namespace dsv4 {
namespace {

TEST(ConversationPrint, EveryFieldComesBack) {
  const std::string text = R"({
  "messages": [
    {"role": "system", "content": "s\n\"q\"", "response_format": {"b": 1.0, "a": [null]}},
    {"role": "user", "content": "", "tools": [{"type": "function", "function": {"name": "g"}}], "task": "read_url"},
    {"role": "assistant", "reasoning_content": "r", "content": "c", "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{\"z\": 1}"}}, {"type": "function", "function": {"name": "h", "arguments": "no JSON"}}], "wo_eos": true},
    {"role": "tool", "tool_call_id": "x", "content": "\u0000ä"}
  ],
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"z": 12345678901234567890}}}],
  "context": [
    {"role": "developer", "content": "d", "tools": [{"type": "function", "function": {"name": "i"}}]}
  ],
  "thinking": true,
  "effort": "high",
  "drop_thinking": false,
  "add_bos": false,
  "effort_table": "0731"
}
)";
  EXPECT_EQ(print_conversation(parse_conversation(text)), text);
}

TEST(ConversationPrint, UsualOptionsAreLeftOut) {
  Conversation conversation;
  conversation.messages = {{.role = Role::kUser, .content = "hi"}};
  EXPECT_EQ(print_conversation(conversation),
            "{\n  \"messages\": [\n    {\"role\": \"user\", \"content\": \"hi\"}\n  ],\n"
            "  \"thinking\": false,\n  \"effort\": \"none\"\n}\n");
}

// The prompts that DeepSeek's published encoder builds do not change.
TEST(ConversationPrint, RecordedConversationsKeepTheirPrompts) {
  const JsonValue file = parse_json(read_text_file(source_dir() / "tests/data/chat/cases.json"),
                                    "cases.json", {.max_bytes = std::size_t{64} << 20});
  const JsonValue::Array& cases = *file.find("prompts")->as_array();
  ASSERT_EQ(cases.size(), 240u);
  for (const JsonValue& one : cases) {
    const Conversation conversation = parse_conversation(one);
    EXPECT_EQ(encode_conversation(parse_conversation(print_conversation(conversation))),
              *one.find("prompt")->as_string())
        << print_json(one);
  }
}

}  // namespace
}  // namespace dsv4
