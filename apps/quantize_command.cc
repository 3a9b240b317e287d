// quantize_command.cc: dsv4 quantize: a checkpoint to NVFP4, and what it cost.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/json_fields.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "io/atomic_file.h"
#include "quantize_measures.h"
#include "quantizer/journal.h"
#include "quantizer/output_directory.h"
#include "quantizer/quantize.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;

struct QuantizeArguments {
  std::string in, out, layout = "modelopt", rounding = "nearest_even", plot, device = "cpu";
  std::vector<std::string> modules{"experts"};
  std::string max_memory = "4GiB";
  int threads = 0;
  bool four_over_six = false, resume = false, json = false;
  MeasureArguments measures;
};

// "2GiB", "512MiB", "3GB", "1000000": bytes; empty for anything else.
std::optional<std::int64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    std::int64_t bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},
                             {"MiB", std::int64_t{1} << 20},
                             {"GiB", std::int64_t{1} << 30},
                             {"MB", 1'000'000},
                             {"GB", 1'000'000'000}};
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number <= 0) return std::nullopt;
  const std::string_view name = text.substr(static_cast<std::size_t>(stop - text.data()));
  for (const Unit& unit : kUnits) {
    if (unit.name != name) continue;
    if (number > std::numeric_limits<std::int64_t>::max() / unit.bytes) return std::nullopt;
    return number * unit.bytes;
  }
  return std::nullopt;
}

CLI::Validator host_device() {
  const auto refusal = [](const std::string& text) -> std::string {
    if (text == "cpu" || text == "reference") return {};
    return fmt::format(
        "\"{}\" cannot be used: quantize computes on the host, with cpu or reference", text);
  };
  return {refusal, ""};
}

CLI::Validator byte_count() {
  const auto refusal = [](const std::string& text) -> std::string {
    if (parse_bytes(text)) return {};
    return fmt::format("\"{}\" is no number of bytes above 0, such as 4GiB, 512MiB or 3GB", text);
  };
  return {refusal, ""};
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::min(seconds, 1e9)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string rate_text(std::int64_t bytes, double seconds) {
  return format_bytes(static_cast<std::int64_t>(static_cast<double>(bytes) / seconds)) + "/s";
}

// How long shards were made and verified, without what is measured before and after.
struct ConversionTime {
  std::optional<Clock::time_point> begin, end;

  double seconds() const {
    return begin ? std::chrono::duration<double>(*end - *begin).count() : 0;
  }
};

// The bar, with the rate so far and the time left. What a run before has done costs other time than
// what is encoded now, so each of the two has its own clock.
std::function<void(const QuantizeProgress&)> progress_bar(ConversionTime& time) {
  struct Bar {
    std::optional<ProgressBar> bar;
    bool has_ended = false;
    std::optional<Clock::time_point> begin;
    std::int64_t resumed = 0;
  };
  const auto shown = std::make_shared<Bar>();
  return [shown, &time](const QuantizeProgress& progress) {
    InterruptGuard::check();
    time.end = Clock::now();
    if (!time.begin) time.begin = time.end;
    if (!shown->begin || shown->resumed != progress.resumed) {
      shown->begin = time.end;
      shown->resumed = progress.resumed;
    }
    if (shown->has_ended) return;
    const double seconds = std::chrono::duration<double>(*time.end - *shown->begin).count();
    const std::int64_t made = progress.done - progress.resumed;
    std::string note;
    if (made > 0 && *time.end - *shown->begin > kQuietTime) {
      const double left =
          seconds * static_cast<double>(progress.total - progress.done) / static_cast<double>(made);
      note = fmt::format("{}, {} left", rate_text(made, seconds), duration_text(left));
    }
    constexpr std::int64_t kMb = 1'000'000;
    if (!shown->bar) shown->bar.emplace("quantising", "MB", *time.begin + kQuietTime);
    shown->bar->update(progress.done / kMb, std::max<std::int64_t>(progress.total / kMb, 1), note);
    shown->has_ended = progress.done == progress.total;
    if (shown->has_ended) shown->bar.reset();  // the bars of the evaluation follow
  };
}

// Reads what the options name, so that mistakes show before anything is computed.
QuantizeJob make_job(const QuantizeArguments& args) {
  QuantizeJob job;
  job.in = args.in;
  job.out = args.out;
  job.layout = args.layout == "modelopt" ? Nvfp4Layout::kModelOpt : Nvfp4Layout::kCompressedTensors;
  job.modules = args.modules;
  job.encoding.rounding =
      args.rounding == "nearest_even" ? E2m1Rounding::kNearestEven : E2m1Rounding::kHalfStep;
  job.encoding.four_over_six = args.four_over_six;
  job.max_memory_bytes = parse_bytes(args.max_memory).value();
  job.device = args.device;
  job.num_threads = args.threads;
  job.resume = args.resume;
  job.plot = args.plot;
  job.calibration = calibration_task(args.measures, job.in, args.device, args.threads);
  job.evaluation = read_evaluation(args.measures, args.device, args.threads);
  job.load_progress = load_progress_bar();
  return job;
}

QuantizeResult quantize(const QuantizeJob& job) {
  try {
    return quantize_checkpoint(job);
  } catch (const Interrupted&) {
    std::error_code error;
    if (std::filesystem::exists(job.out / kJournalFileName, error)) {
      write_stderr_line(
          "note: what is done so far stays; go on with the same options and --resume");
    }
    throw;
  }
}

// The shards' bytes before and after. A rate is of a run that made them all: to verify what another
// run made takes other time.
std::string figures(const QuantizeResult& result, double seconds) {
  std::string text = fmt::format("{} to {} in {:.1f} s", format_bytes(result.source_file_bytes),
                                 format_bytes(result.output_bytes), seconds);
  if (result.resumed_bytes > 0) {
    text += fmt::format("; {} were left to do", format_bytes(result.made_bytes));
  } else if (seconds > 0) {
    text += ", " + rate_text(result.source_bytes, seconds);
  }
  return text;
}

void run_quantize(const QuantizeArguments& args) {
  const InterruptGuard guard;
  QuantizeJob job = make_job(args);
  ConversionTime time;
  job.progress = progress_bar(time);
  const QuantizeResult result = quantize(job);
  if (args.json) {
    const std::string report = read_text_file(job.out / kReportFileName, kMaxConfigBytes);
    write_stdout(nlohmann::ordered_json::parse(report).dump() + "\n");
  } else {
    write_stdout(report_table(result.report));
    for (const std::string& note : result.notes) write_stdout("note: " + printable(note) + "\n");
    if (job.evaluation) write_stdout("\n" + evaluation_table(result.evaluation));
  }
  write_stderr_line(figures(result, time.seconds()));
}

}  // namespace

void add_quantize_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("quantize", "make an NVFP4 checkpoint, and say what it cost");
  const auto args = std::make_shared<QuantizeArguments>();
  command->add_option("IN", args->in, "directory of the model, in any format")
      ->type_name("DIR")
      ->required();
  command->add_option("OUT", args->out, "directory for the result, new or empty")
      ->type_name("DIR")
      ->required();
  command
      ->add_option("--layout", args->layout, "names and files: NVIDIA's or those of llm-compressor")
      ->check(CLI::IsMember({"modelopt", "compressed-tensors"}))
      ->capture_default_str();
  command
      ->add_option(
          "--modules", args->modules,
          "what to quantise, with commas between: experts, attention, shared_experts, head, "
          "all, or names in which * stands for any text")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--rounding", args->rounding, "how values become E2M1 codes")
      ->check(CLI::IsMember({"nearest_even", "half_step"}))
      ->capture_default_str();
  command->add_flag("--four-over-six", args->four_over_six,
                    "give each quant block the better of two scales, by its squared error");
  command
      ->add_option(
          "--max-memory", args->max_memory,
          "resident memory that it may use, with MiB, GiB, MB or GB; a number alone is bytes")
      ->type_name("BYTES")
      ->check(byte_count())
      ->capture_default_str();
  command->add_option("--threads", args->threads, "threads to compute with; 0: all cores")
      ->transform(whole_number(0, kMaxThreads))
      ->capture_default_str();
  command
      ->add_option("--device", args->device,
                   "where to compute: on the host, by cpu or reference; only what --calibrate "
                   "measures can differ")
      ->check(host_device())
      ->type_name("{cpu,reference}")
      ->capture_default_str();
  command->add_flag("--resume", args->resume, "go on with a run that was stopped");
  command->add_option("--plot", args->plot, "draw the errors by layer into this file, NAME.svg")
      ->type_name("FILE")
      ->check(not_empty());
  args->measures.add_to(*command);
  command->add_flag("--json", args->json, "the report as one JSON object");
  command->footer(
      "Sources are BF16, FP8, MXFP4 and NVFP4 checkpoints. MXFP4 becomes NVFP4 without loss where\n"
      "the exponents allow, which the report says. The rest of the model is copied as it is,\n"
      "draft blocks too. OUT gets shards, index, config.json, tokenizer and\n"
      "quantization_report.json.\n"
      "Examples:\n"
      "  dsv4 quantize models/nano nano-nvfp4\n"
      "  dsv4 quantize models/nano nano-a4 --calibrate models/nano/held_out.txt\n"
      "  dsv4 quantize models/nano nano-all --modules all --four-over-six --plot nano-all.svg\n"
      "  dsv4 quantize DeepSeek-V4-Flash flash-nvfp4 --max-memory 2GiB --resume");
  command->callback([args] { run_quantize(*args); });
}

}  // namespace dsv4
