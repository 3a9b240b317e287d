// chat_completion_fixtures.h: completions for the tests of both parsers. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_marks.h"
#include "text/chat_parse.h"
#include "text/dsml.h"
#include "text/tokenizer_fixtures.h"

namespace dsv4 {

struct CompletionCase {
  std::string text;
  bool thinking;
  bool is_refused;
  Completion want;  // unless refused
};

// Completions, many of them damaged, with what DeepSeek's published parser makes of them.
inline const std::vector<CompletionCase>& completion_cases() {
  static const std::vector<CompletionCase> cases = [] {
    std::vector<CompletionCase> result;
    const auto file =
        nlohmann::json::parse(read_text_file(source_dir() / "tests/data/chat/cases.json"));
    for (const auto& c : file.at("completions")) {
      const auto& message = c.at("message");
      CompletionCase one{c.at("text"), c.at("thinking"), message.is_null(), {}};
      if (!message.is_null()) {
        one.want.content = message.at("content");
        one.want.reasoning = message.at("reasoning_content");
        for (const auto& call : message.at("tool_calls")) {
          const auto& function = call.at("function");
          one.want.tool_calls.push_back(
              {.id = "", .name = function.at("name"), .arguments = function.at("arguments")});
        }
      }
      result.push_back(std::move(one));
    }
    return result;
  }();
  return cases;
}

// Instead of "..." + std::string, for which g++ 12 invents an overlapping copy.
inline std::string concat(std::initializer_list<std::string_view> pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text.append(piece);
  return text;
}

// Writes tool-call markup; nothing in it is checked.
inline std::string dsml_parameter(std::string_view key, std::string_view value,
                                  bool is_string = true) {
  std::string text(kParameterOpener);
  text.append(kNameAttribute).append(key).append(is_string ? kStringParameter : kJsonParameter);
  return text.append(value).append(kParameterCloser).append(">\n");
}
inline std::string dsml_invoke(std::string_view name, std::string_view parameters) {
  std::string text(kInvokeOpener);
  text.append(kNameAttribute).append(name).append(kInvokeHeadEnd);
  return text.append(parameters).append(parameters.empty() ? "\n" : "").append(kInvokeCloser) +
         ">\n";
}
inline std::string dsml_calls(std::string_view invokes) {
  std::string text(kToolCallsOpener);
  return text.append(kTagEnd).append(invokes).append(kToolCallsCloser);
}
// Completions of about 13 MB, of one kind of call throughout. A parser that looks for the other
// kind to the end of the text each time takes longer than a test may.
inline constexpr std::size_t kManyTags = 200'000;
inline std::string many_empty_calls() {
  std::string invokes;
  for (std::size_t i = 0; i < kManyTags; ++i) invokes += dsml_invoke("f", "");
  return dsml_calls(invokes).append(kEosMark);
}
inline std::string many_parameters(bool is_string) {
  std::string parameters;
  for (std::size_t i = 0; i < kManyTags; ++i) {
    parameters += dsml_parameter(std::to_string(i), "1", is_string);
  }
  return dsml_calls(dsml_invoke("f", parameters)).append(kEosMark);
}
inline std::string with_eos(std::string text) { return text.append(kEosMark); }

inline void expect_same(const Completion& got, const Completion& want) {
  EXPECT_EQ(got.reasoning, want.reasoning);
  EXPECT_EQ(got.content, want.content);
  ASSERT_EQ(got.tool_calls.size(), want.tool_calls.size());
  for (std::size_t i = 0; i < got.tool_calls.size(); ++i) {
    EXPECT_EQ(got.tool_calls[i].name, want.tool_calls[i].name);
    EXPECT_EQ(got.tool_calls[i].arguments, want.tool_calls[i].arguments);
  }
}

}  // namespace dsv4
