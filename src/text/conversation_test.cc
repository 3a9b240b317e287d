// conversation_test.cc: requests read field by field, and the refusals.
#include "text/conversation.h"

#include <gtest/gtest.h>

#include "dsv4/error.h"

namespace dsv4 {
namespace {

void expect_refused(std::string_view request, std::string_view want_message) {
  try {
    parse_conversation(request);
    ADD_FAILURE() << "no error: " << request;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
    EXPECT_NE(std::string_view(e.what()).find(want_message), std::string_view::npos)
        << e.what() << " does not contain " << want_message;
  }
}

TEST(Conversation, EveryFieldOfAMessage) {
  const Conversation c = parse_conversation(R"({
    "messages": [
      {"role": "assistant", "content": "c", "reasoning_content": "r", "wo_eos": true, "mask": 1,
       "tool_calls": [{"id": "x", "type": "function",
                       "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "x", "content": null},
      {"role": "user", "task": "read_url",
       "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "system", "response_format": {"a": 1},
       "tools": [{"type": "function", "function": {"name": "f"}}]}],
    "context": [{"role": "latest_reminder", "content": "now"}],
    "thinking": true, "drop_thinking": false, "add_bos": false, "effort": "max",
    "effort_table": "0813", "unknown": []})");
  ASSERT_EQ(c.messages.size(), 4u);
  const Message& assistant = c.messages[0];
  EXPECT_EQ(assistant.role, Role::kAssistant);
  EXPECT_EQ(assistant.content, "c");
  EXPECT_EQ(assistant.reasoning, "r");
  EXPECT_TRUE(assistant.wo_eos);
  ASSERT_EQ(assistant.tool_calls.size(), 1u);
  EXPECT_EQ(assistant.tool_calls[0].id, "x");
  EXPECT_EQ(assistant.tool_calls[0].name, "f");
  EXPECT_EQ(assistant.tool_calls[0].arguments, "{}");
  EXPECT_EQ(c.messages[1].role, Role::kTool);
  EXPECT_EQ(c.messages[1].tool_call_id, "x");
  EXPECT_EQ(c.messages[1].content, "");
  EXPECT_EQ(c.messages[2].content, "ab");
  EXPECT_EQ(c.messages[2].task, Task::kReadUrl);
  ASSERT_EQ(c.messages[3].tools.size(), 1u);
  EXPECT_EQ(print_json(c.messages[3].tools[0]), "{\"name\": \"f\"}");
  ASSERT_TRUE(c.messages[3].response_format.has_value());
  EXPECT_EQ(print_json(*c.messages[3].response_format), "{\"a\": 1}");
  ASSERT_EQ(c.context.size(), 1u);
  EXPECT_EQ(c.context[0].role, Role::kLatestReminder);
  EXPECT_TRUE(c.options.thinking);
  EXPECT_FALSE(c.options.drop_thinking);
  EXPECT_FALSE(c.options.add_bos);
  EXPECT_EQ(c.options.effort, ReasoningEffort::kMax);
  EXPECT_EQ(c.options.effort_table, EffortTable::k0731);
}

TEST(Conversation, EffortTableIsTheCallersUnlessTheRequestNamesOne) {
  const std::string_view begin = R"({"messages": [{"role": "user"}])";
  const auto table = [begin](std::string_view rest) {
    return parse_conversation(std::string(begin).append(rest), EffortTable::k0731)
        .options.effort_table;
  };
  EXPECT_EQ(table("}"), EffortTable::k0731);
  EXPECT_EQ(table(R"(, "effort_table": null})"), EffortTable::k0731);
  EXPECT_EQ(table(R"(, "effort_table": "initial"})"), EffortTable::kInitial);
}

TEST(Conversation, AbsentNullAndEmptyAreTheDefaults) {
  for (const char* request :
       {R"({"messages": [{"role": "user"}]})",
        R"({"messages": [{"role": "user", "content": null, "reasoning_content": null,
             "tool_calls": null, "tools": null, "response_format": null, "task": null,
             "tool_call_id": null, "wo_eos": null}],
            "tools": null, "context": null, "thinking": null, "drop_thinking": null,
            "add_bos": null, "effort": null, "effort_table": null})",
        R"({"messages": [{"role": "user", "content": [], "tool_calls": [], "tools": [],
             "response_format": {}}], "tools": [], "context": []})"}) {
    const Conversation c = parse_conversation(request);
    ASSERT_EQ(c.messages.size(), 1u);
    const Message& m = c.messages[0];
    EXPECT_TRUE(m.content.empty() && m.reasoning.empty() && m.tool_call_id.empty());
    EXPECT_TRUE(m.tool_calls.empty() && m.tools.empty());
    EXPECT_FALSE(m.response_format.has_value());
    EXPECT_FALSE(m.task.has_value());
    EXPECT_FALSE(m.wo_eos);
    EXPECT_TRUE(c.context.empty());
    EXPECT_FALSE(c.options.thinking);
    EXPECT_TRUE(c.options.drop_thinking);
    EXPECT_TRUE(c.options.add_bos);
    EXPECT_EQ(c.options.effort, ReasoningEffort::kNone);
    EXPECT_EQ(c.options.effort_table, EffortTable::kInitial);
  }
}

TEST(Conversation, ToolsOfTheRequestGoToTheFirstMessage) {
  const std::string tools = R"("tools": [{"function": {"name": "f"}}])";
  for (const auto& [role, num_messages] :
       {std::pair{"system", 1u}, std::pair{"developer", 1u}, std::pair{"user", 2u},
        std::pair{"latest_reminder", 2u}, std::pair{"assistant", 2u}}) {
    const Conversation c = parse_conversation(R"({"messages": [{"role": ")" + std::string(role) +
                                              R"(", "content": "x"}], )" + tools + "}");
    ASSERT_EQ(c.messages.size(), num_messages) << role;
    EXPECT_EQ(c.messages[0].tools.size(), 1u);
    if (num_messages == 2) {
      EXPECT_EQ(c.messages[0].role, Role::kSystem);
      EXPECT_EQ(c.messages[0].content, "");
      EXPECT_TRUE(c.messages[1].tools.empty());
    }
  }
  expect_refused(R"({"messages": [{"role": "system", "tools": [{"function": {"name": "g"}}]}], )" +
                     tools + "}",
                 "tools stand in the request and in messages[0], too");
}

TEST(Conversation, RefusalsNameTheField) {
  const auto message = [](const std::string& fields) {
    return R"({"messages": [{"role": "user"}, {)" + fields + "}]}";
  };
  expect_refused("", "the request: not valid JSON");
  expect_refused("[]", "the request must be an object with messages, such as {\"messages\": [");
  expect_refused("{}", "messages is missing");
  expect_refused(R"({"messages": {}})", "messages must be an array");
  expect_refused(R"({"messages": []})", "messages must not be empty");
  expect_refused(R"({"messages": ["x"]})", "messages[0] must be an object");
  expect_refused(R"({"messages": [{"role": "user"}], "context": [{}]})",
                 "context[0].role is missing");
  expect_refused(message(""), "messages[1].role is missing");
  expect_refused(message(R"("role": 1)"), "messages[1].role must be a string");
  expect_refused(message(R"("role": "critic")"),
                 "messages[1].role is \"critic\"; it must be one of");
  expect_refused(message(R"("role": "User")"), "messages[1].role is \"User\"");
  expect_refused(message(R"("role": "user", "content": 1)"), "messages[1].content must be");
  expect_refused(message(R"("role": "user", "content": {})"), "messages[1].content must be");
  expect_refused(message(R"("role": "user", "content": ["x"])"),
                 "messages[1].content[0] must be an object");
  expect_refused(message(R"("role": "user", "content": [{"type": "text", "text": "x"},
                                                        {"type": "image_url"}])"),
                 "messages[1].content[1].type is \"image_url\"");
  expect_refused(message(R"("role": "user", "content": [{"text": "x"}])"),
                 "messages[1].content[0].type is missing");
  expect_refused(message(R"("role": "user", "content": [{"type": "text"}])"),
                 "messages[1].content[0].text is missing");
  expect_refused(message(R"("role": "developer")"), "messages[1].content must not be empty");
  expect_refused(message(R"("role": "developer", "content": [])"),
                 "messages[1].content must not be empty");
  expect_refused(message(R"("role": "user", "task": "sing")"), "messages[1].task is \"sing\"");
  expect_refused(message(R"("role": "user", "task": "")"), "messages[1].task is \"\"");
  expect_refused(message(R"("role": "assistant", "wo_eos": 1)"),
                 "messages[1].wo_eos must be true or false");
  expect_refused(message(R"("role": "assistant", "reasoning_content": [])"),
                 "messages[1].reasoning_content must be a string");
  expect_refused(message(R"("role": "tool", "tool_call_id": 5)"),
                 "messages[1].tool_call_id must be a string");
  expect_refused(message(R"("role": "system", "response_format": "json")"),
                 "messages[1].response_format must be an object");
}

TEST(Conversation, RefusalsOfToolsAndCalls) {
  const auto call = [](const std::string& text) {
    return R"({"messages": [{"role": "assistant", "tool_calls": [)" + text + "]}]}";
  };
  expect_refused(call("1"), "messages[0].tool_calls[0] must be an object");
  expect_refused(call("{}"), "messages[0].tool_calls[0].function is missing");
  expect_refused(call(R"({"type": "custom", "function": {}})"),
                 "messages[0].tool_calls[0].type is \"custom\"");
  expect_refused(call(R"({"function": {"arguments": "{}"}})"),
                 "messages[0].tool_calls[0].function.name is missing");
  expect_refused(call(R"({"function": {"name": "f"}})"),
                 "messages[0].tool_calls[0].function.arguments is missing");
  expect_refused(call(R"({"function": {"name": "f", "arguments": {}}})"),
                 "messages[0].tool_calls[0].function.arguments must be a string");
  const auto tool = [](const std::string& text) {
    return R"({"messages": [{"role": "user"}], "tools": )" + text + "}";
  };
  expect_refused(tool("{}"), "tools must be an array");
  expect_refused(tool(R"([{"function": {"name": "f"}}, {"type": "web_search"}])"),
                 "tools[1].type is \"web_search\"");
  expect_refused(tool(R"([{"type": "function"}])"), "tools[0].function is missing");
  expect_refused(tool(R"([{"function": {}}])"), "tools[0].function.name is missing");
  expect_refused(tool(R"([{"function": {"name": "f"}}, {"function": {"name": ""}}])"),
                 "tools[1].function.name must not be empty");
}

// Also where they are the same to the last byte: which of two a call means would be a guess.
TEST(Conversation, ToolsOfOneNameAreRefused) {
  const std::string f = R"({"function": {"name": "f"}})", g = R"({"function": {"name": "g"}})";
  const auto list = [&](const std::string& last) { return "[" + f + ", " + g + ", " + last + "]"; };
  expect_refused(R"({"messages": [{"role": "user"}], "tools": )" + list(f) + "}",
                 "tools[2].function.name is \"f\", as that of tools[0]");
  expect_refused(R"({"messages": [{"role": "system", "tools": )" + list(g) + "}]}",
                 "messages[0].tools[2].function.name is \"g\", as that of messages[0].tools[1]");
  // Names are told apart by their bytes; and a later message may offer its own.
  const Conversation accepted = parse_conversation(
      R"({"messages": [{"role": "system", "tools": )" + list(R"({"function": {"name": "F"}})") +
      R"(}, {"role": "developer", "content": "c", "tools": [)" + f + "]}]}");
  EXPECT_EQ(accepted.messages[0].tools.size(), 3u);
  EXPECT_EQ(accepted.messages[1].tools.size(), 1u);
}

TEST(Conversation, RefusalsOfOptions) {
  const auto option = [](const std::string& text) {
    return R"({"messages": [{"role": "user"}], )" + text + "}";
  };
  expect_refused(option(R"("thinking": "yes")"), "thinking must be true or false");
  expect_refused(option(R"("effort": "medium")"),
                 "effort is \"medium\"; it must be one of: none, low, high, max");
  expect_refused(option(R"("effort_table": "0999")"), "effort_table is \"0999\"");
}

}  // namespace
}  // namespace dsv4
