// question_file_test.cc: what a line must hold, and the refusal that names it.
#include "runtime/question_file.h"

#include <gtest/gtest.h>

#include <map>

#include "runtime/nano_model.h"

namespace dsv4 {
namespace {

constexpr std::string_view kMessages = R"("messages": [{"role": "user", "content": "q"}])";

std::string line(std::string_view fields) {
  return std::string("{").append(kMessages).append(fields).append("}");
}

std::string refusal_of(std::string_view text) {
  try {
    parse_questions(text, "q.jsonl");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    return error.what();
  }
  return "no error";
}

TEST(QuestionFile, EveryField) {
  const std::string first =
      line(R"(, "answer": "a\n", "kind": "sum", "id": "x", "thinking": true, "mask": 1)");
  const std::string second = line(R"(, "answer": "", "id": 12345678901234567890, "kind": null)");
  const auto questions = parse_questions("\n" + first + "\r\n  \n" + second, "q.jsonl");
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].place, "q.jsonl:2");
  EXPECT_EQ(questions[0].line, 2);
  EXPECT_EQ(questions[0].id_json, R"("x")");
  EXPECT_EQ(questions[0].kind, "sum");
  EXPECT_EQ(questions[0].answer, "a\n");
  EXPECT_TRUE(questions[0].thinking);
  EXPECT_EQ(questions[0].conversation, first + "\r");
  EXPECT_EQ(questions[1].line, 4);
  EXPECT_EQ(questions[1].id_json, "12345678901234567890");
  EXPECT_EQ(questions[1].kind, "all");
  EXPECT_EQ(questions[1].answer, "");
  EXPECT_FALSE(questions[1].thinking);
}

TEST(QuestionFile, IntegersOf64BitsAndAnEmptyContextAreTaken) {
  for (const std::string id : {"0", "7", "-9223372036854775808", "18446744073709551615"}) {
    const std::string text = line(R"(, "answer": "a", "context": [], "id": )" + id);
    EXPECT_EQ(parse_questions(text, "q.jsonl")[0].id_json, id);
  }
}

TEST(QuestionFile, OfTheBundledModel) {
  std::map<std::string, int> by_kind;
  for (const Question& question : parse_questions(read_nano_file("questions.jsonl"), "q")) {
    ++by_kind[question.kind];
  }
  const std::map<std::string, int> want = {
      {"copy", 20},      {"fact", 20},       {"list", 20}, {"recall1024", 20},
      {"recall256", 20}, {"recall3072", 20}, {"sum", 20},  {"tool", 20}};
  EXPECT_EQ(by_kind, want);
}

TEST(QuestionFile, RefusalsNameFileLineAndField) {
  const std::string good = line(R"(, "answer": "a")") + "\n";
  const auto expect_refused = [&good](std::string_view bad, std::string_view want) {
    const std::string message = refusal_of(good + "\n" + std::string(bad) + "\n" + good);
    EXPECT_TRUE(message.starts_with("q.jsonl:3: ")) << message;
    EXPECT_NE(message.find(want), std::string::npos) << message;
    EXPECT_NE(message.find("correct the line"), std::string::npos) << message;
  };
  expect_refused("{", "not valid JSON");
  expect_refused(good.substr(0, good.size() / 2), "not valid JSON");
  expect_refused("{\"a\": \"\xFF\"}", "not valid JSON");
  expect_refused("[]", "must be an object");
  expect_refused(R"({"answer": "a"})", "messages");
  expect_refused(R"({"messages": [], "answer": "a"})", "messages");
  expect_refused(R"({"messages": [{"role": "cook"}], "answer": "a"})", "role");
  expect_refused(line(""), "answer is missing");
  expect_refused(line(R"(, "answer": null)"), "answer is missing");
  expect_refused(line(R"(, "answer": 8)"), "answer must be a string");
  expect_refused(line(R"(, "answer": "a", "kind": 1)"), "kind must be a string");
  expect_refused(line(R"(, "answer": "a", "id": 1.5)"), "id must be");
  expect_refused(line(R"(, "answer": "a", "id": 18446744073709551616)"), "64 bits");
  expect_refused(line(R"(, "answer": "a", "id": -9223372036854775809)"), "64 bits");
  expect_refused(line(R"(, "answer": "a", "context": [{"role": "user", "content": "c"}])"),
                 "context cannot be taken up");
  expect_refused(line(R"(, "answer": "a", "thinking": "yes")"), "thinking");
  expect_refused(line(R"(, "answer": "a", "answer": "b")"), R"(the key "answer" stands twice)");
  expect_refused(line(R"(, "answer": "a", "answer": "a")"), R"(the key "answer" stands twice)");
  expect_refused(R"({"messages": [{"role": "user", "role": "user"}], "answer": "a"})",
                 R"(the key "role" stands twice)");
  expect_refused(good.substr(0, good.size() - 1) + good, "not valid JSON");  // two on one line
}

TEST(QuestionFile, WithoutAQuestionIsRefused) {
  for (const char* text : {"", "\n", " \r\n\t\n"}) {
    EXPECT_TRUE(refusal_of(text).starts_with("q.jsonl: there is no question")) << refusal_of(text);
  }
}

}  // namespace
}  // namespace dsv4
