// parse_command.cc: dsv4 parse: a completion taken apart into reasoning, content and tool calls.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "commands.h"
#include "common_options.h"
#include "console.h"
#include "text/chat_marks.h"
#include "text/chat_parse.h"
#include "text/token_ids.h"
#include "text/tool_arguments.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

struct ParseArguments {
  ModelArguments model;
  TextSource completion;
  std::optional<std::string> tools;
  bool think = false, strict = false, ids = false;
};

std::string read_completion(const ParseArguments& args) {
  const std::string input = args.completion.read(
      "no completion: name one with --file FILE, or send it to standard input");
  const Tokenizer tokenizer = load_tokenizer(args.model.model_dir);
  find_chat_marks(tokenizer);  // a model without them does not answer in this format
  if (args.ids) return tokenizer.decode(parse_token_ids(input));
  return valid_text(input, "the completion");
}

// The list of tools in a request, or the list alone.
ToolParameters read_tools(const std::string& path) {
  const TextSource source{.text = {}, .file = path};
  const JsonValue file = parse_json(source.read({}), source.name());
  const JsonValue* tools = file.as_object() != nullptr ? file.find("tools") : &file;
  require(tools != nullptr, ErrorCode::kBadRequest,
          "{}: the object has no tools; give a list of tools or an object with one", path);
  try {
    return ToolParameters(parse_tools(*tools, "tools"));
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path, error.what());
  }
}

Completion parse(const ParseArguments& args) {
  const std::string text = read_completion(args);
  Completion completion;
  if (args.strict) {
    StrictParse strict = parse_completion(text, args.think);
    require(strict.ok(), ErrorCode::kBadRequest,
            "the completion is refused: {}; without --strict it is taken as content",
            strict.problem);
    completion = std::move(strict.completion);
  } else {
    completion = parse_lenient(text, args.think);
  }
  if (args.tools) {
    const ToolParameters parameters = read_tools(*args.tools);
    for (ToolCall& call : completion.tool_calls) parameters.unwrap(call);
  }
  return completion;
}

std::string json_text(const Completion& completion) {
  using Json = nlohmann::ordered_json;
  Json json = {{"role", "assistant"},
               {"reasoning_content", completion.reasoning},
               {"content", completion.content}};
  json["tool_calls"] = Json::array();
  for (const ToolCall& call : completion.tool_calls) {
    const Json function = {{"name", call.name}, {"arguments", call.arguments}};
    json["tool_calls"].push_back({{"id", fmt::format("call_{}", json["tool_calls"].size())},
                                  {"type", "function"},
                                  {"function", function}});
  }
  if (!completion.warning.empty()) json["warning"] = completion.warning;
  return json.dump() + "\n";
}

}  // namespace

void add_parse_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "parse", "take a completion apart: reasoning, content and tool calls, as JSON");
  const auto args = std::make_shared<ParseArguments>();
  args->model.add_model_dir(*command);
  command
      ->add_option("--file", args->completion.file,
                   "read the completion from FILE (-: standard input), every byte of it")
      ->type_name("FILE");
  command->add_flag("--ids", args->ids,
                    "the completion is token ids, as generate --ids prints them");
  command->add_flag("--think", args->think,
                    "the prompt ended in <think>: the completion begins with the reasoning");
  command
      ->add_option("--tools", args->tools,
                   "the tools on offer, a JSON list, or an object with it as tools: takes off a "
                   "parameter that wraps all arguments of a call")
      ->type_name("FILE");
  command->add_flag("--strict", args->strict,
                    "fail if the completion is not exactly in the model's format");
  command->footer(
      "A completion begins after the prompt's <think> or </think> and ends in the end mark;\n"
      "nothing is trimmed, so a final line break counts. The result is a message in the form of\n"
      "OpenAI's API with reasoning_content, on one line; it may stand in the messages of the next\n"
      "prompt. A completion that is not in the format comes back as content, with the reason in\n"
      "warning. Only MODEL/tokenizer.json is read.\n"
      "Examples:\n"
      "  dsv4 parse models/nano --think --file completion.txt | jq .tool_calls\n"
      "  dsv4 generate models/nano --ids --prompt-file prompt.ids | dsv4 parse models/nano --ids");
  command->callback([args] { write_stdout(json_text(parse(*args))); });
}

}  // namespace dsv4
