#include "runtime/evaluate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "text/chat_marks.h"

namespace dsv4 {
namespace {

// While nothing happens; progress is called at this pace.
constexpr std::chrono::milliseconds kPatience{20};

// Calls it; errors begin with the question's place.
template <class Call>
auto with_place(const Question& question, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", question.place, error.what());
  }
}

Request make_request(const Engine& engine, const Question& question, std::int64_t max_tokens) {
  Request request;
  std::vector<TokenId> prompt = engine.tokenize(engine.chat_prompt(question.conversation));
  const std::int64_t room = engine.info().max_session_tokens - std::ssize(prompt);
  require(room >= 1, ErrorCode::kBadRequest,
          "the prompt has {} tokens and a session of this model holds {}, so none is left for an "
          "answer; shorten the conversation",
          prompt.size(), engine.info().max_session_tokens);
  request.prompt = std::move(prompt);
  request.max_tokens = std::min(max_tokens, room);
  request.sampling.temperature = 0;
  return request;
}

// A question that the engine is answering.
struct InFlight {
  std::size_t question_idx;
  RequestHandle handle;
};

// Takes the events that are there; true if the answer is complete.
bool take_events(InFlight& asked, const Question& question, QuestionResult& result) {
  while (asked.handle.wait_for(std::chrono::milliseconds(0))) {
    const std::optional<Event> event = asked.handle.next();
    if (!event) return true;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      result.text += token->text;
    } else if (const auto* finish = std::get_if<FinishEvent>(&*event)) {
      result.text += finish->text;
      result.finish_reason = finish->reason;
      result.usage = finish->usage;
    } else {
      const auto& error = std::get<ErrorEvent>(*event);
      fail(error.code, "{}: {}", question.place, error.message);
    }
  }
  return false;
}

}  // namespace

void judge(const Question& question, QuestionResult& result) {
  result.got = result.text;
  if (question.thinking) {
    const std::size_t mark = result.text.find(kEndThinkMark);
    if (mark != std::string::npos) result.got.erase(0, mark + kEndThinkMark.size());
  }
  result.is_correct = result.finish_reason == FinishReason::kStop && result.got == question.answer;
}

std::vector<QuestionResult> evaluate(Engine& engine, std::span<const Question> questions,
                                     const EvaluateOptions& options) {
  require(options.parallel >= 1 && options.max_tokens >= 1, ErrorCode::kBadRequest,
          "parallel is {} and max_tokens {}; both must be at least 1", options.parallel,
          options.max_tokens);
  std::vector<Request> requests;
  for (const Question& question : questions) {
    requests.push_back(
        with_place(question, [&] { return make_request(engine, question, options.max_tokens); }));
  }

  std::vector<QuestionResult> results(questions.size());
  std::list<InFlight> in_flight;
  std::size_t num_asked = 0;
  std::int64_t answered = 0, correct = 0;
  while (num_asked < questions.size() || !in_flight.empty()) {
    while (num_asked < questions.size() && std::ssize(in_flight) < options.parallel) {
      in_flight.push_back({num_asked, with_place(questions[num_asked], [&] {
                             return engine.submit(requests[num_asked]);
                           })});
      ++num_asked;
    }
    const std::int64_t answered_before = answered;
    for (auto asked = in_flight.begin(); asked != in_flight.end();) {
      const Question& question = questions[asked->question_idx];
      QuestionResult& result = results[asked->question_idx];
      if (!take_events(*asked, question, result)) {
        ++asked;
        continue;
      }
      judge(question, result);
      ++answered;
      correct += result.is_correct ? 1 : 0;
      asked = in_flight.erase(asked);
    }
    if (options.progress) options.progress(answered, correct);
    if (answered == answered_before) in_flight.front().handle.wait_for(kPatience);
  }
  return results;
}

std::vector<KindScore> score_by_kind(std::span<const Question> questions,
                                     std::span<const QuestionResult> results) {
  DSV4_CHECK(questions.size() == results.size());
  std::vector<KindScore> scores;
  std::unordered_map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const auto [place, is_new] = places.emplace(questions[i].kind, scores.size());
    if (is_new) scores.push_back({.kind = questions[i].kind});
    KindScore& score = scores[place->second];
    ++score.total;
    score.correct += results[i].is_correct ? 1 : 0;
  }
  return scores;
}

std::vector<Question> select_questions(std::vector<Question> questions,
                                       std::span<const std::string> kinds, std::int64_t limit) {
  std::unordered_map<std::string, std::int64_t> counts;  // of all kinds
  std::vector<std::string> known;
  std::vector<Question> selected;
  for (Question& question : questions) {
    const std::int64_t count = ++counts[question.kind];
    if (count == 1) known.push_back(question.kind);
    const bool is_wanted =
        kinds.empty() || std::find(kinds.begin(), kinds.end(), question.kind) != kinds.end();
    if (is_wanted && count <= limit) selected.push_back(std::move(question));
  }
  for (const std::string& kind : kinds) {
    require(counts.contains(kind), ErrorCode::kBadRequest,
            "no question is of kind \"{}\"; there are {}", kind, fmt::join(known, ", "));
  }
  return selected;
}

}  // namespace dsv4
