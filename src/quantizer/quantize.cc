#include "quantizer/quantize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "backends/backends.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "checkpoint/bind.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/model_dir.h"
#include "io/atomic_file.h"
#include "io/checksum.h"
#include "quantizer/journal.h"
#include "quantizer/memory_budget.h"
#include "quantizer/output_directory.h"
#include "quantizer/plan.h"
#include "quantizer/result_files.h"
#include "quantizer/shard_run.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Of headers, index, report and journal: for the check of free space only.
constexpr std::int64_t kOtherBytesPerTensor = 512;

std::string_view to_string(Nvfp4Layout layout) {
  return layout == Nvfp4Layout::kModelOpt ? "modelopt" : "compressed-tensors";
}

std::string_view to_string(E2m1Rounding rounding) {
  return rounding == E2m1Rounding::kNearestEven ? "nearest_even" : "half_step";
}

// As they are called on the command line, so that a message can name them.
RunOptions options_of(const QuantizeJob& job) {
  RunOptions options{{"--layout", std::string(to_string(job.layout))},
                     {"--modules", fmt::format("{}", fmt::join(job.modules, ","))},
                     {"--rounding", std::string(to_string(job.encoding.rounding))},
                     {"--four-over-six", job.encoding.four_over_six ? "on" : "off"},
                     {"--calibrate", job.calibration ? job.calibration->text : "none"}};
  if (job.calibration) options.emplace_back("--device", job.device);
  return options;
}

// Before they are measured, input scales are taken to be 1.
PlanOptions plan_options(const QuantizeJob& job, const InputScales* scales) {
  PlanOptions options{job.layout, job.modules, nullptr};
  if (!job.calibration) return options;
  options.calibrated_input_scale = [scales](const NamedMatrix& matrix) {
    if (scales == nullptr) return 1.0f;
    const ExpertInputScales& of_expert = scales->layers.at(static_cast<std::size_t>(matrix.layer))
                                             .at(static_cast<std::size_t>(matrix.expert));
    return matrix.kind == MatrixKind::kExpertDown ? of_expert.down : of_expert.gate_up;
  };
  return options;
}

const QuantizeJob& checked(const QuantizeJob& job) {
  OutputDirectory::check(job.in, job.out, job.resume);
  if (!job.plot.empty()) check_plot(job.in, job.out, job.plot);
  return job;
}

struct Source {
  std::shared_ptr<const TensorStore> store;
  ModelWeights weights;
};

// As load_checkpoint does, but in bounded memory.
Source open_source(const QuantizeJob& job) {
  const ModelConfig config = load_model_config(job.in);
  refuse_gguf_weights(job.in);
  Source source;
  source.store = std::make_shared<const TensorStore>(TensorStore::open(job.in, job.load_progress));
  // Binding reads the small parameters, and each maps up to 2 MiB of the weights around it. The
  // last call comes when all of them were read.
  const LoadProgressCallback progress = [&](const LoadProgress& so_far) {
    source.store->release_all();
    if (job.load_progress) job.load_progress(so_far);
  };
  try {
    source.weights = bind_weights(config, source.store, {true, progress});
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", job.in.string(), e.what());
  }
  return source;
}

class Run {
 public:
  explicit Run(const QuantizeJob& job)
      : job_(checked(job)),
        backend_(open_backend(job.device, job.num_threads)),
        pool_(job.num_threads),
        source_(open_source(job)),
        names_(*source_.store),
        plan_(make_plan(source_.weights, names_, plan_options(job, nullptr))),
        source_files_(describe_source(job.in, *source_.store)),
        journal_(options_of(job), source_files_),
        out_(job.in, job.out, job.resume),
        encoding_(job.encoding) {
    encoding_.stores_reciprocal = nvfp4_names(job.layout).is_reciprocal;
    require(backend_->uses_host_memory(), ErrorCode::kUnsupported,
            "quantisation runs on a backend of the host, not on {}; use cpu or reference",
            backend_->name());
    require_memory(min_memory_bytes(plan_, *source_.store), job.max_memory_bytes);
    budget_ = make_budget(plan_, *source_.store, job.max_memory_bytes);
    progress_.total = plan_.source_bytes();
    if (job.evaluation) check_evaluation(job.in, *job.evaluation);
    if (out_.journal()) out_.journal()->require_same(journal_);
    require_space(out_.journal() ? *out_.journal() : journal_);
  }

  QuantizeResult run() {
    measure_source();
    take_over();
    require_space(journal_);
    out_.require_there();
    journal_.write(out_.path());
    ShardRun shard_run(*backend_, pool_, plan_, *source_.store, encoding_, budget_);
    for (const PlannedShard& shard : plan_.shards) {
      if (journal_.find(shard.file_name) != nullptr) continue;
      const auto before_commit = [this] {
        require_unchanged();
        out_.require_there();
      };
      journal_.add(shard_run.make(
          shard, out_.path(), [this](std::int64_t bytes) { advance(bytes); }, before_commit));
      report_progress();
      journal_.write(out_.path());
    }
    return finish();
  }

 private:
  void report_progress() {
    if (job_.progress) job_.progress(progress_);
  }
  void advance(std::int64_t bytes) {
    progress_.done += bytes;
    report_progress();
  }

  // Of what `journal` does not have.
  void require_space(const Journal& journal) const {
    std::int64_t bytes = kOtherBytesPerTensor * std::ssize(source_.store->tensors()) +
                         small_file_bytes(job_.in, out_.path());
    for (const PlannedShard& shard : plan_.shards) {
      if (journal.find(shard.file_name) == nullptr) bytes += shard.output_bytes;
    }
    out_.require_space(bytes);
  }

  // What the journal of the run before does not have.
  void measure_source() {
    SourceMeasures measures;
    if (out_.journal()) measures = out_.journal()->measures();
    if (job_.calibration) {
      if (!measures.input_scales) measures.input_scales = job_.calibration->measure();
      plan_ = make_plan(source_.weights, names_, plan_options(job_, &*measures.input_scales));
    }
    if (job_.evaluation) {
      std::string key = evaluation_key(*job_.evaluation);
      if (key != measures.evaluation_key) {
        measures.evaluation = evaluate_model(job_.in, "source", *job_.evaluation);
        measures.evaluation_key = std::move(key);
      }
    }
    journal_.set_measures(std::move(measures));
  }

  // ---- resume

  // What the run before finished and what is still as it was then.
  void take_over() {
    report_progress();
    if (!out_.journal()) return;
    // A directory with a config.json is complete.
    std::error_code error;
    fs::remove(out_.path() / kConfigFileName, error);
    for (const PlannedShard& shard : plan_.shards) {
      const FinishedShard* finished = out_.journal()->find(shard.file_name);
      const std::int64_t before = progress_.done;
      if (finished != nullptr && is_whole(shard, *finished, out_.path())) {
        journal_.add(*finished);
        progress_.done = before + shard.source_bytes;
        progress_.resumed += shard.source_bytes;
      } else {
        // Damaged, or made right before the run ended: it is made again, in its own space.
        progress_.done = before;
        fs::remove(out_.path() / shard.file_name, error);
      }
    }
  }

  bool is_whole(const PlannedShard& shard, const FinishedShard& finished, const fs::path& out) {
    std::vector<std::string_view> encoded;
    for (const PlannedTensor& tensor : shard.tensors) {
      if (tensor.bytes != PlannedTensor::Bytes::kCodes) continue;
      encoded.push_back(plan_.matrices[static_cast<std::size_t>(tensor.matrix)].matrix.name);
    }
    const bool has_results = std::equal(
        encoded.begin(), encoded.end(), finished.matrices.begin(), finished.matrices.end(),
        [](std::string_view name, const MatrixResult& result) { return name == result.name; });
    const fs::path path = out / shard.file_name;
    std::error_code error;
    if (!has_results || fs::file_size(path, error) != static_cast<std::uintmax_t>(finished.bytes) ||
        error) {
      return false;
    }
    const std::int64_t before = progress_.done;
    const auto read = [&](std::int64_t bytes) {
      const double share = static_cast<double>(bytes) / static_cast<double>(finished.bytes);
      progress_.done =
          before + static_cast<std::int64_t>(share * static_cast<double>(shard.source_bytes));
      report_progress();
    };
    return checksum_of_file(path, read) == finished.checksum;
  }

  void require_unchanged() const {
    for (const SourceFile& file : source_files_) {
      require(stamp_of(job_.in / file.name) == file.stamp, ErrorCode::kBadCheckpoint,
              "{} was changed while it was read; begin again in an empty directory when the source "
              "is complete",
              (job_.in / file.name).string());
    }
  }

  // Shards may have gone while the others were made.
  void require_shards() const {
    for (const FinishedShard& shard : journal_.finished()) {
      std::error_code error;
      const std::uintmax_t bytes = fs::file_size(out_.path() / shard.file_name, error);
      require(!error && bytes == static_cast<std::uintmax_t>(shard.bytes), ErrorCode::kIo,
              "{} was removed or changed by someone else after it was written; --resume makes it "
              "again",
              (out_.path() / shard.file_name).string());
    }
  }

  // ---- the files beside the shards

  QuantizeResult finish() {
    const fs::path& out = out_.path();
    QuantizeResult result;
    result.report = make_report(plan_, journal_);
    result.notes = make_notes();
    result.source_bytes = source_.store->payload_bytes();
    for (const SourceFile& file : source_files_) {
      if (file.name.ends_with(".safetensors")) result.source_file_bytes += file.stamp.size_bytes;
    }
    for (const FinishedShard& shard : journal_.finished()) result.output_bytes += shard.bytes;
    result.resumed_bytes = progress_.resumed;
    result.made_bytes = progress_.total - progress_.resumed;
    std::error_code error;
    if (fs::exists(job_.in / kIndexFileName, error)) write_index(plan_, out);
    const std::vector<std::string> left_out = copy_small_files(job_.in, out);
    if (!left_out.empty()) {
      result.notes.push_back(fmt::format(
          "Not copied, being larger than {} MB or no files that can be read (directories, "
          "pipes, links to nothing): {}.",
          kMaxSmallFileBytes / 1'000'000, fmt::join(left_out, ", ")));
    }
    const fs::path config_path = job_.in / kConfigFileName;
    const Json config = quantized_config(Json::parse(read_text_file(config_path, kMaxConfigBytes)),
                                         plan_.formats, job_.layout);
    if (job_.layout == Nvfp4Layout::kModelOpt) {
      write_text_file(out / kHfQuantConfigFileName, hf_quant_config(config).dump(1) + "\n");
    }
    Json report = report_file_json(result.report, journal_, result.notes);
    write_text_file(out / kReportFileName, report.dump(1) + "\n");
    require_unchanged();
    require_shards();
    write_text_file(out / kConfigFileName, config.dump(1) + "\n");
    measure_result(result, std::move(report));
    out_.require_there();
    out_.remove_journal();
    return result;
  }

  std::vector<std::string> make_notes() const {
    std::vector<std::string> notes = plan_.notes;
    const auto& input_scales = journal_.measures().input_scales;
    for (std::string note : {input_scales ? describe(*input_scales) : std::string(),
                             reciprocals_note(plan_, journal_)}) {
      if (!note.empty()) notes.push_back(std::move(note));
    }
    return notes;
  }

  // The model is complete; the journal stays until its report is.
  void measure_result(QuantizeResult& result, Json report) const {
    if (!job_.plot.empty()) write_text_file(job_.plot, report_plot_svg(result.report));
    if (!job_.evaluation) return;
    result.evaluation = journal_.measures().evaluation;
    for (EvaluatedRun& run : evaluate_model(out_.path(), "result", *job_.evaluation)) {
      result.evaluation.push_back(std::move(run));
    }
    report["evaluation"] = evaluation_json(result.evaluation, *job_.evaluation);
    write_text_file(out_.path() / kReportFileName, report.dump(1) + "\n");
  }

  const QuantizeJob& job_;
  std::unique_ptr<Backend> backend_;
  ThreadPool pool_;
  Source source_;
  NamedTensors names_;
  QuantizePlan plan_;
  std::vector<SourceFile> source_files_;
  Journal journal_;
  OutputDirectory out_;
  EncodingOptions encoding_;
  MemoryBudget budget_;
  QuantizeProgress progress_;
};

}  // namespace

QuantizeResult quantize_checkpoint(const QuantizeJob& job) { return Run(job).run(); }

}  // namespace dsv4
