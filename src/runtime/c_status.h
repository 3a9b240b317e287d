// c_status.h: the C API's status of each error code. The names and meanings of both sets are the
// same: dsv4/error.h, dsv4/dsv4.h.
#pragma once

#include "dsv4/dsv4.h"
#include "dsv4/error.h"

namespace dsv4 {

constexpr dsv4_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadRequest:
      return DSV4_BAD_REQUEST;
    case ErrorCode::kNotFound:
      return DSV4_NOT_FOUND;
    case ErrorCode::kBadCheckpoint:
      return DSV4_BAD_CHECKPOINT;
    case ErrorCode::kUnsupported:
      return DSV4_UNSUPPORTED;
    case ErrorCode::kUnsupportedDevice:
      return DSV4_UNSUPPORTED_DEVICE;
    case ErrorCode::kOutOfMemory:
      return DSV4_OUT_OF_MEMORY;
    case ErrorCode::kOverloaded:
      return DSV4_OVERLOADED;
    case ErrorCode::kIo:
      return DSV4_IO;
    case ErrorCode::kInternal:
      return DSV4_INTERNAL;
  }
  return DSV4_INTERNAL;
}

}  // namespace dsv4
