// completion_command.cc: dsv4 completion: the script by which a shell completes dsv4's words.
#include <memory>

#include "commands.h"
#include "completion.h"
#include "console.h"

namespace dsv4 {

void add_completion_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("completion", "print a script that completes dsv4's words in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "the shell that the script is for")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->required();
  command->footer(
      "Completes commands, options, files and the words that an option takes. An installation\n"
      "puts the scripts where the shells look for them.\n"
      "Examples:\n"
      "  source <(dsv4 completion bash)        # in ~/.bashrc\n"
      "  source <(dsv4 completion zsh)         # in ~/.zshrc, after compinit\n"
      "  dsv4 completion fish | source         # in ~/.config/fish/config.fish");
  command->callback([&app, shell] {
    const CompletionTree tree = describe_commands(app);
    write_stdout(*shell == "bash"  ? bash_completion(tree)
                 : *shell == "zsh" ? zsh_completion(tree)
                                   : fish_completion(tree));
  });
}

}  // namespace dsv4
