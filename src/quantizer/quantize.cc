#include "quantizer/quantize.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>
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
#include "quantizer/shard_run.h"
#include "quantizer/stored_scale.h"

namespace dsv4 {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Of the files beside the shards, headers among them: for the check of free space only.
constexpr std::int64_t kOtherBytesPerTensor = 512;

std::string_view to_string(Nvfp4Layout layout) {
  return layout == Nvfp4Layout::kModelOpt ? "modelopt" : "compressed-tensors";
}

std::string_view to_string(E2m1Rounding rounding) {
  return rounding == E2m1Rounding::kNearestEven ? "nearest_even" : "half_step";
}

// The scales of a calibration by their checksum: another text gives others.
std::string calibration_name(const QuantizeJob& job) {
  if (!job.input_scales) return "none";
  Checksum checksum;
  for (const std::vector<ExpertInputScales>& layer : job.input_scales->layers) {
    checksum.update(std::as_bytes(std::span(layer)));
  }
  return checksum.hex();
}

// As they are called on the command line, so that a message can name them.
RunOptions options_of(const QuantizeJob& job) {
  return {{"--layout", std::string(to_string(job.layout))},
          {"--modules", fmt::format("{}", fmt::join(job.modules, ","))},
          {"--rounding", std::string(to_string(job.encoding.rounding))},
          {"--four-over-six", job.encoding.four_over_six ? "on" : "off"},
          {"--calibrate", calibration_name(job)}};
}

PlanOptions plan_options(const QuantizeJob& job) {
  PlanOptions options{job.layout, job.modules, nullptr};
  if (!job.input_scales) return options;
  options.calibrated_input_scale = [&scales = *job.input_scales](const NamedMatrix& matrix) {
    const ExpertInputScales& of_expert = scales.layers.at(static_cast<std::size_t>(matrix.layer))
                                             .at(static_cast<std::size_t>(matrix.expert));
    return matrix.kind == MatrixKind::kExpertDown ? of_expert.down : of_expert.gate_up;
  };
  return options;
}

struct Source {
  std::shared_ptr<const TensorStore> store;
  ModelWeights weights;
};

// As load_checkpoint does, but with a look at the memory first.
Source open_source(const QuantizeJob& job) {
  const ModelConfig config = load_model_config(job.in);
  refuse_gguf_weights(job.in);
  Source source;
  source.store = std::make_shared<const TensorStore>(TensorStore::open(job.in, job.load_progress));
  require_memory(min_binding_bytes(*source.store), job.max_memory_bytes);
  // Binding reads the small parameters, and each maps up to 2 MiB of the weights around it.
  const LoadProgressCallback progress = [&](const LoadProgress& so_far) {
    source.store->release_all();
    if (job.load_progress) job.load_progress(so_far);
  };
  try {
    source.weights = bind_weights(config, source.store, {true, progress});
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", job.in.string(), e.what());
  }
  source.store->release_all();
  return source;
}

class Run {
 public:
  explicit Run(const QuantizeJob& job)
      : job_(job),
        backend_(open_backend(job.device, job.num_threads)),
        pool_(job.num_threads),
        source_(open_source(job)),
        names_(*source_.store),
        plan_(make_plan(source_.weights, names_, plan_options(job))),
        source_files_(describe_source(job.in, *source_.store)),
        journal_(options_of(job), source_files_),
        encoding_(job.encoding) {
    encoding_.stores_reciprocal = nvfp4_names(job.layout).is_reciprocal;
    require(backend_->uses_host_memory(), ErrorCode::kUnsupported,
            "quantisation runs on a backend of the host, not on {}; use cpu or reference",
            backend_->name());
    require_memory(min_memory_bytes(plan_, *source_.store), job.max_memory_bytes);
    budget_ = make_budget(plan_, *source_.store, job.max_memory_bytes);
    progress_.total = plan_.source_bytes();
  }

  QuantizeResult run() {
    const OutputDirectory out(job_.in, job_.out, job_.resume);
    take_over(out);
    journal_.write(out.path());
    out.require_space(missing_bytes() +
                      kOtherBytesPerTensor * std::ssize(source_.store->tensors()));
    ShardRun shard_run(*backend_, pool_, plan_, *source_.store, encoding_, budget_);
    for (const PlannedShard& shard : plan_.shards) {
      if (journal_.find(shard.file_name) != nullptr) continue;
      journal_.add(shard_run.make(
          shard, out.path(), [this](std::int64_t bytes) { advance(bytes); },
          [this] { require_unchanged(); }));
      report_progress();
      journal_.write(out.path());
    }
    return finish(out);
  }

 private:
  void report_progress() {
    if (job_.progress) job_.progress(progress_);
  }
  void advance(std::int64_t bytes) {
    progress_.done += bytes;
    report_progress();
  }

  // ---- resume

  // What the run before finished and what is still as it was then.
  void take_over(const OutputDirectory& out) {
    report_progress();
    if (!out.journal()) return;
    out.journal()->require_same(journal_);
    // A directory with a config.json is complete.
    std::error_code error;
    fs::remove(out.path() / kConfigFileName, error);
    for (const PlannedShard& shard : plan_.shards) {
      const FinishedShard* finished = out.journal()->find(shard.file_name);
      const std::int64_t before = progress_.done;
      if (finished != nullptr && is_whole(shard, *finished, out.path())) {
        journal_.add(*finished);
        progress_.done = before + shard.source_bytes;
        progress_.resumed += shard.source_bytes;
      } else {
        // Damaged, or made right before the run ended: it is made again, in its own space.
        progress_.done = before;
        fs::remove(out.path() / shard.file_name, error);
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

  std::int64_t missing_bytes() const {
    std::int64_t bytes = 0;
    for (const PlannedShard& shard : plan_.shards) {
      if (journal_.find(shard.file_name) == nullptr) bytes += shard.output_bytes;
    }
    return bytes;
  }

  void require_unchanged() const {
    for (const SourceFile& file : source_files_) {
      require(stamp_of(job_.in / file.name) == file.stamp, ErrorCode::kBadCheckpoint,
              "{} was changed while it was read; begin again in an empty directory when the source "
              "is complete",
              (job_.in / file.name).string());
    }
  }

  // ---- the files beside the shards

  QuantizeResult finish(const OutputDirectory& out) {
    QuantizeResult result;
    result.report = make_report();
    result.notes = plan_.notes;
    if (job_.input_scales && !job_.input_scales->filled.empty()) {
      result.notes.push_back(describe(*job_.input_scales));
    }
    note_reciprocals(result.notes);
    std::error_code error;
    if (fs::exists(job_.in / kIndexFileName, error)) write_index(out.path());
    const std::vector<std::string> left_out = copy_small_files(job_.in, out.path());
    if (!left_out.empty()) {
      result.notes.push_back(fmt::format("Not copied, being directories or large files: {}.",
                                         fmt::join(left_out, ", ")));
    }
    const fs::path config_path = job_.in / kConfigFileName;
    const Json config = quantized_config(Json::parse(read_text_file(config_path, kMaxConfigBytes)),
                                         plan_.formats, job_.layout);
    if (job_.layout == Nvfp4Layout::kModelOpt) {
      write_text_file(out.path() / kHfQuantConfigFileName, hf_quant_config(config).dump(1) + "\n");
    }
    write_text_file(out.path() / kReportFileName, report_json(result).dump(1) + "\n");
    require_unchanged();
    write_text_file(out.path() / kConfigFileName, config.dump(1) + "\n");
    out.remove_journal();
    result.source_bytes = source_.store->payload_bytes();
    for (const FinishedShard& shard : journal_.finished()) result.output_bytes += shard.bytes;
    result.resumed_bytes = progress_.resumed;
    return result;
  }

  // In the order of list_matrices, whichever shards were made by which run.
  QuantizationReport make_report() const {
    std::unordered_map<std::string_view, const ErrorTally*> tallies;
    for (const FinishedShard& shard : journal_.finished()) {
      for (const MatrixResult& matrix : shard.matrices) tallies[matrix.name] = &matrix.tally;
    }
    QuantizationReport report;
    for (const PlannedMatrix& planned : plan_.matrices) {
      report.add(planned.matrix, *tallies.at(planned.matrix.name));
    }
    return report;
  }

  void note_reciprocals(std::vector<std::string>& notes) const {
    if (job_.layout != Nvfp4Layout::kCompressedTensors) return;
    std::int64_t inexact = 0;
    for (const FinishedShard& shard : journal_.finished()) {
      for (const MatrixResult& matrix : shard.matrices) {
        const float stored = stored_scale(matrix.global_scale, job_.layout, matrix.name);
        inexact += 1.0f / stored != matrix.global_scale;
      }
    }
    if (inexact == 0) return;
    notes.push_back(
        fmt::format("The global scales of {} matrices have no exact reciprocal, which is what this "
                    "layout stores: their values decode with a relative difference of up to 6e-8.",
                    inexact));
  }

  void write_index(const fs::path& out) const {
    nlohmann::json map = nlohmann::json::object();
    for (const PlannedShard& shard : plan_.shards) {
      for (const PlannedTensor& tensor : shard.tensors) {
        map[tensor.declaration.name] = shard.file_name;
      }
    }
    Json index;
    index["metadata"]["total_size"] = plan_.output_bytes();
    std::string text = index.dump();
    text.pop_back();
    write_text_file(out / kIndexFileName, text + ",\"weight_map\":" + map.dump(1) + "}\n");
  }

  Json report_json(const QuantizeResult& result) const {
    Json json = to_json(result.report);
    for (const auto& [name, value] : options_of(job_)) json["options"][name.substr(2)] = value;
    std::vector<FinishedShard> shards = journal_.finished();
    std::sort(shards.begin(), shards.end(), [](const FinishedShard& a, const FinishedShard& b) {
      return a.file_name < b.file_name;
    });
    json["files"] = Json::array();
    for (const FinishedShard& shard : shards) {
      json["files"].push_back(
          {{"name", shard.file_name}, {"bytes", shard.bytes}, {"xxh3_128", shard.checksum}});
    }
    if (job_.input_scales) json["calibration"] = to_json(*job_.input_scales);
    json["notes"] = result.notes;
    return json;
  }

  const QuantizeJob& job_;
  std::unique_ptr<Backend> backend_;
  ThreadPool pool_;
  Source source_;
  NamedTensors names_;
  QuantizePlan plan_;
  std::vector<SourceFile> source_files_;
  Journal journal_;
  EncodingOptions encoding_;
  MemoryBudget budget_;
  QuantizeProgress progress_;
};

}  // namespace

QuantizeResult quantize_checkpoint(const QuantizeJob& job) {
  OutputDirectory::check(job.in, job.out, job.resume);
  return Run(job).run();
}

}  // namespace dsv4
