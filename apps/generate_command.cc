// generate_command.cc: dsv4 generate: continues one prompt, text to stdout as it comes, figures to
// stderr.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "runtime/generate.h"
#include "text/chat_marks.h"
#include "text/chat_prompt.h"
#include "text/token_ids.h"

namespace dsv4 {
namespace {

// Tokens a step while the prompt is read: small enough that Ctrl-C and the bar answer soon.
constexpr std::int64_t kPromptChunk = 64;

struct GenerateArguments {
  ModelArguments model;
  TextSource prompt;
  bool chat = false, think = false, no_bos = false, ids = false, json = false;
  bool bos = false;  // the default spelled out; nothing reads it
  std::string system;
  std::int64_t max_tokens = 512;
  std::optional<float> temperature, top_p;
  float min_p = 0;
  std::int32_t top_k = 0;
  std::optional<std::uint64_t> seed;
};

constexpr std::string_view kNoPrompt =
    "no prompt: give -p TEXT or --prompt-file FILE, or send it to standard input";

// One line break at the end of a file or of what echo prints is not meant as part of the prompt.
void drop_final_line_break(std::string& text) {
  if (text.empty() || text.back() != '\n') return;
  text.pop_back();
  if (!text.empty() && text.back() == '\r') text.pop_back();
}

std::string read_prompt(const GenerateArguments& args) {
  std::string text = args.prompt.read(kNoPrompt);
  if (!args.prompt.text) drop_final_line_break(text);
  return valid_text(text, "the prompt");
}

// The tokenizer of a model is needed before the model: the prompt's length sizes the cache.
std::vector<TokenId> prompt_ids(const GenerateArguments& args, const Tokenizer* tokenizer,
                                const ModelConfig& config) {
  const std::string text = read_prompt(args);
  if (args.chat) {
    const std::string system = valid_text(args.system, "the system message");
    require_no_chat_mark(text, "the message");
    require_no_chat_mark(system, "the system message");
    return encode_single_turn(*tokenizer, {.user = text, .system = system, .thinking = args.think});
  }
  std::vector<TokenId> ids = args.ids ? parse_token_ids(text) : tokenizer->encode(text);
  require(!args.ids || !ids.empty(), ErrorCode::kBadRequest,
          "the prompt has no token ids; give at least one, the begin mark ({}) for instance",
          config.bos_id);
  if (!args.no_bos && (ids.empty() || ids.front() != config.bos_id)) {
    ids.insert(ids.begin(), config.bos_id);
  }
  return ids;
}

GenerateOptions generate_options(const GenerateArguments& args,
                                 const GenerationDefaults& defaults) {
  GenerateOptions options;
  options.max_tokens = args.max_tokens;
  options.temperature = args.temperature.value_or(static_cast<float>(defaults.temperature));
  options.top_p = args.top_p.value_or(static_cast<float>(defaults.top_p));
  options.min_p = args.min_p;
  options.top_k = args.top_k;
  options.seed = args.seed ? *args.seed : random_seed();
  options.stop_ids = defaults.eos_ids;
  return options;
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// The first drawn token comes out of the prompt's last step.
std::int64_t decode_steps(const GenerateResult& result) {
  return std::max<std::int64_t>(static_cast<std::int64_t>(result.tokens.size()) - 1, 0);
}

void print_figures(const GenerateArguments& args, const GenerateOptions& options,
                   const GenerateResult& result) {
  std::string line = fmt::format(
      "prompt {}; generated {}; {}",
      token_figures(result.prompt_tokens, result.computed_prompt_tokens, result.prefill_seconds),
      token_figures(static_cast<std::int64_t>(result.tokens.size()), decode_steps(result),
                    result.decode_seconds),
      result.finish_reason == FinishReason::kStop     ? "stopped at the end token"
      : result.finish_reason == FinishReason::kLength ? "stopped at the length limit"
                                                      : "interrupted");
  if (!args.seed && options.temperature > 0) line += fmt::format("; --seed {}", options.seed);
  write_stderr_line(line);
}

void print_json(const GenerateArguments& args, const GenerateOptions& options,
                const std::vector<TokenId>& prompt, const GenerateResult& result) {
  nlohmann::ordered_json json;
  if (!args.ids) json["text"] = result.text;
  json["token_ids"] = result.tokens;
  json["prompt_token_ids"] = prompt;
  json["finish_reason"] = to_string(result.finish_reason);
  json["seed"] = options.seed;
  json["timings"] = {
      {"prompt_tokens", result.prompt_tokens},
      {"prompt_seconds", result.prefill_seconds},
      {"prompt_tokens_per_second", rate(result.computed_prompt_tokens, result.prefill_seconds)},
      {"generated_tokens", result.tokens.size()},
      {"decode_seconds", result.decode_seconds},
      {"decode_tokens_per_second", rate(decode_steps(result), result.decode_seconds)}};
  write_stdout(json.dump() + "\n");
}

// Text as it comes, or ids.
class Output {
 public:
  explicit Output(const GenerateArguments& args) : args_(args) {}
  // Ends the line when generation fails half-way, so that the error gets one of its own.
  ~Output() {
    try {
      if (!is_first_) end();
    } catch (...) {
      // stdout is gone as well; the first error is the one to tell
    }
  }
  void show(TokenId token, std::string_view text) {
    if (args_.json) return;
    if (!args_.ids) {
      write_stdout(text);
    } else if (token >= 0) {
      write_stdout(fmt::format("{}{}", is_first_ ? "" : " ", token));
    }
    is_first_ = false;
  }
  void end() {
    if (!args_.json) write_stdout("\n");
    is_first_ = true;
  }

 private:
  const GenerateArguments& args_;
  bool is_first_ = true;
};

void run_generate(const GenerateArguments& args) {
  check_sampling({.temperature = args.temperature.value_or(1),
                  .top_p = args.top_p.value_or(1),
                  .min_p = args.min_p,
                  .top_k = args.top_k});
  ModelOpenOptions open = args.model.open_options();
  const ModelConfig config = load_model_config(open.model_dir);
  std::optional<Tokenizer> tokenizer;
  if (!args.ids) tokenizer.emplace(load_tokenizer(open.model_dir));
  const std::vector<TokenId> prompt = prompt_ids(args, tokenizer ? &*tokenizer : nullptr, config);
  const auto prompt_tokens = static_cast<std::int64_t>(prompt.size());
  require(prompt_tokens > 0, ErrorCode::kBadRequest,
          "the prompt is empty; give a text, or leave out --no-bos");
  require(prompt_tokens <= config.max_positions, ErrorCode::kBadRequest,
          "the prompt has {} tokens, the model takes {}; shorten it", prompt_tokens,
          config.max_positions);

  open.with_tokenizer = false;
  open.kv_tokens = prompt_tokens + std::min(args.max_tokens, config.max_positions - prompt_tokens);
  const InterruptGuard guard;
  LoadedModel model(open);
  print_precision_note(model.model().precision_note());
  GenerateOptions options = generate_options(args, model.generation());
  ModelSession session(model);
  Output output(args);
  std::optional<ProgressBar> bar;
  if (prompt_tokens > kPromptChunk) bar.emplace("reading the prompt", "tokens");
  options.prefill.chunk_tokens = std::min(kPromptChunk, open.model.max_step_tokens);
  options.prefill.progress = [&bar](std::int64_t done, std::int64_t total) {
    InterruptGuard::check();
    if (bar) bar->update(done, total);
    if (done == total) bar.reset();
  };
  const GenerateResult result = generate(session, prompt, tokenizer ? &*tokenizer : nullptr,
                                         options, [&output](TokenId token, std::string_view text) {
                                           output.show(token, text);
                                           return !InterruptGuard::interrupted();
                                         });
  output.end();
  if (args.json) print_json(args, options, prompt, result);
  print_figures(args, options, result);
  if (result.finish_reason == FinishReason::kCancelled) throw CLI::RuntimeError(kExitInterrupted);
}

void add_prompt_options(CLI::App& command, GenerateArguments& args) {
  CLI::Option* text = command.add_option("-p,--prompt", args.prompt.text, "the prompt");
  command
      .add_option("--prompt-file", args.prompt.file,
                  "read the prompt from FILE (-: standard input), without one final line break")
      ->type_name("FILE")
      ->excludes(text);
  CLI::Option* chat =
      command.add_flag("--chat", args.chat, "the prompt is a user's message; the model answers it");
  command.add_flag("--think", args.think, "with --chat: let the model reason first")->needs(chat);
  command.add_option("--system", args.system, "with --chat: a system message")->needs(chat);
  CLI::Option* no_bos =
      command.add_flag("--no-bos", args.no_bos, "do not put the begin mark before a plain prompt");
  command
      .add_flag("--bos", args.bos,
                "put it there, unless the prompt begins with it: the default, and always so with "
                "--chat")
      ->excludes(no_bos);
  CLI::Option* ids = command.add_flag("--ids", args.ids,
                                      "the prompt is token ids, and so is the output; needs no "
                                      "tokenizer");
  chat->excludes(no_bos)->excludes(ids);
}

void add_sampling_options(CLI::App& command, GenerateArguments& args) {
  command.add_option("-n,--max-tokens", args.max_tokens, "stop after so many tokens")
      ->transform(whole_number(0, std::numeric_limits<std::int64_t>::max()))
      ->capture_default_str();
  add_temperature_and_top_p(command, args.temperature, args.top_p);
  command.add_option("--top-k", args.top_k, "draw from so many tokens; 0: all")
      ->transform(whole_number(0, std::numeric_limits<std::int32_t>::max()))
      ->capture_default_str();
  command
      .add_option("--min-p", args.min_p, "drop tokens less likely than this times the likeliest")
      ->check(real_number())
      ->capture_default_str();
  command
      .add_option("--seed", args.seed,
                  "the same seed gives the same text; default: random, printed at the end")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

}  // namespace

void add_generate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "continue a prompt, or answer a message");
  const auto args = std::make_shared<GenerateArguments>();
  args->model.add_to(*command);
  add_prompt_options(*command, *args);
  add_sampling_options(*command, *args);
  command->add_flag("--json", args->json, "one JSON object at the end instead of running text");
  command->footer(
      "The prompt is -p, --prompt-file, or standard input. Figures and notes go to stderr.\n"
      "Examples:\n"
      "  dsv4 generate models/nano --chat -p 'Who founded Ostholm?'\n"
      "  dsv4 generate models/nano --chat --think --temperature 0 -p 'What is 27 + 48?'\n"
      "  echo 'The cook carried' | dsv4 generate models/nano --seed 1 -n 40\n"
      "  dsv4 generate models/nano --chat --json -p 'Sort these words: kettle, fox' | jq -r .text");
  command->callback([args] { run_generate(*args); });
}

}  // namespace dsv4
