// Memory of the CPU backend, and its choice of instruction set; the ops are in the files of their
// families.
#include "cpu/cpu_backend.h"

#include <cstring>
#include <new>

#include "cpu/dot.h"
#include "cpu/row_math.h"
#include "cpu/source.h"
#include "cpu/targets.h"

namespace dsv4 {
namespace {

constexpr std::align_val_t kAlignment{256};
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
    : targets_(chosen_targets(options.instruction_set)),
      dot_(cpu::dot_kernels(targets_)),
      rows_(cpu::row_kernels(targets_)),
      tables_(std::make_unique<cpu::E2m1Tables>()),
      pool_(options.num_threads),
      poison_new_memory_(options.poison_new_memory) {}

CpuBackend::~CpuBackend() = default;

std::byte* CpuBackend::allocate_bytes(std::int64_t bytes) {
  DSV4_CHECK(bytes >= 0);
  if (bytes == 0) return nullptr;
  void* data = ::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow);
  require(data != nullptr, ErrorCode::kOutOfMemory, "cannot allocate {} bytes of host memory",
          bytes);
  allocated_bytes_ += bytes;
  if (poison_new_memory_) std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
  return static_cast<std::byte*>(data);
}

void CpuBackend::free_bytes(std::byte* data, std::int64_t bytes) noexcept {
  if (data == nullptr) return;
  ::operator delete(data, kAlignment);
  allocated_bytes_ -= bytes;
}

void CpuBackend::copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void CpuBackend::copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void CpuBackend::copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
void CpuBackend::fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream) {
  if (bytes > 0) std::memset(to, byte, static_cast<std::size_t>(bytes));
}

}  // namespace dsv4
