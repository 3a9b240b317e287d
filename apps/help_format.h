// help_format.h: how --help is laid out: as CLI11 does it, with descriptions broken into lines and
// lists of words without a type.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>

namespace dsv4 {

// Breaks descriptions of options at spaces, so that lines have at most 100 columns.
std::shared_ptr<CLI::FormatterBase> make_help_formatter();

}  // namespace dsv4
