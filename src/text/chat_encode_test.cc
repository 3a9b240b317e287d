// chat_encode_test.cc: prompts against those of DeepSeek's published encoder, and its rules alone.
#include "text/chat_encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "dsv4/error.h"
#include "text/chat_marks.h"
#include "text/dsml.h"
#include "text/prompt_texts.h"
#include "text/tokenizer_fixtures.h"

namespace dsv4 {
namespace {

std::string read_chat_file(const std::string& name) {
  return read_text_file(source_dir() / "tests/data/chat" / name);
}

const JsonValue& chat_cases() {
  static const JsonValue cases = parse_json(read_chat_file("cases.json"), "cases.json");
  return cases;
}

std::string encode(std::string_view request) {
  return encode_conversation(parse_conversation(request));
}

// A conversation that starts with BOS: what follows it.
std::string encode_tail(std::string_view request) {
  const std::string prompt = encode(request);
  EXPECT_TRUE(prompt.starts_with(kBosMark));
  return prompt.substr(std::min(prompt.size(), kBosMark.size()));
}

// Shorter spellings in expectations: U User, A Assistant, R reminder, E EOS, T <think>, t </think>.
std::string spell(std::string_view pattern) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      text.push_back(pattern[i]);
      continue;
    }
    switch (pattern[++i]) {
      case 'U':
        text.append(kUserMark);
        break;
      case 'A':
        text.append(kAssistantMark);
        break;
      case 'R':
        text.append(kReminderMark);
        break;
      case 'E':
        text.append(kEosMark);
        break;
      case 'T':
        text.append(kThinkMark);
        break;
      case 't':
        text.append(kEndThinkMark);
        break;
      case 'D':
        text.append(kDsmlMark);
        break;
      default:
        ADD_FAILURE() << pattern;
    }
  }
  return text;
}

TEST(ChatEncode, TextsAreThoseOfTheProtocol) {
  const auto protocol = nlohmann::json::parse(read_chat_file("protocol.json"));
  EXPECT_EQ(kToolsHead, protocol.at("tools_head").get<std::string>());
  EXPECT_EQ(kToolsTail, protocol.at("tools_tail").get<std::string>());
  EXPECT_EQ(kResponseHead, protocol.at("response_head").get<std::string>());
  EXPECT_EQ(kEffortAbsolute, protocol.at("effort_absolute").get<std::string>());
  EXPECT_EQ(kEffortBeyond, protocol.at("effort_beyond").get<std::string>());
  EXPECT_EQ(kDsmlMark, protocol.at("dsml").get<std::string>());
  EXPECT_EQ(kReminderMark, protocol.at("latest_reminder").get<std::string>());
  ASSERT_EQ(protocol.at("tasks").size(), 6u);
  for (const auto& [task, mark] : protocol.at("tasks").items()) {
    const std::string tail = encode_tail(R"({"messages": [{"role": "system", "task": ")" + task +
                                         R"("}, {"role": "assistant", "wo_eos": true}]})");
    const std::string opening = task == "action" ? spell("$A$t") : "";
    EXPECT_EQ(tail, opening + mark.get<std::string>());
  }
}

TEST(ChatEncode, OfficialFixtures) {
  for (int i = 1; i <= 4; ++i) {
    const std::string number = std::to_string(i);
    const JsonValue input = parse_json(read_chat_file("test_input_" + number + ".json"), "fixture");
    Conversation conversation;
    if (input.as_array() != nullptr) {
      conversation.messages = parse_messages(input, "messages");
    } else {
      conversation = parse_conversation(input);
    }
    conversation.options.thinking = i != 4;
    EXPECT_EQ(encode_conversation(conversation), read_chat_file("test_output_" + number + ".txt"))
        << i;
  }
}

TEST(ChatEncode, PublishedPrompts) {
  const JsonValue::Array& prompts = *chat_cases().find("prompts")->as_array();
  EXPECT_EQ(prompts.size(), 240u);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(encode_conversation(parse_conversation(prompts[i])),
              *prompts[i].find("prompt")->as_string())
        << i;
  }
}

// Where a turn begins, a conversation may be cut: the turns before it as context, the prompt of the
// rest is the end of the whole prompt.
TEST(ChatEncode, ContextCountsButIsNotPrinted) {
  std::size_t num_cuts = 0;
  for (const JsonValue& prompt : *chat_cases().find("prompts")->as_array()) {
    const Conversation whole = parse_conversation(prompt);
    const std::string& text = *prompt.find("prompt")->as_string();
    std::size_t last_size = text.size();
    for (std::size_t cut = 1; cut < whole.messages.size(); ++cut) {
      const Role role = whole.messages[cut].role, before = whole.messages[cut - 1].role;
      const bool joins = (role == Role::kUser || role == Role::kTool) &&
                         (before == Role::kUser || before == Role::kTool);
      if (joins) continue;
      Conversation rest = whole;
      const auto middle = rest.messages.begin() + static_cast<std::ptrdiff_t>(cut);
      rest.context.assign(rest.messages.begin(), middle);
      rest.messages.erase(rest.messages.begin(), middle);
      const std::string printed = encode_conversation(rest);
      EXPECT_TRUE(text.ends_with(printed));
      EXPECT_LE(printed.size(), last_size);
      last_size = printed.size();
      ++num_cuts;
    }
  }
  EXPECT_GT(num_cuts, 1000u);
}

TEST(ChatEncode, NoBosOnRequest) {
  EXPECT_EQ(encode(R"({"messages": [{"role": "user", "content": "a"}], "add_bos": false})"),
            spell("$Ua$A$t"));
}

TEST(ChatEncode, GenerationPromptAfterEveryRole) {
  const auto ending = [](const std::string& role, bool thinking) {
    return encode_tail(R"({"messages": [{"role": ")" + role +
                       R"(", "content": "a"}], "thinking": )" + (thinking ? "true}" : "false}"));
  };
  EXPECT_EQ(ending("user", false), spell("$Ua$A$t"));
  EXPECT_EQ(ending("user", true), spell("$Ua$A$T"));
  EXPECT_EQ(ending("developer", true), spell("$Ua$A$T"));
  EXPECT_EQ(ending("tool", true), spell("$U<tool_result>a</tool_result>$A$T"));
  EXPECT_EQ(ending("system", true), "a");
  EXPECT_EQ(ending("latest_reminder", true), spell("$Ra"));
  EXPECT_EQ(ending("assistant", false), spell("a$E"));
  EXPECT_EQ(ending("assistant", true), spell("$ta$E"));
}

TEST(ChatEncode, UserMessagesJoinUnlessTheTurnHasATask) {
  EXPECT_EQ(encode_tail(R"({"messages": [{"role": "user", "content": "a"},
                            {"role": "user", "content": "b", "task": "title"},
                            {"role": "tool", "content": "c"}]})"),
            spell("$Ua\n\nb\n\n<tool_result>c</tool_result>$A$t"));
  EXPECT_EQ(encode_tail(R"({"messages": [{"role": "user", "content": "a", "task": "query"},
                            {"role": "tool", "content": "b"}, {"role": "user", "content": "c"}]})"),
            spell("$Ua\n\n<tool_result>b</tool_result>$Uc$A$t"));
}

std::string results_request(const std::string& calls, const std::string& results) {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "wo_eos": true,
             "tool_calls": [)" +
         calls + "]}, " + results + "]}";
}

std::string results_of(const std::string& prompt) {
  const std::size_t begin = prompt.rfind(kUserMark) + kUserMark.size();
  std::string order;
  for (std::size_t at = begin; (at = prompt.find("<tool_result>", at)) != std::string::npos;) {
    at += std::string_view("<tool_result>").size();
    order.push_back(prompt[at]);
  }
  return order;
}

TEST(ChatEncode, ResultsTakeTheOrderOfTheCalls) {
  const std::string calls =
      R"({"id": "a", "function": {"name": "f", "arguments": "{}"}},
         {"id": "b", "function": {"name": "f", "arguments": "{}"}},
         {"id": "c", "function": {"name": "f", "arguments": "{}"}})";
  const std::string nameless = R"({"function": {"name": "f", "arguments": "{}"}})";
  const auto result = [](const std::string& id) {
    return R"({"role": "tool", "tool_call_id": ")" + id + R"(", "content": ")" + id + R"("})";
  };
  const std::string c_b_a = result("c") + "," + result("b") + "," + result("a");
  EXPECT_EQ(results_of(encode(results_request(calls, c_b_a))), "abc");
  EXPECT_EQ(results_of(encode(results_request(nameless, c_b_a))), "cba");
  // An unknown id sorts with the first call, stably.
  EXPECT_EQ(results_of(encode(results_request(
                calls, result("c") + "," + result("x") + "," + result("a") + "," + result("b")))),
            "xabc");
  // A text between results keeps its place.
  const std::string prompt = encode(results_request(
      calls, result("b") + R"(,{"role": "user", "content": "mid"},)" + result("a")));
  EXPECT_NE(
      prompt.find(spell("$U<tool_result>a</tool_result>\n\nmid\n\n<tool_result>b</tool_result>")),
      std::string::npos)
      << prompt;
}

TEST(ChatEncode, OldReasoningAndDevelopersAreDroppedUnlessToolsAreThere) {
  const std::string messages =
      R"("messages": [{"role": "developer", "content": "d"},
          {"role": "assistant", "content": "1", "reasoning_content": "r"},
          {"role": "user", "content": "u"},
          {"role": "assistant", "content": "2", "reasoning_content": "s")";
  EXPECT_EQ(encode_tail("{\"thinking\": true, " + messages + "}]}"), spell("1$E$Uu$A$Ts$t2$E"));
  EXPECT_EQ(encode_tail("{\"thinking\": true, \"drop_thinking\": false, " + messages + "}]}"),
            spell("$Ud$A$Tr$t1$E$Uu$A$Ts$t2$E"));
  EXPECT_EQ(encode_tail("{\"thinking\": false, " + messages + "}]}"),
            spell("$Ud$A$t1$E$Uu$A$t2$E"));
  // Tools anywhere keep everything, even where they are not printed.
  EXPECT_EQ(encode_tail("{\"thinking\": true, " + messages +
                        R"(, "tools": [{"function": {"name": "f"}}]}]})"),
            spell("$Ud$A$Tr$t1$E$Uu$A$Ts$t2$E"));
}

TEST(ChatEncode, EffortOpensThePromptByTable) {
  const auto opening = [](const char* effort, const char* table, bool thinking) {
    const std::string tail = encode_tail(
        std::string(R"({"messages": [{"role": "user"}], "effort": ")") + effort +
        R"(", "effort_table": ")" + table + R"(", "thinking": )" + (thinking ? "true}" : "false}"));
    return tail.substr(0, tail.size() - spell("$U$A$T").size() - (thinking ? 0 : 1));
  };
  EXPECT_EQ(opening("none", "initial", true), "");
  EXPECT_EQ(opening("high", "initial", true), "");
  EXPECT_EQ(opening("max", "initial", true), kEffortAbsolute);
  EXPECT_EQ(opening("none", "0731", true), "");
  EXPECT_EQ(opening("low", "0731", true), "");
  EXPECT_EQ(opening("high", "0731", true), kEffortAbsolute);
  EXPECT_EQ(opening("max", "0813", true), kEffortBeyond);
  EXPECT_EQ(opening("max", "0731", false), "");
  EXPECT_THROW(opening("low", "initial", true), Error);
  EXPECT_THROW(opening("low", "initial", false), Error);
}

std::string encode_arguments(const std::string& arguments) {
  const std::string block = encode_tool_calls({{.id = "", .name = "f", .arguments = arguments}});
  const std::string head = spell("<$Dtool_calls>\n<$Dinvoke name=\"f\">\n");
  const std::string tail = spell("\n</$Dinvoke>\n</$Dtool_calls>");
  EXPECT_TRUE(block.starts_with(head) && block.ends_with(tail)) << block;
  return block.substr(head.size(), block.size() - head.size() - tail.size());
}

TEST(ChatEncode, ArgumentsByTheirKind) {
  EXPECT_EQ(encode_arguments("{}"), "");
  EXPECT_EQ(encode_arguments(R"({"b": "x\n\"y", "a": [1,{"k":1e-5}], "b": "z"})"),
            spell("<$Dparameter name=\"b\" string=\"true\">z</$Dparameter>\n"
                  "<$Dparameter name=\"a\" string=\"false\">[1, {\"k\": 1e-05}]</$Dparameter>"));
  EXPECT_EQ(encode_arguments(R"({"n": 123456789012345678901234567890})"),
            spell("<$Dparameter name=\"n\" string=\"false\">123456789012345678901234567890"
                  "</$Dparameter>"));
}

TEST(ChatEncode, ArgumentsThatAreNoJsonBecomeOneString) {
  for (const std::string text : {"", "{", "ls 2>&1", "{\"a\": NaN}", "{\"a\": \"\\ud800\"}"}) {
    EXPECT_EQ(encode_arguments(text), spell("<$Dparameter name=\"arguments\" string=\"true\">") +
                                          text + spell("</$Dparameter>"));
  }
}

TEST(ChatEncode, RefusesArgumentsThatAreJsonButNoObject) {
  for (const char* text : {"[]", "1", "\"x\"", "null"}) {
    try {
      encode_arguments(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kBadRequest);
      EXPECT_NE(std::string_view(e.what()).find("\"f\""), std::string_view::npos);
    }
  }
}

TEST(ChatEncode, ZeroMessages) { EXPECT_EQ(encode_conversation({}), kBosMark); }

TEST(ChatEncode, RefusesAnEmptyDeveloperMessage) {
  Conversation conversation;
  conversation.messages.push_back({.role = Role::kDeveloper});
  EXPECT_THROW(encode_conversation(conversation), Error);
}

}  // namespace
}  // namespace dsv4
