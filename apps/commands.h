// commands.h: the subcommands of dsv4. Each lives in a file of its own and is added to the
// program's parser here.
//
// add_X_command(app) adds subcommand X with its options and a callback that runs it. The callback
// may throw: dsv4::Error (one line on stderr, exit code 1), CLI::ValidationError for options that
// contradict each other (exit code 2), CLI::RuntimeError(1) when the command itself has already
// said what failed, or been interrupted (kExitInterrupted).
#pragma once

#include <CLI/CLI.hpp>

namespace dsv4 {

inline constexpr int kExitInterrupted = 130;  // 128 + SIGINT, as shells report it

void add_chat_command(CLI::App& app);
void add_completion_command(CLI::App& app);
void add_devices_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_generate_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_parse_command(CLI::App& app);
void add_perplexity_command(CLI::App& app);
void add_prompt_command(CLI::App& app);
void add_quantize_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_verify_command(CLI::App& app);

}  // namespace dsv4
