// eval_command.cc: dsv4 eval: how many questions a model answers exactly, by kind.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "runtime/evaluate.h"

namespace dsv4 {
namespace {

struct EvalArguments {
  ModelArguments model;
  TextSource questions;
  std::vector<std::string> kinds;
  std::int64_t limit = 0;  // 0: no limit
  std::int64_t max_tokens = 512;
  int parallel = 8;
  bool show_wrong = false, json = false;
};

struct Evaluation {
  std::vector<Question> questions;
  std::vector<QuestionResult> results;
  std::vector<KindScore> scores;
  KindScore total{.kind = "total"};
};

std::string score_line(const KindScore& score, std::size_t width) {
  return fmt::format("{:<{}} {:>6} of {:<6} {:>5.1f} %\n", printable(score.kind), width,
                     score.correct, score.total,
                     100.0 * static_cast<double>(score.correct) / static_cast<double>(score.total));
}

std::string table_text(const Evaluation& evaluation) {
  std::size_t width = 12;
  for (const KindScore& score : evaluation.scores) width = std::max(width, score.kind.size());
  std::string text;
  for (const KindScore& score : evaluation.scores) text += score_line(score, width);
  return text + score_line(evaluation.total, width);
}

std::string wrong_text(const Evaluation& evaluation) {
  std::string text;
  for (std::size_t i = 0; i < evaluation.questions.size(); ++i) {
    const Question& question = evaluation.questions[i];
    const QuestionResult& result = evaluation.results[i];
    if (result.is_correct) continue;
    const bool was_cut = result.finish_reason == FinishReason::kLength;
    text += fmt::format("\n{} {}\n  expected  {}\n  got       {}{}\n", printable(question.place),
                        printable(question.kind), printable(question.answer), printable(result.got),
                        was_cut ? " [cut at the length limit]" : "");
  }
  return text;
}

std::string json_text(const Evaluation& evaluation) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["correct"] = evaluation.total.correct;
  json["total"] = evaluation.total.total;
  json["kinds"] = Json::array();
  for (const KindScore& score : evaluation.scores) {
    json["kinds"].push_back(
        {{"kind", score.kind}, {"correct", score.correct}, {"total", score.total}});
  }
  json["questions"] = Json::array();
  for (std::size_t i = 0; i < evaluation.questions.size(); ++i) {
    const Question& question = evaluation.questions[i];
    const QuestionResult& result = evaluation.results[i];
    Json one = {{"line", question.line}};
    if (!question.id_json.empty()) one["id"] = Json::parse(question.id_json);
    one["kind"] = question.kind;
    one["expected"] = question.answer;
    one["got"] = result.got;
    one["correct"] = result.is_correct;
    one["finish_reason"] = to_string(result.finish_reason);
    one["prompt_tokens"] = result.usage.prompt_tokens;
    one["completion_tokens"] = result.usage.completion_tokens;
    json["questions"].push_back(std::move(one));
  }
  return json.dump() + "\n";
}

std::vector<Question> wanted_questions(const EvalArguments& args) {
  const std::int64_t limit = args.limit > 0 ? args.limit : std::numeric_limits<std::int64_t>::max();
  return select_questions(parse_questions(args.questions.read({}), args.questions.name()),
                          args.kinds, limit);
}

Evaluation ask(const EvalArguments& args, std::vector<Question> questions) {
  EngineOptions options = args.model.engine_options();
  options.max_sessions = args.parallel;
  options.max_waiting_requests = args.parallel;
  const std::unique_ptr<Engine> engine = Engine::open(options);
  print_precision_note(engine->info().precision_note);

  Evaluation evaluation{.questions = std::move(questions), .results = {}, .scores = {}};
  const std::int64_t count = std::ssize(evaluation.questions);
  ProgressBar bar("answering", "questions");
  evaluation.results =
      evaluate(*engine, evaluation.questions,
               {.parallel = args.parallel,
                .max_tokens = args.max_tokens,
                .progress = [&bar, count](std::int64_t answered, std::int64_t correct) {
                  InterruptGuard::check();
                  bar.update(answered, count, fmt::format("{} correct", correct));
                }});
  evaluation.scores = score_by_kind(evaluation.questions, evaluation.results);
  for (const KindScore& score : evaluation.scores) {
    evaluation.total.correct += score.correct;
    evaluation.total.total += score.total;
  }
  return evaluation;
}

void print_figures(const Evaluation& evaluation, double seconds) {
  std::int64_t prompt_tokens = 0, drawn_tokens = 0;
  for (const QuestionResult& result : evaluation.results) {
    prompt_tokens += result.usage.prompt_tokens;
    drawn_tokens += result.usage.completion_tokens;
  }
  write_stderr_line(fmt::format("{} questions, {} prompt tokens, {} tokens drawn, {:.1f} s",
                                evaluation.results.size(), prompt_tokens, drawn_tokens, seconds));
}

void run_eval(const EvalArguments& args) {
  std::vector<Question> questions = wanted_questions(args);
  const InterruptGuard guard;
  const auto begin = std::chrono::steady_clock::now();
  const Evaluation evaluation = ask(args, std::move(questions));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  if (args.json) {
    write_stdout(json_text(evaluation));
  } else {
    write_stdout(table_text(evaluation) + (args.show_wrong ? wrong_text(evaluation) : ""));
  }
  print_figures(evaluation, elapsed.count());
}

}  // namespace

void add_eval_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("eval", "count how many questions a model answers exactly");
  const auto args = std::make_shared<EvalArguments>();
  args->model.add_to(*command);
  command
      ->add_option("--questions", args->questions.file,
                   "JSON lines, one question each; -: standard input")
      ->type_name("FILE")
      ->required();
  command->add_option("--kind", args->kinds, "ask questions of this kind only; may be repeated")
      ->allow_extra_args(false)
      ->type_name("KIND");
  command->add_option("--limit", args->limit, "ask the first N questions of each kind")
      ->type_name("N")
      ->transform(whole_number(1, std::numeric_limits<std::int64_t>::max()));
  command->add_option("-n,--max-tokens", args->max_tokens, "cut an answer after so many tokens")
      ->transform(whole_number(1, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  command
      ->add_option("--parallel", args->parallel,
                   "questions that are computed side by side; changes the memory and the time, "
                   "never the answers")
      ->transform(whole_number(1, 256))
      ->capture_default_str();
  command->add_flag("--show-wrong", args->show_wrong,
                    "list each wrong answer with the expected one");
  command->add_flag("--json", args->json, "one JSON object, with every answer");
  command->footer(
      "A line of FILE is a JSON object: messages as in OpenAI's API, answer (the exact text), and\n"
      "optionally kind, id, tools, thinking, effort. The model always takes the likeliest token\n"
      "until it ends its answer, which must be the expected text byte for byte; with thinking,\n"
      "what follows </think> must be. An answer that is cut is wrong. Prints correct and asked\n"
      "questions of each kind and of all. Progress and figures go to stderr.\n"
      "Examples:\n"
      "  dsv4 eval models/nano --questions models/nano/questions.jsonl --activations a16\n"
      "  dsv4 eval models/nano --questions models/nano/questions.jsonl --limit 2 --show-wrong\n"
      "  dsv4 eval models/nano --questions mine.jsonl --kind sum --json | jq .kinds");
  command->callback([args] { run_eval(*args); });
}

}  // namespace dsv4
