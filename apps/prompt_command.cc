// prompt_command.cc: dsv4 prompt: the prompt that a conversation becomes, as text or token ids.
#include <memory>

#include "base/error.h"
#include "checkpoint/model_config.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "text/chat_encode.h"
#include "text/chat_marks.h"
#include "text/token_ids.h"

namespace dsv4 {
namespace {

struct PromptArguments {
  ModelArguments model;
  TextSource conversation;
  bool ids = false;
};

std::string encode(const PromptArguments& args, const std::string& json) {
  const EffortTable table = effort_table_of(load_model_config(args.model.model_dir));
  const std::string name = args.conversation.name();
  const JsonValue request = parse_json(json, name);
  try {
    return encode_conversation(parse_conversation(request, table));
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", name, error.what());
  }
}

void run_prompt(const PromptArguments& args) {
  const std::string json =
      args.conversation.read("no conversation: name a FILE, or send it to standard input");
  const Tokenizer tokenizer = load_tokenizer(args.model.model_dir);
  find_chat_marks(tokenizer);  // marks that it lacks would be spelled out
  const std::string prompt = encode(args, json);
  if (args.ids) {
    write_stdout(format_token_ids(tokenizer.encode(prompt)) + "\n");
  } else {
    write_text(prompt);
  }
}

}  // namespace

void add_prompt_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("prompt", "show the prompt that a conversation becomes");
  const auto args = std::make_shared<PromptArguments>();
  args->model.add_model_dir(*command);
  command
      ->add_option("FILE", args->conversation.file,
                   "the conversation, a JSON object; -, or no FILE: standard input")
      ->type_name("");
  command->add_flag("--ids", args->ids, "print the prompt's token ids instead of its text");
  command->footer(
      "The object holds messages as in OpenAI's API, and optionally tools, thinking and\n"
      "drop_thinking (true or false), effort (none, low, high or max), effort_table (initial or\n"
      "0731; default: what MODEL's release has), add_bos and context. The prompt is the exact\n"
      "text that the model gets, begin mark included, and nothing is added to it; only a\n"
      "terminal gets a final line break. Reads MODEL/config.json and MODEL/tokenizer.json.\n"
      "Examples:\n"
      "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}' | dsv4 prompt "
      "models/nano\n"
      "  dsv4 prompt models/nano talk.json --ids | dsv4 generate models/nano --ids \\\n"
      "    | dsv4 parse models/nano --ids");
  command->callback([args] { run_prompt(*args); });
}

}  // namespace dsv4
