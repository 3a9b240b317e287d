// The memory ceilings of a CUDA device, by kernels that do nothing else.
#include "cuda/bench/fill.h"
#include "cuda/bench/memory_ceilings.h"
#include "cuda/launch.h"

namespace dsv4::cuda {
namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kBytes = std::int64_t{4} << 30;

// A CTA's piece: kLoads vectors a thread, neighbouring lanes at neighbouring addresses. The best
// numbers of loads among those tried: eight to read, two to copy (eight lose 2%, persistent CTAs
// 4%).
constexpr int kReadLoads = 8, kCopyLoads = 2;

template <int kLoads>
__device__ std::int64_t first_vector() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads * kLoads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads) read(const uint4* from, unsigned* sink) {
  uint4 vectors[kReadLoads];
  const std::int64_t first = first_vector<kReadLoads>();
#pragma unroll
  for (int i = 0; i < kReadLoads; ++i) vectors[i] = from[first + i * kThreads];
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kReadLoads; ++i) {
    bits |= vectors[i].x ^ vectors[i].y ^ vectors[i].z ^ vectors[i].w;
  }
  if (bits == 0x5EED5EED) *sink = bits;  // keeps the loads alive
}

__global__ void __launch_bounds__(kThreads) copy(const uint4* from, uint4* to) {
  uint4 vectors[kCopyLoads];
  const std::int64_t first = first_vector<kCopyLoads>();
#pragma unroll
  for (int i = 0; i < kCopyLoads; ++i) vectors[i] = from[first + i * kThreads];
#pragma unroll
  for (int i = 0; i < kCopyLoads; ++i) to[first + i * kThreads] = vectors[i];
}

// CTAs for kBytes.
constexpr unsigned ctas(int loads) {
  return static_cast<unsigned>(kBytes / 16 / (kThreads * loads));
}

}  // namespace

MemoryCeilings measure_memory(Backend& backend) {
  const DeviceBuffer from = backend.allocate(kBytes);
  const DeviceBuffer to = backend.allocate(kBytes);
  fill_random_bytes(from.data(), kBytes, 1, 0xFF);
  const auto stream_of = [](DeviceStream s) { return static_cast<cudaStream_t>(s.handle); };
  const CallTimes read_times =
      time_calls(backend, {.call = [&](std::int64_t, DeviceStream stream) {
                   launch("read", read, {.grid = ctas(kReadLoads), .block = kThreads},
                          stream_of(stream), from.as<uint4>(), to.as<unsigned>());
                 }});
  const CallTimes copy_times =
      time_calls(backend, {.call = [&](std::int64_t, DeviceStream stream) {
                   launch("copy", copy, {.grid = ctas(kCopyLoads), .block = kThreads},
                          stream_of(stream), from.as<uint4>(), to.as<uint4>());
                 }});
  // The driver's own copy is 2% better, but not in a graph: there it takes a copy engine (2.7
  // TB/s).
  const auto driver_copy = [&](std::int64_t, DeviceStream stream) {
    backend.copy_on_device(to.data(), from.data(), kBytes, stream);
  };
  const CallTimes driver_times = time_calls(backend, {.call = driver_copy, .in_graph = false});
  return {ceiling_of(kBytes, read_times),
          ceiling_of(2.0 * kBytes,
                     copy_times.seconds < driver_times.seconds ? copy_times : driver_times)};
}

}  // namespace dsv4::cuda
