#include "base/error.h"

namespace dsv4 {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kBadRequest:
      return "bad request";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kBadCheckpoint:
      return "bad checkpoint";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kUnsupportedDevice:
      return "unsupported device";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kOverloaded:
      return "overloaded";
    case ErrorCode::kIo:
      return "input/output error";
    case ErrorCode::kInternal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace dsv4
