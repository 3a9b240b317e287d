#include "backends/backends.h"

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace dsv4 {

std::vector<std::string> available_backends() { return {"reference", "cpu"}; }

std::unique_ptr<Backend> open_backend(std::string_view name, int num_threads) {
  require(num_threads >= 0 && num_threads <= kMaxThreads, ErrorCode::kBadRequest,
          "num_threads is {}; it must be between 0, all cores, and {}", num_threads, kMaxThreads);
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "cpu") return std::make_unique<CpuBackend>(CpuOptions{.num_threads = num_threads});
  std::string names;
  for (const std::string& known : available_backends())
    names += (names.empty() ? "" : ", ") + known;
  fail(ErrorCode::kUnsupportedDevice, "no device \"{}\" in this build; available: {}", name, names);
}

}  // namespace dsv4
