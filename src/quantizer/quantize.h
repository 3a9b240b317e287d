// quantize.h: a checkpoint of any format to NVFP4, shard by shard in bounded memory, so that a
// killed run can go on. Which bytes a matrix becomes is group_encoder.h; what the files hold
// plan.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_names.h"
#include "dsv4/types.h"
#include "quantizer/evaluation.h"
#include "quantizer/group_encoder.h"
#include "quantizer/input_scales.h"
#include "quantizer/report.h"

namespace dsv4 {

struct QuantizeProgress {
  std::int64_t done = 0, total = 0;  // bytes of the source
  std::int64_t resumed = 0;          // of done: in shards of the run before, which were verified
};

// Input scales of the experts by a text that runs through the source on the job's device.
struct CalibrationTask {
  std::string text;  // what tells it from another text: "a text of 9000 bytes, checksum 1f..."
  std::function<InputScales()> measure;
};

struct QuantizeJob {
  std::filesystem::path in;   // a model's directory
  std::filesystem::path out;  // new or empty; with `resume`, of a run that was stopped
  Nvfp4Layout layout = Nvfp4Layout::kModelOpt;
  std::vector<std::string> modules{"experts"};  // module_choice.h
  EncodingOptions encoding;                     // stores_reciprocal follows from the layout
  std::optional<CalibrationTask> calibration;   // none: the input scales that `in` has
  std::optional<EvaluationOptions> evaluation;  // of `in` before and of `out` after; none: none
  std::filesystem::path plot;                   // NAME.svg, of the report; empty: none
  std::int64_t max_memory_bytes = std::int64_t{4} << 30;  // resident; see min_memory_bytes
  std::string device = "cpu";  // a backend that uses host memory (backends.h)
  int num_threads = 0;         // 0: all cores of the affinity mask
  bool resume = false;
  LoadProgressCallback load_progress;
  // Called in the calling thread, every few MB. What it throws ends the run, which can be resumed.
  std::function<void(const QuantizeProgress&)> progress;
};

struct QuantizeResult {
  QuantizationReport report;
  std::vector<EvaluatedRun> evaluation;  // of the source, then of the result
  std::vector<std::string> notes;        // sentences: what a user should know
  std::int64_t source_bytes = 0;         // of the source's tensors
  std::int64_t source_file_bytes = 0;    // of the source's shards
  std::int64_t output_bytes = 0;         // of the output's shards
  std::int64_t resumed_bytes = 0;        // QuantizeProgress::resumed
  std::int64_t made_bytes = 0;           // the rest of QuantizeProgress::total
};

// Writes the quantised checkpoint into `out`: the shards under the source's names, the index,
// hf_quant_config.json in ModelOpt's layout, tokenizer and other small files, the report, and
// config.json after them, so that a directory with a config.json is a complete model. Then the plot
// is drawn and the result evaluated, which completes the report. The bytes depend on the source,
// layout, modules, encoding and input scales only, not on threads, memory, the number of times that
// the run was stopped, or the device (but for what a calibration measures there).
//
// Everything that can be refused is refused before calibration and evaluation begin; they come
// before anything is written. A journal (.dsv4-quantize.json) stands in `out` from the first shard
// until all is done, and holds what was measured of the source. With `resume` that is not measured
// again, a shard that is finished is kept if size and checksum are right, and made again if not,
// and what else is missing follows. Nothing half written ever has a final name.
//
// Throws Error. kBadRequest: modules (module_choice.h), memory below the minimum, a plot that would
// take a model's place, a text that is too short, an output directory that is the source, in it or
// around it, in use, not empty, or of a run with other options or another source. kBadCheckpoint,
// kUnsupported, kNotFound: as load_checkpoint and GroupEncoder; the source changed under the run; a
// weight that is copied is NaN or infinite; an NVFP4 matrix that is not chosen has a negative block
// scale. kUnsupportedDevice. kIo: disk full (shards so far stay, and the run can be resumed) or
// read-only; `out` was removed or changed under the run. And what calibration and evaluate_model
// throw.
// Traps: truncating a file of the source under the run raises SIGBUS (mapped_file.h).
QuantizeResult quantize_checkpoint(const QuantizeJob& job);

}  // namespace dsv4
