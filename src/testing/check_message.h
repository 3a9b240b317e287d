// check_message.h: lets death tests see which invariant broke; the library itself prints nothing.
#pragma once

#include <cstdio>
#include <string_view>

#include "base/check.h"

namespace dsv4 {

// While it lives, the message of a broken invariant goes to stderr.
class CheckMessages {
 public:
  CheckMessages() : before_(set_check_handler(print)) {}
  ~CheckMessages() { set_check_handler(before_); }
  CheckMessages(const CheckMessages&) = delete;
  CheckMessages& operator=(const CheckMessages&) = delete;

 private:
  static void print(std::string_view message) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
  }
  CheckHandler before_;
};

}  // namespace dsv4
