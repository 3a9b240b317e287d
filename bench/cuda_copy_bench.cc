// What the backend's own copy reaches at the sizes of a step's activations: how far a memory-bound
// op of that size can come.
#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "bench/cuda_bench.h"
#include "cuda/bench/fill.h"

namespace dsv4::bench {
namespace {

void bench_copy(CudaBench& bench, std::int64_t mib) {
  const std::int64_t bytes = mib << 20;
  CudaBenchmark b{.op = "copy", .shape = fmt::format("{}MiB", mib), .format = "bytes"};
  b.bytes = 2.0 * static_cast<double>(bytes);
  b.memory = CudaCeiling::kCopy;
  b.num_sets = bench.sets_for(b.bytes);
  if (!bench.wants(b)) return;
  Backend& backend = bench.backend();
  const DeviceBuffer from = backend.allocate(bytes * b.num_sets);
  const DeviceBuffer to = backend.allocate(bytes * b.num_sets);
  cuda::fill_random_bytes(from.data(), from.size_bytes(), 3, 0xFF);
  b.call = [&](std::int64_t call_idx, DeviceStream stream) {
    const std::int64_t at = call_idx % b.num_sets * bytes;
    backend.copy_on_device(to.data() + at, from.data() + at, bytes, stream);
  };
  b.check = [&]() -> std::string {
    std::vector<std::byte> want(static_cast<std::size_t>(bytes)), got(want.size());
    backend.fill(to.data(), 0, bytes);
    b.call(0, {});
    backend.copy_to_host(want.data(), from.data(), bytes);
    backend.copy_to_host(got.data(), to.data(), bytes);
    backend.synchronize();
    return std::memcmp(want.data(), got.data(), want.size()) == 0 ? "" : "bytes differ";
  };
  bench.run(b);
}

}  // namespace

void bench_cuda_copy(CudaBench& bench) {
  for (const std::int64_t mib : {1, 16, 64}) bench_copy(bench, mib);
}

}  // namespace dsv4::bench
