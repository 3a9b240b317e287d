// error.h: throwing dsv4::Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "dsv4/error.h"

namespace dsv4 {

// Throws Error{code, formatted message}.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// fail(...) unless `condition`: the form of a check at the door.
template <class... Args>
void require(bool condition, ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) fail(code, format, std::forward<Args>(args)...);
}

}  // namespace dsv4
