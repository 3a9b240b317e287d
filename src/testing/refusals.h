// refusals.h: that an op's check() refuses, and in words that help: the field, its value, the
// requirement.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"

namespace dsv4::testing {

// check(params) throws Error(kBadRequest) with every part in its message.
template <class Params>
void expect_refused(const Params& params, std::initializer_list<std::string_view> parts) {
  try {
    check(params);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest) << error.what();
    const std::string message = error.what();
    for (std::string_view part : parts) {
      EXPECT_NE(message.find(part), std::string::npos)
          << "the message does not say \"" << part << "\": " << message;
    }
    return;
  }
  ADD_FAILURE() << "accepted, but should be refused with \"" << *parts.begin() << "\"";
}

// What `run` is refused with, an Error(kBadRequest); "accepted" if it is not. kUnsupported passes
// through: TEST_EACH_BACKEND skips a backend that lacks the op.
template <class Run>
std::string refusal_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported) throw;
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    return error.what();
  }
  return "accepted";
}

}  // namespace dsv4::testing
