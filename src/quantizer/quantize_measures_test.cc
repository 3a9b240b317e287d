// quantize_measures_test.cc: calibration and evaluation take minutes: what is refused is refused
// before them, and a run that was killed after them has their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "quantizer/journal.h"
#include "quantizer/output_directory.h"
#include "quantizer/quantize_fixtures.h"

namespace dsv4 {
namespace {

using testing::ElementsAre;

struct Stopped {};

// nano with both, a plot, and the works of the evaluation as they end.
class Measures : public testing::Test {
 protected:
  Measures() {
    const auto weights = load_checkpoint(in_);
    for (const LayerWeights& layer : weights->layers) {
      scales_.layers.emplace_back(static_cast<std::size_t>(layer.num_experts),
                                  ExpertInputScales{0.1f, 0.3f});
    }
    scales_.calibration_tokens = 99;
    scales_.filled = {{.layer = 2, .expert = 3, .is_down = true, .tokens = 4}};
  }

  QuantizeJob measured_job(const std::filesystem::path& out) {
    QuantizeJob job = quantize_job(in_, out);
    job.calibration = CalibrationTask{"a text", [this] {
                                        ++calibrations_;
                                        return scales_;
                                      }};
    EvaluationOptions& evaluation = job.evaluation.emplace();
    evaluation.text = get_file(in_ / "held_out.txt").substr(0, 300);
    evaluation.window = 32;
    evaluation.num_threads = 1;
    evaluation.progress = [this](const EvaluationProgress& progress) {
      if (progress.what == stop_in_) throw Stopped();
      if (progress.done == progress.total) ended_.emplace_back(progress.what);
    };
    job.plot = dir_ / (out.filename().string() + ".svg");
    return job;
  }
  // Without a disturbance.
  std::filesystem::path whole() {
    quantize_checkpoint(measured_job(dir_ / "whole"));
    ended_.clear();
    calibrations_ = 0;
    return dir_ / "whole";
  }

  TempDir dir_;
  std::filesystem::path in_ = nano_dir(), out_ = dir_ / "out";
  InputScales scales_;
  int calibrations_ = 0;
  std::string stop_in_;
  std::vector<std::string> ended_;
};

TEST_F(Measures, SourceComesFirstResultLast) {
  const QuantizeResult result = quantize_checkpoint(measured_job(out_));
  EXPECT_EQ(calibrations_, 1);
  EXPECT_THAT(ended_, ElementsAre("scoring, source a16", "scoring, result a16",
                                  "scoring, result a4 static"));
  EXPECT_EQ(result.evaluation.size(), 3u);
  const auto report = nlohmann::json::parse(get_file(out_ / kReportFileName));
  EXPECT_EQ(report["evaluation"]["runs"].size(), 3u);
  EXPECT_EQ(report["evaluation"]["window"], 32);
  EXPECT_EQ(report["options"]["calibrate"], "a text");
  EXPECT_EQ(report["options"]["device"], "cpu");
  EXPECT_FALSE(std::filesystem::exists(out_ / kJournalFileName));
  EXPECT_NE(get_file(dir_ / "out.svg").find("</svg>"), std::string::npos);
}

TEST_F(Measures, StoppedInTheEvaluationAfterwardsGoesOnThere) {
  const auto want = whole();
  for (const char* work : {"scoring, result a16", "scoring, result a4 static"}) {
    stop_in_ = work;
    QuantizeJob job = measured_job(out_);
    EXPECT_THROW(quantize_checkpoint(job), Stopped);
    // A model that can be used already; its report lacks what was not measured.
    EXPECT_TRUE(std::filesystem::exists(out_ / kConfigFileName));
    EXPECT_TRUE(std::filesystem::exists(out_ / kJournalFileName));
    stop_in_.clear();
    expect_error(ErrorCode::kBadRequest, {"not finished", "--resume"},
                 [&] { quantize_checkpoint(job); });
    ended_.clear();
    calibrations_ = 0;
    job.resume = true;
    std::filesystem::remove(job.plot);
    const auto time = std::filesystem::last_write_time(out_ / "model.safetensors");
    quantize_checkpoint(job);
    EXPECT_EQ(calibrations_, 0);
    EXPECT_EQ(std::filesystem::last_write_time(out_ / "model.safetensors"), time);
    EXPECT_THAT(ended_, ElementsAre("scoring, result a16", "scoring, result a4 static"));
    expect_same_files(out_, want);
    EXPECT_EQ(get_file(job.plot), get_file(dir_ / "whole.svg"));
    std::filesystem::remove_all(out_);
  }
}

TEST_F(Measures, StoppedInTheConversionKeepsWhatWasMeasured) {
  const auto want = whole();
  QuantizeJob job = measured_job(out_);
  job.progress = [](const QuantizeProgress& progress) {
    if (progress.done > progress.total / 2) throw Stopped();
  };
  EXPECT_THROW(quantize_checkpoint(job), Stopped);
  ended_.clear();
  job = measured_job(out_);
  job.resume = true;
  quantize_checkpoint(job);
  EXPECT_EQ(calibrations_, 1);
  EXPECT_THAT(ended_, ElementsAre("scoring, result a16", "scoring, result a4 static"));
  expect_same_files(out_, want);
}

TEST_F(Measures, StoppedBeforeTheConversionLeavesNothing) {
  stop_in_ = "scoring, source a16";
  EXPECT_THROW(quantize_checkpoint(measured_job(out_)), Stopped);
  EXPECT_FALSE(std::filesystem::exists(out_));
}

// Figures of one text never stand beside those of another.
TEST_F(Measures, AnotherEvaluationMeasuresTheSourceAgain) {
  stop_in_ = "scoring, result a16";
  EXPECT_THROW(quantize_checkpoint(measured_job(out_)), Stopped);
  stop_in_.clear();
  ended_.clear();
  QuantizeJob job = measured_job(out_);
  job.resume = true;
  job.evaluation->text = get_file(in_ / "held_out.txt").substr(300, 300);
  quantize_checkpoint(job);
  EXPECT_EQ(calibrations_, 1);
  EXPECT_THAT(ended_, ElementsAre("scoring, source a16", "scoring, result a16",
                                  "scoring, result a4 static"));
}

TEST_F(Measures, AnotherCalibrationOrItsDeviceIsNamed) {
  stop_in_ = "scoring, result a16";
  EXPECT_THROW(quantize_checkpoint(measured_job(out_)), Stopped);
  const auto refuse = [&](const std::vector<std::string>& parts, auto&& change) {
    QuantizeJob job = measured_job(out_);
    job.resume = true;
    change(job);
    ended_.clear();
    calibrations_ = 0;
    expect_error(ErrorCode::kBadRequest, parts, [&] { quantize_checkpoint(job); });
    EXPECT_EQ(calibrations_, 0);
    EXPECT_THAT(ended_, ElementsAre());
  };
  refuse({"--calibrate \"a text\"", "\"another\""},
         [](QuantizeJob& job) { job.calibration->text = "another"; });
  refuse({"--calibrate \"a text\"", "\"none\""}, [](QuantizeJob& job) { job.calibration.reset(); });
  refuse({"--device \"cpu\"", "\"reference\""}, [](QuantizeJob& job) { job.device = "reference"; });
}

// The figures of the source never go astray in the journal.
TEST_F(Measures, TheJournalKeepsEveryBit) {
  SourceMeasures measures;
  measures.input_scales = scales_;
  measures.input_scales->layers[2][3] = {1e-40f, 3e38f};
  measures.evaluation_key = "key";
  measures.evaluation = {{.model = "source", .activations = "a16", .perplexity = 1.0 / 3},
                         {.model = "source",
                          .activations = "a4",
                          .has_static_scales = true,
                          .answers = {{.kind = "sum", .correct = 2, .total = 3}}}};
  const std::string text = to_json(measures).dump();
  const SourceMeasures back = source_measures_from_json(nlohmann::json::parse(text));
  EXPECT_EQ(to_json(back).dump(), text);
  EXPECT_EQ(back.input_scales->layers[2][3].gate_up, 1e-40f);
  EXPECT_EQ(back.input_scales->layers[2][3].down, 3e38f);
  EXPECT_EQ(back.input_scales->filled, scales_.filled);
  EXPECT_EQ(back.evaluation[0].perplexity, 1.0 / 3);
  EXPECT_TRUE(back.evaluation[1].has_static_scales);
  EXPECT_EQ(to_json(source_measures_from_json(nlohmann::json::object())).dump(), "{}");
}

TEST_F(Measures, TheKeyIsOfTheWholeEvaluation) {
  EvaluationOptions options;
  options.text = "ab";
  options.questions = {{.conversation = "c"}, {.conversation = "d"}};
  const std::string key = evaluation_key(options);
  const auto differs = [&](auto&& change) {
    EvaluationOptions other = options;
    change(other);
    EXPECT_NE(evaluation_key(other), key);
  };
  differs([](EvaluationOptions& other) { other.text = "ac"; });
  differs([](EvaluationOptions& other) { other.text.reset(); });
  differs([](EvaluationOptions& other) { other.window = 512; });
  differs([](EvaluationOptions& other) { other.device = "reference"; });
  differs([](EvaluationOptions& other) { other.questions.pop_back(); });
  differs([](EvaluationOptions& other) { other.questions = {{.conversation = "cd"}}; });
  EvaluationOptions same = options;
  same.num_threads = 7;
  EXPECT_EQ(evaluation_key(same), key);
}

// They take minutes; nothing that is known before may show after them.
TEST_F(Measures, WhatIsRefusedIsRefusedBeforeThem) {
  stop_in_ = "scoring, source a16";  // would throw something else
  const auto refuse = [&](const std::vector<std::string>& parts, ErrorCode code, auto&& change) {
    QuantizeJob job = measured_job(out_);
    change(job);
    expect_error(code, parts, [&] { quantize_checkpoint(job); });
    EXPECT_EQ(calibrations_, 0) << parts[0];
  };
  const ErrorCode bad = ErrorCode::kBadRequest;
  refuse({"fits no matrix"}, bad, [](QuantizeJob& job) { job.modules = {"layers.99.*"}; });
  refuse({"no routed expert"}, bad, [](QuantizeJob& job) { job.modules = {"attention"}; });
  refuse({"max-memory"}, bad, [](QuantizeJob& job) { job.max_memory_bytes = 1 << 20; });
  refuse({"fewer than one window"}, bad, [](QuantizeJob& job) { job.evaluation->text = ""; });
  refuse({"fewer than one window"}, bad, [](QuantizeJob& job) { job.evaluation->window = 1000; });
  refuse({"must end in .svg"}, bad, [&](QuantizeJob& job) { job.plot = dir_ / "plot.png"; });
  refuse({"no directory"}, ErrorCode::kNotFound,
         [&](QuantizeJob& job) { job.plot = dir_ / "no/plot.svg"; });
  refuse({"lies in the source"}, bad, [&](QuantizeJob& job) { job.plot = in_ / "plot.svg"; });
  std::filesystem::create_directory(dir_ / "folder.svg");
  refuse({"is a directory"}, bad, [&](QuantizeJob& job) { job.plot = dir_ / "folder.svg"; });
  EXPECT_FALSE(std::filesystem::exists(out_));
  put_file(dir_ / "file", "x");
  refuse({"cannot create"}, ErrorCode::kIo, [&](QuantizeJob& job) { job.out = dir_ / "file/out"; });
  std::filesystem::create_directory(out_);
  if (::geteuid() != 0) {
    namespace fs = std::filesystem;
    const auto read_only = fs::perms::owner_read | fs::perms::owner_exec;
    fs::create_directory(dir_ / "plots");
    for (const auto& path : {out_, dir_ / "plots"}) fs::permissions(path, read_only);
    refuse({"Permission denied"}, ErrorCode::kIo, [](QuantizeJob&) {});
    refuse({"Permission denied"}, ErrorCode::kIo, [&](QuantizeJob& job) {
      job.out = dir_ / "other";
      job.plot = dir_ / "plots/plot.svg";
    });
    for (const auto& path : {out_, dir_ / "plots"}) fs::permissions(path, fs::perms::owner_all);
  }
  put_file(out_ / kJournalFileName, "damaged");
  refuse({"not finished"}, bad, [](QuantizeJob&) {});
  refuse({"damaged"}, bad, [](QuantizeJob& job) { job.resume = true; });
}

}  // namespace
}  // namespace dsv4
