#include "common_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>

#include "backends/backends.h"
#include "base/error.h"
#include "console.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

Activations activations_of(const std::string& name) {
  if (name == "a16") return Activations::kA16;
  if (name == "a8") return Activations::kA8;
  if (name == "a4") return Activations::kA4;
  return Activations::kAuto;
}

KvFormat kv_format_of(const std::string& name) {
  if (name == "bf16") return KvFormat::kBf16;
  if (name == "f32") return KvFormat::kF32;
  return KvFormat::kFp8;
}

// Closes a descriptor that it opened.
class InputFile {
 public:
  explicit InputFile(int descriptor) : descriptor_(descriptor) {}
  ~InputFile() {
    if (descriptor_ > STDERR_FILENO) ::close(descriptor_);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// Everything up to the end; `name` stands in messages.
std::string read_all(int descriptor, const std::string& name) {
  std::string text;
  std::string part(std::size_t{1} << 16, '\0');
  for (;;) {
    const ssize_t count = ::read(descriptor, part.data(), part.size());
    if (count < 0 && errno == EINTR) {
      InterruptGuard::check();
      continue;
    }
    require(count >= 0, ErrorCode::kIo, "cannot read {}: {}", name, std::strerror(errno));
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
    require(text.size() <= kMaxTextBytes, ErrorCode::kBadRequest,
            "{} is longer than {} bytes, the most that is taken; give a shorter text", name,
            kMaxTextBytes);
  }
}

std::string read_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "cannot open {}: {}", path,
         std::strerror(error));
  }
  const InputFile file(descriptor);
  return read_all(file.get(), path);
}

}  // namespace

void ModelArguments::add_model_dir(CLI::App& command) {
  command
      .add_option("MODEL", model_dir, "directory of the model (config.json, *.safetensors, ...)")
      ->type_name("DIR")
      ->required();
}

void ModelArguments::add_to(CLI::App& command) {
  add_model_dir(command);
  std::string devices;
  for (const std::string& name : built_backends()) {
    devices += (devices.empty() ? "" : ",") + name;
  }
  command
      .add_option("--device", device,
                  "where to compute: reference, cpu, cuda or cuda:N, as dsv4 devices lists them")
      ->check(device_name())
      ->type_name("{" + devices + "}")
      ->capture_default_str();
  command.add_option("--threads", threads, "threads to compute with; 0: all cores that it may use")
      ->transform(whole_number(0, kMaxThreads))
      ->capture_default_str();
  command
      .add_option("--activations", activations,
                  "how activations enter quantised matrices: a16 unrounded, a8 FP8, a4 NVFP4 into "
                  "NVFP4 experts, auto a8 where it is exact for the weights")
      ->check(CLI::IsMember({"auto", "a16", "a8", "a4"}))
      ->capture_default_str();
  command
      .add_option("--rows", rows,
                  "simulated: cache rows rounded as in training, as the released models expect; "
                  "exact: kept as computed")
      ->check(CLI::IsMember({"simulated", "exact"}))
      ->capture_default_str();
  command
      .add_option(
          "--kv", kv,
          "format of cache rows; default fp8, with exact rows f32 (fp8 is then not possible)")
      ->check(CLI::IsMember({"fp8", "bf16", "f32"}));
}

ModelOptions ModelArguments::model_options() const {
  ModelOptions options;
  options.activations = activations_of(activations);
  options.simulate_rows = rows != "exact";
  if (!options.simulate_rows && kv == "fp8") {
    throw CLI::ValidationError("--kv", "fp8 cannot hold exact rows; use f32 or bf16");
  }
  options.kv = kv.empty() && !options.simulate_rows ? KvFormat::kF32 : kv_format_of(kv);
  return options;
}

ModelOpenOptions ModelArguments::open_options() const {
  ModelOpenOptions options;
  options.model_dir = model_dir;
  options.device = device;
  options.num_threads = threads;
  options.model = model_options();
  options.load_progress = load_progress_bar();
  return options;
}

EngineOptions ModelArguments::engine_options() const {
  model_options();  // throws what it must
  EngineOptions options;
  options.model_dir = model_dir;
  options.device = device;
  options.num_threads = threads;
  options.activations = activations;
  options.rows = rows;
  options.kv = kv;
  options.load_progress = load_progress_bar();
  return options;
}

LoadProgressCallback load_progress_bar() {
  using Clock = std::chrono::steady_clock;
  struct Bar {
    std::optional<Clock::time_point> begin;
    LoadProgress::Stage stage = LoadProgress::Stage::kFiles;
    std::optional<ProgressBar> shown;
  };
  const auto bar = std::make_shared<Bar>();  // callbacks are copied
  return [bar](const LoadProgress& progress) {
    InterruptGuard::check();
    if (!bar->begin) bar->begin = Clock::now();
    const bool opens_files = progress.stage == LoadProgress::Stage::kFiles;
    if (!bar->shown || bar->stage != progress.stage) {
      bar->stage = progress.stage;
      bar->shown.emplace(opens_files ? "opening the model" : "loading the model",
                         opens_files ? "files" : "tensors", *bar->begin + kQuietTime);
    }
    bar->shown->update(progress.done, progress.total);
    if (progress.done < progress.total) return;
    bar->shown.reset();
    if (!opens_files) bar->begin.reset();  // the next model has its own half second
  };
}

void print_precision_note(std::string_view note) {
  if (!note.empty()) write_stderr_line("note: " + printable(note));
}

CLI::Validator whole_number(std::uint64_t low, std::uint64_t high) {
  const auto refusal = [low, high](std::string& text) -> std::string {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < low || value > high) {
      return fmt::format("\"{}\" is no whole number from {} to {}", text, low, high);
    }
    text = std::to_string(value);  // without leading zeros
    return {};
  };
  return {refusal, ""};
}

CLI::Validator real_number() {
  const auto refusal = [](const std::string& text) -> std::string {
    float value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end) return {};
    return fmt::format("\"{}\" is no number such as 0.7", text);
  };
  return {refusal, ""};
}

CLI::Validator device_name() {
  const auto refusal = [](const std::string& text) -> std::string {
    if (names_device(text)) return {};
    return fmt::format(
        "\"{}\" names no device; there are reference, cpu, cuda and cuda:N, and 'dsv4 devices' "
        "says which can be used here",
        text);
  };
  return {refusal, ""};
}

CLI::Validator not_empty() {
  const auto refusal = [](const std::string& text) -> std::string {
    return text.empty() ? "the name is empty; name a file, or leave the option out" : "";
  };
  return {refusal, ""};
}

void add_temperature_and_top_p(CLI::App& command, std::optional<float>& temperature,
                               std::optional<float>& top_p) {
  command
      .add_option("--temperature", temperature,
                  "0: always the likeliest token; default: the model's generation_config.json")
      ->check(real_number());
  command
      .add_option("--top-p", top_p,
                  "draw from the likeliest tokens that have this share; default: the model's")
      ->check(real_number());
}

void check_sampling(const SamplingRow& row) {
  try {
    check(row);
  } catch (const Error& error) {
    throw CLI::ValidationError("sampling", error.what());
  }
}

std::uint64_t random_seed() { return std::random_device()(); }

std::string valid_text(const std::string& text, std::string_view what) {
  if (valid_utf8_prefix(text) == text.size()) return text;
  write_stderr_line(
      fmt::format("note: {} is not valid UTF-8; invalid bytes are read as U+FFFD", what));
  std::string valid;
  append_final_utf8(text, valid);
  return valid;
}

std::string TextSource::read(std::string_view usage) const {
  if (text) return *text;
  if (file && *file != "-") return read_file(*file);
  if (!file && stdin_is_terminal()) throw CLI::ValidationError("input", std::string(usage));
  return read_all(STDIN_FILENO, name());
}

std::string TextSource::name() const {
  if (text) return "the text";
  return file && *file != "-" ? *file : "standard input";
}

}  // namespace dsv4
