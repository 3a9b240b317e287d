// chat_command.cc: dsv4 chat: options, and the conversation that they begin. How it goes on is
// chat_loop.h's.
#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"
#include "chat_history.h"
#include "chat_loop.h"
#include "chat_signals.h"
#include "chat_view.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "line_reader.h"
#include "text/chat_marks.h"
#include "text/conversation_names.h"

namespace dsv4 {
namespace {

// Tokens a step while the prompt is read: small enough that Ctrl-C answers soon.
constexpr std::int64_t kPromptChunk = 64;

struct ChatArguments {
  ModelArguments model;
  std::optional<std::string> load, system, tools, effort;
  bool think = false, quiet = false;
  std::int64_t context = 0;
  std::optional<std::int64_t> max_tokens;
  std::optional<float> temperature, top_p;
  std::optional<std::uint64_t> seed;
};

// The options change what was loaded.
Conversation first_conversation(const ChatArguments& args) {
  Conversation conversation;
  if (args.load) conversation = read_conversation_file(*args.load);
  if (args.system) {
    std::string text = valid_text(*args.system, "the system message");
    require_no_chat_mark(text, "the system message");
    set_system_text(conversation, std::move(text));
  }
  if (args.tools) set_tools(conversation, read_tools_file(*args.tools));
  if (args.think) conversation.options.thinking = true;
  if (args.effort) conversation.options.effort = value_by_name(kEfforts, *args.effort, "--effort");
  return conversation;
}

std::unique_ptr<Engine> open_engine(const ChatArguments& args) {
  EngineOptions options = args.model.engine_options();
  options.kv_tokens = args.context;
  options.max_sessions = 1;
  options.max_step_tokens = kPromptChunk;
  const InterruptGuard guard;
  return Engine::open(options);
}

// Who is there, and the seed if it is a random one that matters.
void greet(const ChatArguments& args, const EngineInfo& info, const ChatOptions& options) {
  const bool is_drawn = args.temperature.value_or(info.temperature) > 0;
  std::string seed;
  if (!args.seed && is_drawn) seed = fmt::format("--seed {}", options.sampling.seed);
  if (options.interactive) {
    write_dim_line(fmt::format("{} on {}, context {} tokens{}{}; /help lists the commands",
                               printable(args.model.model_dir), info.device,
                               info.max_session_tokens, seed.empty() ? "" : ", ", seed));
  } else if (!seed.empty()) {
    write_stderr_line("note: drawn with " + seed);
  }
}

void run_chat(const ChatArguments& args) {
  check_sampling({.temperature = args.temperature.value_or(1), .top_p = args.top_p.value_or(1)});
  Conversation conversation = first_conversation(args);
  const std::unique_ptr<Engine> engine = open_engine(args);
  print_precision_note(engine->info().precision_note);
  ChatOptions options;
  options.max_tokens = args.max_tokens;
  options.sampling.temperature = args.temperature;
  options.sampling.top_p = args.top_p;
  options.sampling.seed = args.seed ? *args.seed : random_seed();
  options.interactive = stdin_is_terminal();
  options.quiet = args.quiet;

  const ChatSignals signals;
  const std::unique_ptr<LineReader> reader = open_line_reader();
  if (!args.quiet) greet(args, engine->info(), options);
  ChatLoop(*engine, *reader, std::move(conversation), std::move(options)).run();
}

void add_conversation_options(CLI::App& command, ChatArguments& args) {
  command.add_option("--load", args.load, "go on with a conversation that /save wrote")
      ->type_name("FILE");
  command.add_option("--system", args.system, "a system message");
  command
      .add_option("--tools", args.tools, "offer the tools of a JSON file, as OpenAI's API has them")
      ->type_name("FILE");
  command.add_flag("--think", args.think, "let the model reason before it answers");
  command
      .add_option("--effort", args.effort,
                  "how much it reasons; low is known to the releases from 0731 on only")
      ->check(CLI::IsMember({"none", "low", "high", "max"}));
  command.add_flag("-q,--quiet", args.quiet, "answers, prompts and errors only");
}

void add_answer_options(CLI::App& command, ChatArguments& args) {
  command
      .add_option("--context", args.context,
                  "tokens that a conversation may have; default: the model's, at most 32768")
      ->transform(whole_number(1, std::uint64_t{1} << 40));
  command
      .add_option("-n,--max-tokens", args.max_tokens,
                  "tokens that an answer may have; default: what the context has left")
      ->transform(whole_number(1, std::numeric_limits<std::int64_t>::max()));
  add_temperature_and_top_p(command, args.temperature, args.top_p);
  command
      .add_option("--seed", args.seed,
                  "the same seed gives the same answers; default: random, printed at the beginning")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

}  // namespace

void add_chat_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("chat", "talk with a model");
  const auto args = std::make_shared<ChatArguments>();
  args->model.add_to(*command);
  add_conversation_options(*command, *args);
  add_answer_options(*command, *args);
  command->footer(
      "On a terminal there is a line editor with history; /help lists the commands, Ctrl-C stops\n"
      "an answer. When the model calls a tool you are asked for its result. From a pipe each line\n"
      "is a message, a command or a result; answers go to stdout, and the first error ends it.\n"
      "Examples:\n"
      "  dsv4 chat models/nano\n"
      "  dsv4 chat models/nano --tools models/nano/tools.json --system 'Be brief.'\n"
      "  printf 'Who founded Ostholm?\\nWho lives there?\\n' |\n"
      "    dsv4 chat models/nano --temperature 0");
  command->callback([args] { run_chat(*args); });
}

}  // namespace dsv4
