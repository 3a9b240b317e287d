// check.h: DSV4_CHECK, for invariants whose failure is a bug of ours, never of the input's.
//
// The message goes to a handler that the program may install; then the process aborts.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace dsv4 {

using CheckHandler = void (*)(std::string_view message);

// Installs the handler that sees the message of a broken invariant before abort(); null restores
// the default, which does nothing (the library never prints). Returns the handler it replaces.
CheckHandler set_check_handler(CheckHandler handler);

[[noreturn]] void check_failed(std::string_view file, int line, std::string_view condition,
                               std::string_view message);

}  // namespace dsv4

// DSV4_CHECK(condition) or DSV4_CHECK(condition, "format {}", value).
#define DSV4_CHECK(condition, ...)                                                         \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ::dsv4::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
    }                                                                                      \
  } while (false)
