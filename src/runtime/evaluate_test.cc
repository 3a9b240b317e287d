// evaluate_test.cc: answers judged to the byte, whatever runs beside them; what is refused.
#include "runtime/evaluate.h"

#include <gtest/gtest.h>

#include "runtime/engine_fixtures.h"

namespace dsv4 {
namespace {

// Thousands of tokens: too many for the reference backend.
EngineOptions fast_engine_options() {
  EngineOptions options = nano_engine_options();
  options.device = "cpu";
  return options;
}

Question user_question(std::string_view text, std::string answer, std::string_view more = "") {
  Question question;
  question.place = "q.jsonl:7";
  question.kind = "all";
  question.answer = std::move(answer);
  question.conversation = std::string(R"({"messages": [{"role": "user", "content": ")")
                              .append(text)
                              .append("\"}]")
                              .append(more)
                              .append("}");
  return question;
}

std::vector<Question> nano_questions(std::span<const std::string> kinds, std::int64_t limit) {
  return select_questions(parse_questions(read_nano_file("questions.jsonl"), "q"), kinds, limit);
}

std::vector<std::string> texts_of(const std::vector<QuestionResult>& results) {
  std::vector<std::string> texts;
  for (const QuestionResult& result : results) texts.push_back(result.text);
  return texts;
}

std::string message_of(Engine& engine, const Question& question) {
  try {
    evaluate(engine, {&question, 1}, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// The first mark ends the reasoning; a second is a part of the answer, and wrong.
TEST(Evaluate, ReasoningEndsAtTheFirstMark) {
  Question question = user_question("?", "75");
  question.thinking = true;
  const auto judged = [&](std::string text, FinishReason reason = FinishReason::kStop) {
    QuestionResult result;
    result.text = std::move(text);
    result.finish_reason = reason;
    judge(question, result);
    return std::pair(result.got, result.is_correct);
  };
  EXPECT_EQ(judged("so</think>75"), std::pair(std::string("75"), true));
  EXPECT_EQ(judged("so</think>no</think>75"), std::pair(std::string("no</think>75"), false));
  EXPECT_EQ(judged("75"), std::pair(std::string("75"), true));
  EXPECT_EQ(judged("so</think>75", FinishReason::kLength), std::pair(std::string("75"), false));
  question.thinking = false;
  EXPECT_EQ(judged("so</think>75"), std::pair(std::string("so</think>75"), false));
}

TEST(Evaluate, AnswersAreTheSameHoweverManyAreInFlight) {
  const std::vector<std::string> kinds = {"fact", "sum", "copy", "tool", "recall256"};
  const std::vector<Question> questions = nano_questions(kinds, 2);
  ASSERT_EQ(questions.size(), 10u);
  const auto engine = Engine::open(fast_engine_options());
  const auto one_by_one = evaluate(*engine, questions, {.parallel = 1});
  const auto all_at_once = evaluate(*engine, questions, {.parallel = 64});
  EXPECT_EQ(texts_of(one_by_one), texts_of(all_at_once));
  for (std::size_t i = 0; i < questions.size(); ++i) {
    EXPECT_EQ(one_by_one[i].is_correct, one_by_one[i].got == questions[i].answer);
    EXPECT_EQ(one_by_one[i].finish_reason, FinishReason::kStop);
    EXPECT_GT(one_by_one[i].usage.prompt_tokens, 0);
    EXPECT_GT(one_by_one[i].usage.completion_tokens, 0);
  }
  for (const KindScore& score : score_by_kind(questions, one_by_one)) {
    if (score.kind != "sum" && score.kind != "recall256") {
      EXPECT_EQ(score.correct, 2) << score.kind;
    }
  }
}

TEST(Evaluate, AnythingButTheAnswerIsWrong) {
  const auto engine = Engine::open(fast_engine_options());
  const std::string text = "Who founded Ostholm?";
  const std::string answer = evaluate(*engine, std::vector{user_question(text, "")}, {})[0].got;
  ASSERT_FALSE(answer.empty());
  const std::vector<Question> questions = {
      user_question(text, answer), user_question(text, answer + " "),
      user_question(text, answer + "\n"), user_question(text, answer.substr(0, answer.size() - 1)),
      user_question(text, "")};
  const auto results = evaluate(*engine, questions, {});
  std::vector<bool> correct;
  for (const QuestionResult& result : results) correct.push_back(result.is_correct);
  EXPECT_EQ(correct, (std::vector<bool>{true, false, false, false, false}));
}

TEST(Evaluate, AnAnswerThatWasCutIsWrong) {
  const auto engine = Engine::open(fast_engine_options());
  Question question = user_question("Who founded Ostholm?", "");
  const auto cut = evaluate(*engine, {&question, 1}, {.max_tokens = 2});
  question.answer = cut[0].got;
  const auto again = evaluate(*engine, {&question, 1}, {.max_tokens = 2});
  EXPECT_EQ(again[0].got, question.answer);
  EXPECT_EQ(again[0].finish_reason, FinishReason::kLength);
  EXPECT_FALSE(again[0].is_correct);
}

TEST(Evaluate, ReasoningIsNotPartOfTheAnswer) {
  const auto engine = Engine::open(fast_engine_options());
  Question question = user_question("What is 27 + 48?", "75", R"(, "thinking": true)");
  question.thinking = true;
  const QuestionResult result = evaluate(*engine, {&question, 1}, {})[0];
  EXPECT_NE(result.text, result.got);
  EXPECT_TRUE(result.text.ends_with("</think>" + result.got)) << result.text;
  EXPECT_EQ(result.got, "75");
  EXPECT_TRUE(result.is_correct);
}

TEST(Evaluate, AnswersGetTheRoomThatThePromptLeaves) {
  EngineOptions options = fast_engine_options();
  const Question question = user_question("Tell me a story about a fox.", "");
  std::int64_t prompt_tokens = 0;
  {
    const auto engine = Engine::open(options);
    prompt_tokens = std::ssize(engine->tokenize(engine->chat_prompt(question.conversation)));
  }
  for (const std::int64_t room : {-1, 0, 1, 2}) {
    SCOPED_TRACE(room);
    options.kv_tokens = prompt_tokens + room;
    options.max_sessions = 1;
    const auto engine = Engine::open(options);
    if (room <= 0) {
      const std::string message = message_of(*engine, question);
      EXPECT_TRUE(message.starts_with("q.jsonl:7: the prompt has ")) << message;
      continue;
    }
    const auto results = evaluate(*engine, {&question, 1}, {});
    EXPECT_EQ(results[0].usage.completion_tokens, room);
    EXPECT_EQ(results[0].finish_reason, FinishReason::kLength);
  }
}

TEST(Evaluate, RefusalsNameTheQuestion) {
  const auto engine = Engine::open(fast_engine_options());
  const std::string message =
      message_of(*engine, user_question("x", "", R"(, "thinking": true, "effort": "low")"));
  EXPECT_TRUE(message.starts_with("q.jsonl:7: ")) << message;
  const std::vector<Question> none;
  EXPECT_TRUE(evaluate(*engine, none, {}).empty());
  const auto evaluate_with = [&](const EvaluateOptions& options) {
    return error_of([&] { evaluate(*engine, none, options); });
  };
  EXPECT_EQ(evaluate_with({.parallel = 0}), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(evaluate_with({.max_tokens = 0}), name_of(ErrorCode::kBadRequest));
}

TEST(Evaluate, ProgressEndsAtAllAndMayGiveUp) {
  struct GivenUp {};
  const std::vector<std::string> kinds = {"fact"};
  const std::vector<Question> questions = nano_questions(kinds, 3);
  const auto engine = Engine::open(fast_engine_options());
  std::int64_t last_answered = 0, last_correct = 0;
  const auto results =
      evaluate(*engine, questions, {.progress = [&](std::int64_t answered, std::int64_t correct) {
        EXPECT_GE(answered, last_answered);
        last_answered = answered;
        last_correct = correct;
      }});
  EXPECT_EQ(last_answered, 3);
  EXPECT_EQ(last_correct, score_by_kind(questions, results)[0].correct);
  const EvaluateOptions giving_up = {
      .progress = [](std::int64_t, std::int64_t) { throw GivenUp{}; }};
  EXPECT_THROW(evaluate(*engine, questions, giving_up), GivenUp);
  wait_until_idle(*engine);
}

TEST(ScoreByKind, KindsInTheOrderOfTheirFirstQuestion) {
  std::vector<Question> questions(4);
  std::vector<QuestionResult> results(4);
  for (std::size_t i = 0; i < 4; ++i) questions[i].kind = i % 2 == 0 ? "z" : "a";
  results[2].is_correct = true;
  const auto scores = score_by_kind(questions, results);
  ASSERT_EQ(scores.size(), 2u);
  EXPECT_EQ(scores[0].kind, "z");
  EXPECT_EQ(scores[0].correct, 1);
  EXPECT_EQ(scores[0].total, 2);
  EXPECT_EQ(scores[1].kind, "a");
  EXPECT_EQ(scores[1].correct, 0);
  EXPECT_EQ(scores[1].total, 2);
}

TEST(SelectQuestions, KindsAndLimit) {
  std::vector<Question> questions(5);
  for (std::size_t i = 0; i < 5; ++i) {
    questions[i].kind = i < 3 ? "a" : "b";
    questions[i].line = static_cast<std::int64_t>(i);
  }
  const auto lines = [&](const std::vector<std::string>& kinds, std::int64_t limit) {
    std::vector<std::int64_t> result;
    for (const Question& q : select_questions(questions, kinds, limit)) result.push_back(q.line);
    return result;
  };
  EXPECT_EQ(lines({}, 99), (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(lines({}, 1), (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(lines({"b"}, 2), (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(lines({"b", "a"}, 2), (std::vector<std::int64_t>{0, 1, 3, 4}));
  try {
    lines({"a", "c"}, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no question is of kind \"c\"; there are a, b");
  }
}

}  // namespace
}  // namespace dsv4
