#include "quantize_measures.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "common_options.h"
#include "console.h"
#include "io/checksum.h"
#include "runtime/text_file.h"

namespace dsv4 {
namespace {

// A bar for each of the works that follow one another.
std::function<void(const EvaluationProgress&)> evaluation_bar() {
  struct Bar {
    std::string what;
    std::optional<ProgressBar> shown;
  };
  const auto bar = std::make_shared<Bar>();  // callbacks are copied
  return [bar](const EvaluationProgress& progress) {
    InterruptGuard::check();
    if (!bar->shown || bar->what != progress.what) {
      bar->what = progress.what;
      bar->shown.reset();  // removes its line before the next one is drawn
      bar->shown.emplace(bar->what, std::string(progress.unit));
    }
    bar->shown->update(progress.done, progress.total);
    if (progress.done == progress.total) bar->shown.reset();
  };
}

std::string describe_calibration_text(const std::string& text_file) {
  std::error_code error;  // what else is wrong, opening it says
  const std::filesystem::file_status status = std::filesystem::status(text_file, error);
  if (std::filesystem::is_fifo(status) || std::filesystem::is_character_file(status)) {
    return "a pipe";
  }
  const std::string checksum =
      checksum_of_file(text_file, [](std::int64_t) { InterruptGuard::check(); });
  const std::uintmax_t bytes = std::filesystem::file_size(text_file);
  require(bytes > 0, ErrorCode::kBadRequest,
          "the calibration text is empty: {}; give one that the model is to be used for",
          text_file);
  return fmt::format("a text of {} bytes, checksum {}", bytes, checksum);
}

InputScales calibrate_with_bar(const std::filesystem::path& dir, const std::string& text_file,
                               const std::string& device, int threads) {
  CalibrationOptions options;
  ModelOpenOptions open;
  open.model_dir = dir;
  open.device = device;
  open.num_threads = threads;
  open.model.activations = Activations::kA16;
  open.kv_tokens = options.window;
  open.load_progress = load_progress_bar();
  LoadedModel model(open);
  options.window = std::min(options.window, model.max_session_tokens());
  TextFileTokens text(model.tokenizer(), text_file);
  ProgressBar bar("calibrating", "bytes");
  std::int64_t given_tokens = 0;  // of the pieces read so far, a few of which are computed
  options.progress = [&](std::int64_t tokens) {
    InterruptGuard::check();
    const double computed = static_cast<double>(tokens) / static_cast<double>(given_tokens);
    const auto bytes = static_cast<std::int64_t>(computed * static_cast<double>(text.bytes_read()));
    // A pipe has no size, and a file may grow.
    bar.update(std::min(bytes, text.size_bytes()), text.size_bytes(),
               fmt::format("{} tokens", tokens));
  };
  const auto source = [&] {
    std::vector<TokenId> tokens = text.next();
    given_tokens += std::ssize(tokens);
    return tokens;
  };
  return make_input_scales(calibrate(model, source, options));
}

}  // namespace

void MeasureArguments::add_to(CLI::App& command) {
  command
      .add_option("--calibrate", calibrate,
                  "a text to run through IN first: the experts get input scales from what enters "
                  "them, which engines with static NVFP4 activations need")
      ->type_name("FILE")
      ->check(not_empty());
  command
      .add_option("--evaluate", questions,
                  "questions as for dsv4 eval: how many IN and OUT answer goes into the report")
      ->type_name("FILE")
      ->check(not_empty());
  command
      .add_option("--text", text, "a text: the perplexity of IN and OUT on it goes into the report")
      ->type_name("FILE")
      ->check(not_empty());
}

std::optional<CalibrationTask> calibration_task(const MeasureArguments& args,
                                                const std::filesystem::path& dir,
                                                const std::string& device, int threads) {
  if (!args.calibrate) return std::nullopt;
  static_cast<void>(load_tokenizer(dir));
  return CalibrationTask{describe_calibration_text(*args.calibrate),
                         [dir, text = *args.calibrate, device, threads] {
                           return calibrate_with_bar(dir, text, device, threads);
                         }};
}

std::optional<EvaluationOptions> read_evaluation(const MeasureArguments& args,
                                                 const std::string& device, int threads) {
  if (!args.questions && !args.text) return std::nullopt;
  EvaluationOptions options;
  if (args.questions) {
    const TextSource source{.text = {}, .file = args.questions};
    options.questions = parse_questions(source.read({}), source.name());
  }
  if (args.text) options.text = TextSource{.text = {}, .file = args.text}.read({});
  options.device = device;
  options.num_threads = threads;
  options.load_progress = load_progress_bar();
  options.progress = evaluation_bar();
  return options;
}

}  // namespace dsv4
