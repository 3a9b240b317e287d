// poisoned_backend.h: a backend of the host whose new memory holds NaN.
#pragma once

#include <memory>
#include <string_view>

#include "base/check.h"
#include "cpu/cpu_backend.h"
#include "reference/reference_backend.h"

namespace dsv4 {

// "reference" or "cpu".
inline std::unique_ptr<Backend> poisoned_backend(std::string_view name) {
  if (name == "cpu") return std::make_unique<CpuBackend>(CpuOptions{.poison_new_memory = true});
  DSV4_CHECK(name == "reference");
  return std::make_unique<ReferenceBackend>(/*poison_new_memory=*/true);
}

}  // namespace dsv4
