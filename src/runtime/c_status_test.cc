// The statuses of the C API and the codes of Error are one set, but for what only C has: OK, and
// CANCELLED, which in C++ is whatever the caller's callback throws.
#include "runtime/c_status.h"

#include <gtest/gtest.h>

#include <map>

namespace dsv4 {
namespace {

TEST(CStatus, CodesAndStatusesAreOneSet) {
  const std::map<dsv4_status, ErrorCode> code_of = {
      {DSV4_BAD_REQUEST, ErrorCode::kBadRequest},
      {DSV4_NOT_FOUND, ErrorCode::kNotFound},
      {DSV4_BAD_CHECKPOINT, ErrorCode::kBadCheckpoint},
      {DSV4_UNSUPPORTED, ErrorCode::kUnsupported},
      {DSV4_UNSUPPORTED_DEVICE, ErrorCode::kUnsupportedDevice},
      {DSV4_OUT_OF_MEMORY, ErrorCode::kOutOfMemory},
      {DSV4_OVERLOADED, ErrorCode::kOverloaded},
      {DSV4_IO, ErrorCode::kIo},
      {DSV4_INTERNAL, ErrorCode::kInternal}};
  for (const auto& [status, code] : code_of) EXPECT_EQ(status_of(code), status);
  // None is left out: both sets are numbered without gaps, and begin and end with these.
  EXPECT_EQ(DSV4_CANCELLED, DSV4_INTERNAL + 1);
  const auto num_codes = static_cast<std::size_t>(ErrorCode::kInternal) + 1;
  EXPECT_EQ(code_of.size(), num_codes);
  EXPECT_EQ(static_cast<std::size_t>(DSV4_INTERNAL), num_codes);
  EXPECT_EQ(static_cast<int>(DSV4_OK), 0);
  EXPECT_EQ(to_string(static_cast<ErrorCode>(num_codes)), "unknown");
}

}  // namespace
}  // namespace dsv4
