// The ceilings of a CPU: bytes read from memory, bytes copied, and fused multiply-adds, measured.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/ceilings.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Adds up floats [n], n a multiple of kPiece, from four places of a piece at once: the fastest of
// the orders tried. One sequence of addresses gave 25% less, software prefetch in any form as well.
constexpr std::int64_t kPiece = 16384;
float read_floats(const float* x, std::int64_t n) {
  Lanes sums[4];
  for (Lanes& sum : sums) sum = broadcast(0.0f);
  for (std::int64_t piece = 0; piece < n; piece += kPiece) {
    for (std::int64_t i = 0; i < kPiece / 4; i += 16) {
      for (int s = 0; s < 4; ++s) {
        sums[s] = add(sums[s], load(x + piece + s * (kPiece / 4) + i));
      }
    }
  }
  for (int s = 1; s < 4; ++s) sums[0] = add(sums[0], sums[s]);
  return sum_lanes<false>(sums[0]);
}

// Copies floats [n], n a multiple of kPiece, past the caches.
void copy_floats(const float* from, float* to, std::int64_t n) {
#if DSV4_CPU_SCALAR_LANES
  std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
#else
  for (std::int64_t i = 0; i < n; i += kLanesPerRegister) {
    hn::Stream(hn::LoadU(LaneTag(), from + i), LaneTag(), to + i);
  }
#endif
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

#include "bench/bench.h"

namespace dsv4::cpu {
HWY_EXPORT(read_floats);
HWY_EXPORT(copy_floats);
HWY_EXPORT(fma_chains);
HWY_EXPORT(fma_chain_lanes);
}  // namespace dsv4::cpu

namespace dsv4::bench {
namespace {

constexpr std::int64_t kChunk = 4 << 20;
constexpr std::int64_t kPieceFloats = 16384;  // what read_floats takes at once

std::int64_t targets_of(const std::string& instruction_set) {
  for (std::int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    if (instruction_set.empty() || instruction_set == hwy::TargetName(rest & -rest))
      return rest & -rest;
  }
  return HWY_BASELINE_SCALAR;
}

}  // namespace

Ceilings::Ceilings(const BenchOptions& options)
    : pool_(options.cpu.num_threads),
      cpu_time_(options.cpu_time),
      targets_(targets_of(options.cpu.instruction_set)),
      buffer_(static_cast<std::size_t>(options.bytes / kChunk * kChunk)) {
  std::fill_n(buffer_.as<float>(), buffer_.size_bytes() / sizeof(float), 1.0f);
}

double Ceilings::read_bytes_per_second() {
  return read_bytes_per_second({buffer_.as<float>(), buffer_.size_bytes() / sizeof(float)});
}

double Ceilings::read_bytes_per_second(std::span<const float> values) {
  std::atomic<float> sink = 0;
  const auto count = static_cast<std::int64_t>(values.size()) / kPieceFloats * kPieceFloats;
  const double seconds = seconds_of(
      [&] {
        pool_.parallel_for(count, kChunk / 4, [&](std::int64_t begin, std::int64_t end) {
          sink = DSV4_CPU_KERNEL(cpu::read_floats, targets_)(values.data() + begin, end - begin);
        });
      },
      pool_.num_threads(), cpu_time_);
  return static_cast<double>(count) * 4 / seconds;
}

double Ceilings::copy_bytes_per_second() {
  const auto half = static_cast<std::int64_t>(buffer_.size_bytes() / sizeof(float)) / 2 /
                    (kChunk / 4) * (kChunk / 4);
  float* const values = buffer_.as<float>();
  const double seconds = seconds_of(
      [&] {
        pool_.parallel_for(half, kChunk / 4, [&](std::int64_t begin, std::int64_t end) {
          DSV4_CPU_KERNEL(cpu::copy_floats, targets_)
          (values + begin, values + half + begin, end - begin);
        });
      },
      pool_.num_threads(), cpu_time_);
  return static_cast<double>(half) * 8 / seconds;
}

double Ceilings::fma_flops_per_second() {
  constexpr std::int64_t kSteps = 1'000'000;
  const std::int64_t pieces = 4 * pool_.num_threads();
  std::atomic<float> sink = 0;
  const double seconds = seconds_of(
      [&] {
        pool_.parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t) {
          sink =
              DSV4_CPU_KERNEL(cpu::fma_chains, targets_)(kSteps, 1.0f + static_cast<float>(begin));
        });
      },
      pool_.num_threads(), cpu_time_);
  const int lanes = DSV4_CPU_KERNEL(cpu::fma_chain_lanes, targets_)();
  return 2.0 * lanes * static_cast<double>(kSteps * pieces) / seconds;
}

}  // namespace dsv4::bench
#endif  // HWY_ONCE
