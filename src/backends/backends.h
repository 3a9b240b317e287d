// backends.h: the backends of this build, and opening one by name. The only folder that knows them
// all.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"

namespace dsv4 {

// Names that open_backend accepts here, e.g. {"reference"}.
std::vector<std::string> available_backends();

// Throws Error: kUnsupportedDevice naming what is available.
std::unique_ptr<Backend> open_backend(std::string_view name);

}  // namespace dsv4
