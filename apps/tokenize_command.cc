// tokenize_command.cc: dsv4 tokenize: text to token ids and back, as a model's tokenizer does it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "text/token_ids.h"

namespace dsv4 {
namespace {

struct TokenizeArguments {
  ModelArguments model;
  TextSource input;
  bool ids = false, json = false;
};

void print_text(const TokenizeArguments& args, const std::string& text) {
  if (args.json) {
    write_stdout(nlohmann::ordered_json{{"text", text}}.dump() + "\n");
    return;
  }
  write_text(text);
}

void print_ids(const TokenizeArguments& args, const Tokenizer& tokenizer,
               const std::vector<TokenId>& ids) {
  if (!args.json) {
    write_stdout(format_token_ids(ids) + "\n");
    return;
  }
  nlohmann::ordered_json json;
  json["ids"] = ids;
  // A token may be part of a character, which is no text of its own.
  std::vector<std::string> tokens;
  for (const TokenId id : ids) tokens.push_back(tokenizer.decode({&id, 1}));
  json["tokens"] = tokens;
  write_stdout(json.dump() + "\n");
}

void run_tokenize(const TokenizeArguments& args) {
  const std::string input =
      args.input.read("no input: give --text TEXT or --file FILE, or send it to standard input");
  const Tokenizer tokenizer = load_tokenizer(args.model.model_dir);
  if (args.ids) {
    print_text(args, tokenizer.decode(parse_token_ids(input)));
  } else {
    print_ids(args, tokenizer, tokenizer.encode(input));
  }
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "turn text into token ids, or back");
  const auto args = std::make_shared<TokenizeArguments>();
  args->model.add_model_dir(*command);
  CLI::Option* text = command->add_option("--text", args->input.text, "the input itself");
  command
      ->add_option("--file", args->input.file,
                   "read the input from FILE (-: standard input), every byte of it")
      ->type_name("FILE")
      ->excludes(text);
  command->add_flag("--ids", args->ids, "the input is token ids; print their text");
  command->add_flag("--json", args->json, "one JSON object: ids and the text of each token");
  command->footer(
      "Without --text or --file the input is standard input. Nothing is added: no begin or end\n"
      "mark. Only MODEL/tokenizer.json is read.\n"
      "Examples:\n"
      "  printf 'Hello there' | dsv4 tokenize models/nano\n"
      "  dsv4 tokenize models/nano --file notes.txt | dsv4 tokenize models/nano --ids");
  command->callback([args] { run_tokenize(*args); });
}

}  // namespace dsv4
