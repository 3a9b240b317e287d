#include "completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dsv4 {
namespace {

using Kind = CompletionValue::Kind;

// Up to what a help text adds after a colon, a semicolon or in brackets.
std::string summary_of(const std::string& description) {
  return description.substr(
      0, std::min({description.find(": "), description.find("; "), description.find(" (")}));
}

std::vector<std::string> split_choices(const std::string& list) {
  std::vector<std::string> choices;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    choices.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

CompletionValue value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const std::string type = option.get_type_name().empty() ? option.get_name(/*positional=*/true)
                                                          : option.get_type_name();
  if (type == "FILE") return {.kind = Kind::kFile, .choices = {}};
  if (type == "DIR") return {.kind = Kind::kDirectory, .choices = {}};
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) {
    return {.kind = Kind::kOther, .choices = {}};
  }
  return {.kind = Kind::kChoice, .choices = split_choices(type.substr(begin + 1, end - begin - 1))};
}

CompletionCommand describe(const CLI::App& app) {
  CompletionCommand command{.name = app.get_name(),
                            .summary = summary_of(app.get_description()),
                            .options = {},
                            .positionals = {}};
  for (const CLI::Option* option : app.get_options()) {
    CompletionOption described{
        .names = {}, .summary = summary_of(option->get_description()), .value = value_of(*option)};
    if (option->get_positional()) {
      described.names = {option->get_name(/*positional=*/true)};
      command.positionals.push_back(std::move(described));
      continue;
    }
    for (const std::string& name : option->get_snames()) described.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) described.names.push_back("--" + name);
    command.options.push_back(std::move(described));
  }
  return command;
}

// In single quotes, for any of the three shells.
std::string quoted(std::string_view text, std::string_view quote_inside) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += quote_inside;
    } else {
      out += c;
    }
  }
  return out + "'";
}

// ---- bash

std::string bash_value(const CompletionValue& value) {
  switch (value.kind) {
    case Kind::kFile:
      return "file";
    case Kind::kDirectory:
      return "directory";
    case Kind::kChoice:
      return fmt::format("choice {}", fmt::join(value.choices, " "));
    case Kind::kNone:
    case Kind::kOther:
      return "other";
  }
  return {};
}

// Cases "COMMAND:WORD": a word is an option that takes a value, or the number of a positional.
std::string bash_cases(const CompletionCommand& command) {
  std::string out;
  for (const CompletionOption& option : command.options) {
    if (option.value.kind == Kind::kNone) continue;
    std::string patterns;
    for (const std::string& name : option.names) {
      patterns += fmt::format("{}{}:{}", patterns.empty() ? "" : " | ", command.name, name);
    }
    out += fmt::format("    {}) value='{}' ;;\n", patterns, bash_value(option.value));
  }
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    out += fmt::format("    {}:{}) value='{}' ;;\n", command.name, i + 1,
                       bash_value(command.positionals[i].value));
  }
  return out;
}

std::string option_words(const CompletionCommand& command) {
  std::string words;
  for (const CompletionOption& option : command.options) {
    words += fmt::format("{}{}", words.empty() ? "" : " ", fmt::join(option.names, " "));
  }
  return words;
}

constexpr std::string_view kBashFunctions = R"(
_@PROGRAM@() {
  local current=${COMP_WORDS[COMP_CWORD]} command='' value='' word i positional=1
  COMPREPLY=()
  # bash makes "--option=value" three words.
  [[ $current == '=' ]] && current=''
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $value ]]; then
      value=''
    elif [[ $word == -* ]]; then
      _@PROGRAM@_value "$command:$word"
    elif [[ -z $command ]]; then
      command=$word
    else
      ((positional++))
    fi
  done
  if [[ -z $value && $current == -* ]] || [[ -z $value && -z $command ]]; then
    _@PROGRAM@_words "$command"
  elif [[ -z $value ]]; then
    _@PROGRAM@_value "$command:$positional"
  fi
  case $value in
    'choice '*) mapfile -t COMPREPLY < <(compgen -W "${value#choice }" -- "$current") ;;
    file) mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    directory) mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
  esac
  [[ $value == file || $value == directory ]] && compopt -o filenames 2> /dev/null
  return 0
}
complete -F _@PROGRAM@ @PROGRAM@
)";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

// ---- zsh

std::string zsh_value(const CompletionOption& option) {
  const std::string name = option.names.back();
  switch (option.value.kind) {
    case Kind::kNone:
      return {};
    case Kind::kFile:
      return ":file:_files";
    case Kind::kDirectory:
      return ":directory:_files -/";
    case Kind::kChoice:
      return fmt::format(":value:({})", fmt::join(option.value.choices, " "));
    case Kind::kOther:
      return ":value: ";
  }
  return {};
}

// What _arguments treats as syntax.
std::string zsh_summary(const std::string& summary) {
  std::string out;
  for (const char c : summary) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_arguments(const CompletionCommand& command, std::string_view indent) {
  std::string out;
  for (const CompletionOption& option : command.options) {
    for (const std::string& name : option.names) {
      const std::string spec =
          fmt::format("{}[{}]{}", name, zsh_summary(option.summary), zsh_value(option));
      out += fmt::format(" \\\n{}{}", indent, quoted(spec, "'\\''"));
    }
  }
  for (std::size_t i = 0; i < command.positionals.size(); ++i) {
    const CompletionOption& positional = command.positionals[i];
    const std::string spec = fmt::format("{}{}", i + 1, zsh_value(positional));
    out += fmt::format(" \\\n{}{}", indent, quoted(spec, "'\\''"));
  }
  return out;
}

// ---- fish

std::string fish_value(const CompletionValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return {};
    case Kind::kFile:
      return " -r -F";
    case Kind::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::kChoice:
      return fmt::format(" -x -a '{}'", fmt::join(value.choices, " "));
    case Kind::kOther:
      return " -x";
  }
  return {};
}

std::string fish_quoted(const std::string& text) {
  return quoted(replaced(text, "\\", "\\\\"), "\\'");
}

std::string fish_options(const std::string& begin, const CompletionCommand& command) {
  std::string out;
  for (const CompletionOption& option : command.options) {
    std::string names;
    for (const std::string& name : option.names) {
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    out += fmt::format("{}{}{} -d {}\n", begin, names, fish_value(option.value),
                       fish_quoted(option.summary));
  }
  for (const CompletionOption& positional : command.positionals) {
    const Kind kind = positional.value.kind;
    if (kind == Kind::kFile || kind == Kind::kDirectory) out += begin + " -F\n";
    if (kind == Kind::kChoice) out += begin + fish_value(positional.value) + "\n";
  }
  return out;
}

}  // namespace

CompletionTree describe_commands(const CLI::App& app) {
  CompletionTree tree{.program = app.get_name(), .top = describe(app), .commands = {}};
  tree.top.name.clear();
  for (const CLI::App* command : app.get_subcommands({})) {
    tree.commands.push_back(describe(*command));
  }
  return tree;
}

std::string bash_completion(const CompletionTree& tree) {
  std::string names, words, cases;
  for (const CompletionCommand& command : tree.commands) {
    names += command.name + " ";
    words += fmt::format("    {}) words='{}' ;;\n", command.name, option_words(command));
    cases += bash_cases(command);
  }
  return fmt::format(
             "# Completion of {0} for bash, as printed by '{0} completion bash'.\n"
             "\n"
             "# Completes `current` with what may stand where no value is expected.\n"
             "_{0}_words() {{\n"
             "  local words=''\n"
             "  case $1 in\n"
             "    '') words='{1}{2}' ;;\n{3}"
             "  esac\n"
             "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
             "}}\n"
             "\n"
             "# Sets `value` to what completes it: of an option, or of a positional by its "
             "number.\n"
             "_{0}_value() {{\n"
             "  case $1 in\n{4}"
             "    *) value='' ;;\n"
             "  esac\n"
             "}}\n",
             tree.program, names, option_words(tree.top), words, cases) +
         replaced(std::string(kBashFunctions), "@PROGRAM@", tree.program);
}

std::string zsh_completion(const CompletionTree& tree) {
  std::string commands, cases;
  for (const CompletionCommand& command : tree.commands) {
    commands += "        " + quoted(command.name + ":" + command.summary, "'\\''") + "\n";
    cases += fmt::format("        {}) _arguments{} ;;\n", command.name,
                         zsh_arguments(command, "          "));
  }
  return fmt::format(
      "#compdef {0}\n"
      "# Completion of {0} for zsh, as printed by '{0} completion zsh'.\n"
      "\n"
      "_{0}() {{\n"
      "  local curcontext=$curcontext state line\n"
      "  _arguments -C{1} \\\n"
      "    '1:command:->command' \\\n"
      "    '*::argument:->argument'\n"
      "  case $state in\n"
      "    command)\n"
      "      local -a commands=(\n{2}"
      "      )\n"
      "      _describe command commands\n"
      "      ;;\n"
      "    argument)\n"
      "      case $line[1] in\n{3}"
      "      esac\n"
      "      ;;\n"
      "  esac\n"
      "}}\n"
      "\n"
      "# Found in $fpath it completes at once; sourced it registers itself.\n"
      "if [[ $funcstack[1] == _{0} ]]; then\n"
      "  _{0} \"$@\"\n"
      "else\n"
      "  compdef _{0} {0}\n"
      "fi\n",
      tree.program, zsh_arguments(tree.top, "    "), commands, cases);
}

std::string fish_completion(const CompletionTree& tree) {
  const std::string begin = "complete -c " + tree.program;
  std::string out = fmt::format(
      "# Completion of {0} for fish, as printed by '{0} completion fish'.\n"
      "{1} -f\n",
      tree.program, begin);
  const std::string at_top = begin + " -n __fish_use_subcommand";
  out += fish_options(at_top, tree.top);
  for (const CompletionCommand& command : tree.commands) {
    out += fmt::format("{} -a {} -d {}\n", at_top, command.name, fish_quoted(command.summary));
  }
  for (const CompletionCommand& command : tree.commands) {
    out += fish_options(fmt::format("{} -n '__fish_seen_subcommand_from {}'", begin, command.name),
                        command);
  }
  return out;
}

}  // namespace dsv4
