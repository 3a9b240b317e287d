// evaluation_test.cc: figures of a model are those that its commands give, and nobody can mistake
// one run's for another's.
#include "quantizer/evaluation.h"

#include <gtest/gtest.h>

#include <fstream>

#include "runtime/nano_model.h"
#include "runtime/perplexity.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

EvaluatedRun made_up(std::string model, std::string activations, std::int64_t correct) {
  return {.model = std::move(model),
          .activations = std::move(activations),
          .has_static_scales = true,
          .answers = {{.kind = "sum", .correct = correct, .total = 10},
                      {.kind = "list", .correct = 2, .total = 3}},
          .perplexity = 1.5};
}

TEST(Evaluation, TableHasAColumnARun) {
  EXPECT_EQ(evaluation_table(std::vector<EvaluatedRun>{made_up("source", "a16", 10),
                                                       made_up("result", "a4", 7)}),
            "              source a16  result a4 static\n"
            "sum             10 of 10           7 of 10\n"
            "list              2 of 3            2 of 3\n"
            "total           12 of 13           9 of 13\n"
            "perplexity        1.5000            1.5000\n");
  EXPECT_EQ(evaluation_table({}), "");
}

TEST(Evaluation, WhatWasNotAskedIsNotShown) {
  EvaluatedRun run = made_up("source", "a16", 10);
  run.answers.clear();
  EXPECT_EQ(evaluation_table(std::vector<EvaluatedRun>{run}),
            "              source a16\nperplexity        1.5000\n");
  EXPECT_EQ(to_json(std::vector<EvaluatedRun>{run}).dump(),
            R"([{"model":"source","activations":"a16","perplexity":1.5}])");
  run = made_up("source", "a16", 10);
  run.perplexity.reset();
  EXPECT_EQ(evaluation_table(std::vector<EvaluatedRun>{run}),
            "              source a16\nsum             10 of 10\nlist              2 of 3\n"
            "total           12 of 13\n");
}

TEST(Evaluation, JsonHasEveryKindAndTheirSum) {
  EXPECT_EQ(
      to_json(std::vector<EvaluatedRun>{made_up("result", "a4", 7)}).dump(),
      R"([{"model":"result","activations":"a4","scales":"static","perplexity":1.5,"correct":9,)"
      R"("total":13,"kinds":[{"kind":"sum","correct":7,"total":10},)"
      R"({"kind":"list","correct":2,"total":3}]}])");
}

TEST(Evaluation, TheReportHasTheWindowOfPerplexityOnly) {
  EvaluationOptions options;
  const std::vector<EvaluatedRun> runs{made_up("result", "a4", 7)};
  EXPECT_EQ(evaluation_json(runs, options).dump(), R"({"runs":)" + to_json(runs).dump() + "}");
  options.text = "x";
  EXPECT_EQ(evaluation_json(runs, options).dump(),
            R"({"window":1024,"runs":)" + to_json(runs).dump() + "}");
}

TEST(Evaluation, KindsCannotWriteToTheTerminal) {
  EvaluatedRun run = made_up("source", "a16", 10);
  run.answers[0].kind = "\x1b[2J";
  EXPECT_EQ(evaluation_table(std::vector<EvaluatedRun>{run}).find('\x1b'), std::string::npos);
}

TEST(Evaluation, FiguresAreThoseOfTheModel) {
  EvaluationOptions options;
  options.text = read_nano_file("held_out.txt").substr(0, 700);
  options.window = 64;
  const std::vector<std::string> kinds = {"fact", "copy"};
  options.questions =
      select_questions(parse_questions(read_nano_file("questions.jsonl"), "q"), kinds, 2);
  std::vector<std::string> what;
  options.progress = [&](const EvaluationProgress& progress) {
    EXPECT_LE(progress.done, progress.total);
    if (progress.done == progress.total) what.emplace_back(progress.what);
  };
  const std::vector<EvaluatedRun> runs = evaluate_model(nano_dir(), "source", options);
  ASSERT_EQ(runs.size(), 1u);  // its experts are MXFP4: there is no a4
  EXPECT_EQ(runs[0].activations, "a16");
  EXPECT_EQ(what, (std::vector<std::string>{"scoring, source a16", "answering, source a16"}));

  LoadedModel model(nano_options());
  EXPECT_EQ(runs[0].perplexity,
            measure_perplexity(model, model.tokenizer().encode(*options.text), {.window = 64})
                .perplexity);
  ASSERT_EQ(runs[0].answers.size(), 2u);
  EXPECT_EQ(runs[0].answers[0].kind, "fact");
  // All facts and copies are answered (docs/cli.md).
  for (const KindScore& score : runs[0].answers) {
    EXPECT_EQ(score.correct, 2);
    EXPECT_EQ(score.total, 2);
  }
}

TEST(Evaluation, ATextShorterThanAWindowIsRefused) {
  EvaluationOptions options;
  options.text = "short";
  EXPECT_EQ(error_of([&] { evaluate_model(nano_dir(), "source", options); }),
            name_of(ErrorCode::kBadRequest));
}

// Before anything is computed, and no text that would do.
TEST(Evaluation, TheCheckRefusesWhatMeasuringWould) {
  LoadedModel model(nano_options());
  EvaluationOptions options;
  options.window = 8;
  const std::vector<TokenId> tokens =
      model.tokenizer().encode(read_nano_file("held_out.txt").substr(0, 100));
  ASSERT_GT(tokens.size(), 8u);
  options.text = model.tokenizer().decode({tokens.begin(), tokens.begin() + 8});
  ASSERT_EQ(model.tokenizer().encode(*options.text).size(), 8u);
  check_evaluation(nano_dir(), options);
  options.window = 9;
  EXPECT_EQ(error_of([&] { check_evaluation(nano_dir(), options); }),
            name_of(ErrorCode::kBadRequest));
  options.text = "";
  EXPECT_EQ(error_of([&] { check_evaluation(nano_dir(), options); }),
            name_of(ErrorCode::kBadRequest));
  options.text.reset();
  check_evaluation(nano_dir(), options);
  const TestFolder folder;
  EXPECT_EQ(error_of([&] { check_evaluation(folder.path(), options); }),
            name_of(ErrorCode::kNotFound));
}

}  // namespace
}  // namespace dsv4
