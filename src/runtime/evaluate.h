// evaluate.h: asks an engine questions and compares the answers exactly. Reading them is
// question_file.h's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dsv4/engine.h"
#include "runtime/question_file.h"

namespace dsv4 {

struct EvaluateOptions {
  int parallel = 8;               // questions in flight, at least 1; changes no answer
  std::int64_t max_tokens = 512;  // of an answer, at least 1
  // After each answer, and several times a second in between. May throw: then the questions in
  // flight are cancelled.
  std::function<void(std::int64_t answered, std::int64_t correct)> progress = nullptr;
};

struct QuestionResult {
  std::string text;  // up to the end token
  std::string got;   // the part that was compared: with thinking, what follows the first </think>
  bool is_correct = false;
  FinishReason finish_reason = FinishReason::kLength;
  Usage usage;
};

// Each question's prompt is Engine::chat_prompt of it, the answer drawn greedily. It is correct if
// it is, byte for byte, the expected one and the model ended it itself. Results come in the order
// of the questions and do not depend on `parallel`. An answer gets at most the tokens that a
// session has room for. All prompts are built before the first is computed.
// Throws Error beginning with the question's place: kBadRequest (a prompt that is refused or too
// long), and the code of an ErrorEvent.
std::vector<QuestionResult> evaluate(Engine& engine, std::span<const Question> questions,
                                     const EvaluateOptions& options);

// Fills in `got` and `is_correct` from the rest of `result`.
void judge(const Question& question, QuestionResult& result);

struct KindScore {
  std::string kind;
  std::int64_t correct = 0, total = 0;
};

// In the order in which the kinds first appear. `results` are those of `questions`.
std::vector<KindScore> score_by_kind(std::span<const Question> questions,
                                     std::span<const QuestionResult> results);

// The first `limit` of each kind, of the kinds in `kinds` (empty: of all), in their order.
// Throws Error kBadRequest naming a kind that no question has, with those there are.
std::vector<Question> select_questions(std::vector<Question> questions,
                                       std::span<const std::string> kinds, std::int64_t limit);

}  // namespace dsv4
