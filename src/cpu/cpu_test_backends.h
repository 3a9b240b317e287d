// cpu_test_backends.h: the CPU backend in every shape that must not show in its bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_backend.h"

namespace dsv4::testing {

struct NamedBackend {
  std::string name;
  std::unique_ptr<CpuBackend> backend;
};

// Every instruction set with 2 threads, and the best with 1 and 3.
inline std::vector<NamedBackend> cpu_variants() {
  std::vector<NamedBackend> variants;
  const auto add = [&variants](const std::string& set, int threads) {
    variants.push_back({set + " with " + std::to_string(threads) + " threads",
                        std::make_unique<CpuBackend>(CpuOptions{threads, set})});
  };
  for (const std::string& set : cpu_instruction_sets()) add(set, 2);
  add(cpu_instruction_sets().front(), 1);
  add(cpu_instruction_sets().front(), 3);
  return variants;
}

}  // namespace dsv4::testing
