// main.cc: the program dsv4: its subcommands, and how their ends become messages and exit codes.
//
// What a subcommand does is in its X_command.cc.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "commands.h"
#include "console.h"
#include "dsv4/error.h"
#include "help_format.h"

namespace dsv4 {
namespace {

constexpr int kDone = 0, kFailed = 1, kBadUsage = 2;

void print_error(std::string_view message) { write_stderr_line("dsv4: " + printable(message)); }

void print_broken_invariant(std::string_view message) {
  print_error(std::string("internal error, please report it: ").append(message));
}

void add_commands(CLI::App& app) {
  app.name("dsv4");
  app.formatter(make_help_formatter());  // commands inherit it
  app.set_version_flag("--version", "dsv4 " DSV4_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  dsv4 chat models/nano\n"
      "  dsv4 generate models/nano --chat -p 'Who founded Ostholm?'\n"
      "  dsv4 inspect models/nano\n"
      "  dsv4 perplexity models/nano models/nano/held_out.txt\n"
      "  dsv4 eval models/nano --questions models/nano/questions.jsonl --limit 2\n"
      "  dsv4 quantize models/nano nano-nvfp4\n"
      "  echo 'Hello' | dsv4 tokenize models/nano\n"
      "  source <(dsv4 completion bash)\n"
      "\n"
      "'dsv4 COMMAND --help' explains a command. Exit codes: 0 done, 1 failed, 2 bad usage,\n"
      "130 interrupted.");
  add_chat_command(app);
  add_completion_command(app);
  add_devices_command(app);
  add_eval_command(app);
  add_generate_command(app);
  add_inspect_command(app);
  add_parse_command(app);
  add_perplexity_command(app);
  add_prompt_command(app);
  add_quantize_command(app);
  add_tokenize_command(app);
  add_verify_command(app);
}

int report_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  std::string command = "dsv4";
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  if (!chosen.empty()) {
    command += " " + chosen.front()->get_name();
    // The parser would name several of them backwards.
    if (unknown.size() > 1 && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
      message = fmt::format("these arguments were not expected: {}", fmt::join(unknown, " "));
    }
  } else if (!unknown.empty()) {
    // The parser would only say that a command is missing.
    message = "there is no command or option \"" + unknown.front() + "\"";
  }
  print_error(message + " ('" + command + " --help' shows the usage)");
  return kBadUsage;
}

int run(int argc, char** argv) {
  CLI::App app{"Runs DeepSeek-V4, and models of its shape, without Python."};
  add_commands(app);
  try {
    app.parse(argc, argv);
    return kDone;
  } catch (const CLI::CallForHelp&) {
    write_stdout(app.help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    write_stdout(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::RuntimeError& error) {
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    if (argc == 2 && std::string_view(argv[1]) == "help") {
      write_stdout(app.help());
      return kDone;
    }
    return report_usage(app, error);
  } catch (const Error& error) {
    print_error(std::string(to_string(error.code())) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    print_error("out of memory: the host has not enough for this; use a smaller model or input");
  } catch (const Interrupted&) {
    print_error("interrupted");
    return kExitInterrupted;
  }
  return kFailed;
}

int run_until_closed(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const OutputClosed& closed) {
    if (!closed.message.empty()) print_error(closed.message);
  } catch (const std::exception& error) {
    print_error(std::string("internal error, please report it: ") + error.what());
  }
  return kFailed;
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  dsv4::prepare_console();
  dsv4::set_check_handler(dsv4::print_broken_invariant);
  return dsv4::run_until_closed(argc, argv);
}
