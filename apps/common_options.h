// common_options.h: options that several subcommands share: how to open a model, and where a text
// comes from.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/engine.h"
#include "ops/sampling.h"
#include "runtime/loaded_model.h"

namespace dsv4 {

// MODEL, --device, --threads, --activations, --rows, --kv as they were typed.
struct ModelArguments {
  std::string model_dir;
  std::string device = "cpu";
  int threads = 0;
  std::string activations = "auto";
  std::string rows = "simulated";
  std::string kv;  // empty: fp8, and f32 with exact rows

  // Adds the positional MODEL alone.
  void add_model_dir(CLI::App& command);
  // Adds MODEL and all options.
  void add_to(CLI::App& command);
  // Throws CLI::ValidationError for --kv fp8 with --rows exact.
  ModelOptions model_options() const;
  // model_dir, device, num_threads, model and load_progress; the rest as it stands in
  // ModelOpenOptions.
  ModelOpenOptions open_options() const;
  // The same for the public engine.
  EngineOptions engine_options() const;
};

// A bar on stderr for a model that takes more than half a second to load. Ctrl-C ends the loading
// with Interrupted while an InterruptGuard stands.
LoadProgressCallback load_progress_bar();

// A model's note on precision, if it has one (not empty), to stderr.
void print_precision_note(std::string_view note);

// Takes a decimal number from `low` to `high` and nothing else: the option parser itself reads 010
// as eight, 0x3 as three, -1 as 2^64 - 1, and what is too large as the largest.
CLI::Validator whole_number(std::uint64_t low, std::uint64_t high);

// Takes a number and nothing else.
CLI::Validator real_number();

// Takes what names_device takes; whether the device is there is seen when it is opened.
CLI::Validator device_name();

// Takes any text but the empty one, as which an unset variable of a shell comes: '' would read as
// if the option had not been given.
CLI::Validator not_empty();

// Adds --temperature and --top-p; without them the model's own count. Their range is
// check_sampling's.
void add_temperature_and_top_p(CLI::App& command, std::optional<float>& temperature,
                               std::optional<float>& top_p);

// Throws CLI::ValidationError for sampling options out of range.
void check_sampling(const SamplingRow& row);
// For draws that are to differ from run to run: 32 bits, short enough to be typed again.
std::uint64_t random_seed();

// `text` with invalid UTF-8 as U+FFFD, and then a note on stderr. `what` such as "the prompt".
std::string valid_text(const std::string& text, std::string_view what);

// A text given in exactly one way: as an argument, as a file, or on stdin.
struct TextSource {
  std::optional<std::string> text;
  std::optional<std::string> file;  // "-": stdin

  // Reads it, up to kMaxTextBytes. Stdin is read when neither is set and it is not a terminal; a
  // terminal throws CLI::ValidationError with `usage`. Throws Error: kNotFound, kIo, kBadRequest.
  std::string read(std::string_view usage) const;
  // What it reads, for messages.
  std::string name() const;
};

}  // namespace dsv4
