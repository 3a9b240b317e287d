// chat_parse_test.cc: whole completions against DeepSeek's published parser, and damaged ones.
#include "text/chat_parse.h"

#include "text/chat_completion_fixtures.h"
#include "text/chat_encode.h"

namespace dsv4 {
namespace {

TEST(ChatParse, PublishedCompletions) {
  ASSERT_EQ(completion_cases().size(), 160u);
  int num_refused = 0, num_with_calls = 0;
  for (const CompletionCase& c : completion_cases()) {
    SCOPED_TRACE(c.text);
    const StrictParse got = parse_completion(c.text, c.thinking);
    EXPECT_EQ(got.ok(), !c.is_refused) << got.problem;
    expect_same(got.completion, c.want);
    num_refused += c.is_refused ? 1 : 0;
    num_with_calls += c.want.tool_calls.empty() ? 0 : 1;
  }
  EXPECT_GE(num_refused, 20);
  EXPECT_GE(num_with_calls, 20);
}

TEST(ChatParse, LenientIsStrictWhereStrictSucceeds) {
  for (const CompletionCase& c : completion_cases()) {
    SCOPED_TRACE(c.text);
    const Completion got = parse_lenient(c.text, c.thinking);
    EXPECT_EQ(got.warning.empty(), !c.is_refused);
    if (!c.is_refused) expect_same(got, c.want);
  }
}

// All but the think mark and one EOS at the end comes back.
TEST(ChatParse, LenientLosesNothing) {
  for (const CompletionCase& c : completion_cases()) {
    if (!c.is_refused) continue;
    SCOPED_TRACE(c.text);
    const Completion got = parse_lenient(c.text, c.thinking);
    std::string text = c.text;
    if (text.ends_with(kEosMark)) text.resize(text.size() - kEosMark.size());
    const bool split = text.starts_with(got.reasoning + std::string(kEndThinkMark));
    EXPECT_EQ(got.reasoning + (c.thinking && split ? std::string(kEndThinkMark) : "") + got.content,
              text);
    EXPECT_TRUE(got.tool_calls.empty());
  }
}

TEST(ChatParse, EncodedAnswersComeBack) {
  Message answer{.role = Role::kAssistant, .content = "text\n", .reasoning = " because"};
  answer.tool_calls = {{"", "f", R"({"a": "x\"\n</b>", "b": [1, {"c": null}], "": ""})"},
                       {"", "g", "{}"},
                       {"", "h\"i", R"({"2>&1": "2>&1"})"}};
  Conversation conversation;
  conversation.messages = {{.role = Role::kUser}, answer};
  conversation.options.thinking = true;
  std::string text = encode_conversation(conversation);
  text.erase(0, text.find(kThinkMark) + kThinkMark.size());
  const StrictParse got = parse_completion(text, true);
  EXPECT_EQ(got.problem, "");
  expect_same(got.completion, {answer.reasoning, answer.content, answer.tool_calls, ""});
}

void expect_refused(const std::string& text, bool thinking, std::string_view want_problem,
                    const std::string& want_reasoning, const std::string& want_content) {
  SCOPED_TRACE(text);
  const StrictParse strict = parse_completion(text, thinking);
  EXPECT_NE(strict.problem.find(want_problem), std::string::npos) << strict.problem;
  const Completion lenient = parse_lenient(text, thinking);
  EXPECT_EQ(lenient.warning, strict.problem);
  expect_same(lenient, {want_reasoning, want_content, {}, ""});
}

TEST(ChatParse, TextThatEndsEarly) {
  const std::string calls = dsml_calls(dsml_invoke("f", dsml_parameter("a", "b")));
  expect_refused("", false, "does not end in", "", "");
  expect_refused("", true, "no </think>", "", "");
  expect_refused("half an ans", false, "does not end in", "", "half an ans");
  expect_refused("half a tho", true, "no </think>", "half a tho", "");
  expect_refused(with_eos("no end of thought"), true, "no </think>", "no end of thought", "");
  expect_refused("a</think>b", true, "does not end in", "a", "b");
  expect_refused(concat({"a", calls}), false, "not followed by", "", concat({"a", calls}));
  for (std::size_t size = kToolCallsOpener.size(); size < calls.size(); ++size) {
    const std::string cut = concat({"a", calls.substr(0, size)});
    EXPECT_FALSE(parse_completion(cut, false).ok()) << cut;
    EXPECT_FALSE(parse_completion(with_eos(cut), false).ok()) << cut;
    EXPECT_EQ(parse_lenient(with_eos(cut), false).content, cut);
  }
}

TEST(ChatParse, MissingTags) {
  const std::string parameter = dsml_parameter("a", "b"), invoke = dsml_invoke("f", parameter);
  const std::string no_opener = concat({"\n\n", invoke, kToolCallsCloser});
  expect_refused(with_eos(no_opener), false, "content contains", "", no_opener);
  const std::string no_closer =
      dsml_calls(invoke).substr(0, dsml_calls(invoke).size() - kToolCallsCloser.size());
  expect_refused(with_eos(no_closer), false, "neither another nor the end", "", no_closer);
  std::string unclosed = dsml_calls(dsml_invoke("f", parameter.substr(0, parameter.size() - 26)));
  expect_refused(with_eos(unclosed), false, "ends inside a parameter", "", unclosed);
  const std::string one_newline = dsml_calls(invoke).substr(1);
  const std::string no_call = concat({"a", one_newline});
  expect_refused(with_eos(no_call), false, "content contains", "", no_call);
}

TEST(ChatParse, DamagedBlocks) {
  const std::string p = dsml_parameter("a", "b");
  const auto refused = [](const std::string& invokes, std::string_view problem) {
    expect_refused(with_eos(dsml_calls(invokes)), false, problem, "", dsml_calls(invokes));
  };
  refused(dsml_invoke("f", p + p), "parameter \"a\" is given twice");
  refused(dsml_invoke("f", concat({"x", p})), "head is damaged");
  refused(dsml_invoke("f", p + "x"), "neither another nor the end of its tool call");
  refused(dsml_invoke("f", p + "\n"), "neither another nor the end of its tool call");
  refused(concat({"x", dsml_invoke("f", p)}), "neither another nor the end of the calls");
  refused(dsml_invoke("f", p) + "x", "neither another nor the end of the calls");
  std::string wrong_kind = p;
  wrong_kind.replace(wrong_kind.find("true"), 4, "True");
  refused(dsml_invoke("f", wrong_kind), "neither string=");
  refused(dsml_invoke("f", dsml_parameter("a", concat({"b/", kDsmlMark, "parameter>"}))),
          "closing tag is damaged");
  expect_refused(with_eos(dsml_calls(dsml_invoke("f", p)) + " "), false, "not followed by", "",
                 dsml_calls(dsml_invoke("f", p)) + " ");
}

TEST(ChatParse, MarksOutOfPlace) {
  for (const std::string_view mark : {kBosMark, kThinkMark, kEndThinkMark, kDsmlMark}) {
    const std::string text = concat({"a", mark, "b"});
    expect_refused(with_eos(text), false, "content contains", "", text);
  }
  expect_refused(with_eos("a<think>b</think>c"), true, "reasoning contains", "a<think>b", "c");
  expect_refused(with_eos("a</think>b</think>c"), true, "content contains", "a", "b</think>c");
  expect_refused(with_eos("a") + "b", false, "text follows", "", with_eos("a") + "b");
  expect_refused(with_eos(with_eos("a")), false, "text follows", "", with_eos("a"));
  const std::string calls = dsml_calls(dsml_invoke("f", ""));
  expect_refused(with_eos(concat({"a", calls, "</think>b"})), true, "no </think>", "a",
                 calls + "</think>b");
}

TEST(ChatParse, BlockWithoutCallsIsNone) {
  const StrictParse got = parse_completion(with_eos(concat({"a", dsml_calls("")})), false);
  EXPECT_EQ(got.problem, "");
  expect_same(got.completion, {"", "a", {}, ""});
}

TEST(ChatParse, CallsWithoutParameters) {
  const StrictParse got =
      parse_completion(with_eos(dsml_calls(dsml_invoke("f", "") + dsml_invoke("g", ""))), false);
  expect_same(got.completion, {"", "", {{"", "f", "{}"}, {"", "g", "{}"}}, ""});
}

TEST(ChatParse, ValuesMayContainAnythingButTheirEnd) {
  const std::string value = "2>&1 </think> < > </ \"\\ \n\n" + std::string(kToolCallsOpener) +
                            std::string(kEosMark) + std::string(kParameterOpener);
  const StrictParse got = parse_completion(
      with_eos(dsml_calls(dsml_invoke("f", dsml_parameter("command", value)))), false);
  EXPECT_EQ(got.problem, "");
  ASSERT_EQ(got.completion.tool_calls.size(), 1u);
  EXPECT_EQ(got.completion.tool_calls[0].arguments,
            concat({"{\"command\": ", print_json_string(value), "}"}));
}

TEST(ChatParse, JsonValuesAreTakenAsTheyStand) {
  const std::string parameters =
      dsml_parameter("a", " {\"x\":1} ", false) + dsml_parameter("b", "oops", false);
  const StrictParse got =
      parse_completion(with_eos(dsml_calls(dsml_invoke("f", parameters))), false);
  ASSERT_EQ(got.completion.tool_calls.size(), 1u);
  EXPECT_EQ(got.completion.tool_calls[0].arguments, "{\"a\":  {\"x\":1} , \"b\": oops}");
}

TEST(ChatParse, TimeIsLinearInTheNumberOfTags) {
  EXPECT_EQ(parse_completion(many_empty_calls(), false).completion.tool_calls.size(), kManyTags);
  for (const bool is_string : {true, false}) {
    EXPECT_EQ(parse_completion(many_parameters(is_string), false).completion.tool_calls.size(), 1u);
  }
}

}  // namespace
}  // namespace dsv4
