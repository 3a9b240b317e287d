// backends.h: the backends of this build, and opening one by name. The only folder that knows them
// all.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"

namespace dsv4 {

// More than any host has cores.
inline constexpr int kMaxThreads = 4096;

// Names that open_backend accepts here, e.g. {"reference"}.
std::vector<std::string> available_backends();

// `num_threads`, the calling thread among them: of a backend that computes on the host; 0: all
// cores of the affinity mask. The reference uses one thread always. Throws Error:
// kUnsupportedDevice naming what is available, kBadRequest for num_threads outside 0 ..
// kMaxThreads.
std::unique_ptr<Backend> open_backend(std::string_view name, int num_threads = 0);

}  // namespace dsv4
