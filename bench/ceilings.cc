// The two ceilings of a CPU: bytes read from memory and fused multiply-adds, measured.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ceilings.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Adds up floats [n], n a multiple of 128, from eight places of the range at once.
float read_floats(const float* x, std::int64_t n) {
  Lanes sums[8];
  for (Lanes& sum : sums) sum = broadcast(0.0f);
  for (std::int64_t i = 0; i < n; i += 8 * 16) {
    for (int s = 0; s < 8; ++s) {
      const float* const at = x + i + s * 16;
      __builtin_prefetch(at + 1024, 0, 2);
      sums[s] = add(sums[s], load(at));
    }
  }
  for (int s = 1; s < 8; ++s) sums[0] = add(sums[0], sums[s]);
  return sum_lanes<false>(sums[0]);
}

// `steps` times twelve independent FMAs of sixteen lanes.
constexpr int kChains = HWY_TARGET == HWY_AVX2 ? 6 : 12;
float fma_chains(std::int64_t steps, float x) {
  Lanes acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = broadcast(x + static_cast<float>(i));
  const Lanes a = broadcast(0.999f);
  const Lanes b = broadcast(x);
  for (std::int64_t step = 0; step < steps; ++step) {
    for (Lanes& chain : acc) chain = fma(chain, a, b);
  }
  for (int i = 1; i < kChains; ++i) acc[0] = add(acc[0], acc[i]);
  return sum_lanes<false>(acc[0]);
}
int fma_chain_lanes() { return kChains * 16; }

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <chrono>

#include "bench/bench.h"

namespace dsv4::cpu {
HWY_EXPORT(read_floats);
HWY_EXPORT(fma_chains);
HWY_EXPORT(fma_chain_lanes);
}  // namespace dsv4::cpu

namespace dsv4::bench {
namespace {

constexpr std::int64_t kChunk = 4 << 20;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t targets_of(const std::string& instruction_set) {
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    if (instruction_set.empty() || instruction_set == hwy::TargetName(rest & -rest))
      return rest & -rest;
  }
  return HWY_BASELINE_SCALAR;
}

}  // namespace

Ceilings::Ceilings(const CpuOptions& cpu, std::int64_t read_bytes)
    : pool_(cpu.num_threads),
      targets_(targets_of(cpu.instruction_set)),
      buffer_(static_cast<std::size_t>(read_bytes / kChunk * kChunk / 4), 1.0f) {}

double Ceilings::read_bytes_per_second() {
  std::atomic<float> sink = 0;
  const auto count = static_cast<std::int64_t>(buffer_.size());
  const double seconds = seconds_of([&] {
    pool_.parallel_for(count, kChunk / 4, [&](std::int64_t begin, std::int64_t end) {
      sink = DSV4_CPU_KERNEL(cpu::read_floats, targets_)(buffer_.data() + begin, end - begin);
    });
  });
  return static_cast<double>(count) * 4 / seconds;
}

double Ceilings::fma_flops_per_second() {
  constexpr std::int64_t kSteps = 1'000'000;
  const std::int64_t pieces = 4 * pool_.num_threads();
  std::atomic<float> sink = 0;
  const double seconds = seconds_of([&] {
    pool_.parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t) {
      sink = DSV4_CPU_KERNEL(cpu::fma_chains, targets_)(kSteps, 1.0f + static_cast<float>(begin));
    });
  });
  const int lanes = DSV4_CPU_KERNEL(cpu::fma_chain_lanes, targets_)();
  return 2.0 * lanes * static_cast<double>(kSteps * pieces) / seconds;
}

}  // namespace dsv4::bench
#endif  // HWY_ONCE
