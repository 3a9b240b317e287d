#include "backends/backends.h"

#include "base/error.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace dsv4 {

std::vector<std::string> available_backends() { return {"reference", "cpu"}; }

std::unique_ptr<Backend> open_backend(std::string_view name) {
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "cpu") return std::make_unique<CpuBackend>();
  std::string names;
  for (const std::string& known : available_backends())
    names += (names.empty() ? "" : ", ") + known;
  fail(ErrorCode::kUnsupportedDevice, "no device \"{}\" in this build; available: {}", name, names);
}

}  // namespace dsv4
