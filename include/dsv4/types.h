// types.h: the plain value types that every part of the API shares; no behaviour, no ownership.
#pragma once

#include <cstdint>

namespace dsv4 {

// A vocabulary id. Signed, so that -1 can mean "none"; valid ids are 0 .. vocabulary size - 1.
using TokenId = std::int32_t;

}  // namespace dsv4
