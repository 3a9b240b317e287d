// error.h: the one exception that the library throws, and its codes.
//
// Thrown at the door only: loading a checkpoint, an API call, an op's `check`. Messages say what is
// wrong, where, and what to do. Translated for C, Python and HTTP by those borders.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace dsv4 {

enum class ErrorCode {
  kBadRequest,         // an argument that the caller can correct
  kNotFound,           // a file, tensor or name that is not there
  kBadCheckpoint,      // a model directory that is damaged or contradicts itself
  kUnsupported,        // valid, but this build or this device cannot do it
  kUnsupportedDevice,  // the device is missing or too old
  kOutOfMemory,        // host or device memory
  kOverloaded,         // try again later
  kIo,                 // the operating system refused a read or a write
  kInternal,           // anything else: a bug of dsv4; please report it
};

// The code's name as printed, e.g. "bad checkpoint".
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace dsv4
