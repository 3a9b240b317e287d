// The CPU backend's choice of instruction set; the ops are in the files of their families.
#include "cpu/cpu_backend.h"

#include "cpu/dot.h"
#include "cpu/row_math.h"
#include "cpu/source.h"
#include "cpu/targets.h"

namespace dsv4 {
namespace {

constexpr std::int64_t kPlainTarget = HWY_BASELINE_SCALAR;

// Targets that were compiled and that this CPU runs, as a mask; the lowest bit is the best. The
// plain one always is.
std::int64_t usable_targets() { return (hwy::SupportedTargets() & HWY_TARGETS) | kPlainTarget; }

std::int64_t lowest_bit(std::int64_t mask) { return mask & -mask; }

std::int64_t chosen_targets(const std::string& instruction_set) {
  std::string names;
  for (std::int64_t rest = usable_targets(); rest != 0; rest -= lowest_bit(rest)) {
    const char* const name = hwy::TargetName(lowest_bit(rest));
    if (instruction_set.empty() || instruction_set == name) return lowest_bit(rest);
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorCode::kUnsupportedDevice,
       "no instruction set \"{}\" in this build and on this machine; there are {}", instruction_set,
       names);
}

}  // namespace

std::vector<std::string> cpu_instruction_sets() {
  std::vector<std::string> names;
  for (std::int64_t rest = usable_targets(); rest != 0; rest -= lowest_bit(rest)) {
    names.emplace_back(hwy::TargetName(lowest_bit(rest)));
  }
  return names;
}

CpuBackend::CpuBackend(const CpuOptions& options)
    : HostBackend(options.poison_new_memory),
      targets_(chosen_targets(options.instruction_set)),
      dot_(cpu::dot_kernels(targets_)),
      rows_(cpu::row_kernels(targets_)),
      tables_(std::make_unique<cpu::E2m1Tables>()),
      pool_(options.num_threads) {}

CpuBackend::~CpuBackend() = default;

}  // namespace dsv4
