// perplexity_command.cc: dsv4 perplexity: how well a model predicts a text file.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "runtime/perplexity.h"
#include "text/token_ids.h"

namespace dsv4 {
namespace {

struct PerplexityArguments {
  ModelArguments model;
  TextSource text;
  std::int64_t window = 1024;
  bool ids = false, json = false;
};

void print_result(const PerplexityArguments& args, const PerplexityResult& result) {
  if (!args.json) {
    write_stdout(fmt::format("{:.6f}\n", result.perplexity));
    return;
  }
  nlohmann::ordered_json json;
  json["perplexity"] = result.perplexity;
  json["window"] = args.window;
  json["window_perplexities"] = result.window_perplexities;
  json["scored_tokens"] = result.scored_tokens;
  json["dropped_tokens"] = result.dropped_tokens;
  write_stdout(json.dump() + "\n");
}

PerplexityResult measure(LoadedModel& model, const std::vector<TokenId>& tokens,
                         const PerplexityArguments& args) {
  ProgressBar bar("scoring", "tokens");
  PerplexityOptions options;
  options.window = args.window;
  options.progress = [&bar, &args](const PerplexityProgress& progress) {
    InterruptGuard::check();
    const std::int64_t done = progress.window_idx * args.window + progress.window_tokens;
    bar.update(done, progress.num_windows * args.window,
               fmt::format("perplexity {:.4f}", progress.perplexity));
  };
  return measure_perplexity(model, tokens, options);
}

void run_perplexity(const PerplexityArguments& args) {
  const std::string text = args.text.read({});
  const InterruptGuard guard;
  ModelOpenOptions open = args.model.open_options();
  open.kv_tokens = args.window;
  open.with_tokenizer = !args.ids;
  LoadedModel model(open);
  const std::vector<TokenId> tokens =
      args.ids ? parse_token_ids(text) : model.tokenizer().encode(text);
  print_precision_note(model.model().precision_note());
  const PerplexityResult result = measure(model, tokens, args);
  print_result(args, result);
  write_stderr_line(fmt::format("{} windows of {} tokens, {} tokens scored, the last {} left out",
                                result.window_perplexities.size(), args.window,
                                result.scored_tokens, result.dropped_tokens));
}

}  // namespace

void add_perplexity_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("perplexity", "measure how well a model predicts a text");
  const auto args = std::make_shared<PerplexityArguments>();
  args->model.add_to(*command);
  command->add_option("FILE", args->text.file, "the text; -: standard input")
      ->type_name("")
      ->required();
  command->add_option("--window", args->window, "tokens a window")
      ->transform(whole_number(2, std::uint64_t{1} << 40))
      ->capture_default_str();
  command->add_flag("--ids", args->ids, "FILE holds token ids; needs no tokenizer");
  command->add_flag("--json", args->json, "one JSON object, with the value of each window");
  command->footer(
      "The text is one sequence of tokens, marks such as <think> among them, and nothing is added\n"
      "to it. It is cut into windows, the last partial one left out; each is computed from its\n"
      "own beginning, and all of its tokens but the first are scored. Prints exp of the mean\n"
      "negative log-likelihood; smaller is better. Progress goes to stderr.\n"
      "Examples:\n"
      "  dsv4 perplexity models/nano models/nano/held_out.txt --activations a16\n"
      "  dsv4 perplexity models/nano models/nano/held_out.txt --window 4096 --json");
  command->callback([args] { run_perplexity(*args); });
}

}  // namespace dsv4
