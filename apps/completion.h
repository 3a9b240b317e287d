// completion.h: scripts by which shells complete the words of a program's command line, made from
// its own option tree, so that they know what --help shows.
//
// What completes a value is read off its type name (of a positional without one: its own name):
// FILE and DIR are paths, "{a,b}" is one of these words, anything else is for the user to know.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace dsv4 {

struct CompletionValue {
  enum class Kind { kNone, kFile, kDirectory, kChoice, kOther };  // kNone: a flag takes no value
  Kind kind = Kind::kNone;
  std::vector<std::string> choices;
};

struct CompletionOption {
  std::vector<std::string> names;  // "-n", "--max-tokens"; of a positional: "MODEL"
  std::string summary;             // of its description
  CompletionValue value;
};

struct CompletionCommand {
  std::string name;  // empty: the program itself
  std::string summary;
  std::vector<CompletionOption> options, positionals;
};

struct CompletionTree {
  std::string program;
  CompletionCommand top;  // what stands before a command
  std::vector<CompletionCommand> commands;
};

// Words of the tree must not need quotes in a shell; summaries may.
CompletionTree describe_commands(const CLI::App& app);

std::string bash_completion(const CompletionTree& tree);
std::string zsh_completion(const CompletionTree& tree);
std::string fish_completion(const CompletionTree& tree);

}  // namespace dsv4
