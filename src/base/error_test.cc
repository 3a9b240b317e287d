// The one exception: its code and message arrive as they were thrown.
#include "base/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace dsv4 {
namespace {

TEST(Error, FailThrowsCodeAndFormattedMessage) {
  try {
    fail(ErrorCode::kNotFound, "no tensor {} in {} files", "a.weight", 3);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_STREQ(error.what(), "no tensor a.weight in 3 files");
    return;
  }
  FAIL() << "nothing thrown";
}

TEST(Error, RequireThrowsOnlyWhenTheConditionFails) {
  EXPECT_NO_THROW(require(true, ErrorCode::kBadRequest, "x is {}", 1));
  try {
    require(false, ErrorCode::kBadRequest, "x is {}", 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    EXPECT_STREQ(error.what(), "x is 1");
    return;
  }
  FAIL() << "nothing thrown";
}

// A name with braces must reach the message, not the format.
TEST(Error, ArgumentsAreNotFormatStrings) {
  try {
    fail(ErrorCode::kIo, "cannot read {}", "{} {0} %s");
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot read {} {0} %s");
    return;
  }
  FAIL() << "nothing thrown";
}

TEST(Error, IsARuntimeErrorForCallersWhoKnowNoMore) {
  EXPECT_THROW(fail(ErrorCode::kIo, "disk"), std::runtime_error);
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  const ErrorCode codes[] = {ErrorCode::kBadRequest,        ErrorCode::kNotFound,
                             ErrorCode::kBadCheckpoint,     ErrorCode::kUnsupported,
                             ErrorCode::kUnsupportedDevice, ErrorCode::kOutOfMemory,
                             ErrorCode::kOverloaded,        ErrorCode::kIo,
                             ErrorCode::kInternal};
  for (ErrorCode code : codes) {
    EXPECT_NE(to_string(code), "unknown");
    EXPECT_FALSE(to_string(code).empty());
    names.insert(to_string(code));
  }
  EXPECT_EQ(names.size(), std::size(codes));
  EXPECT_EQ(to_string(static_cast<ErrorCode>(99)), "unknown");
}

}  // namespace
}  // namespace dsv4
