// apply_test.h: a function applied on the device, for tests: to many inputs, whose outputs the host
// compares, or to all words of 32 bits, which the device judges itself.
#pragma once

#include <cstdint>
#include <ios>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/errors.h"
#include "cuda/launch.h"

namespace dsv4::cuda {

inline constexpr int kApplyThreads = 256;  // of a CTA

template <class Function>
__global__ void apply(const typename Function::Input* in, typename Function::Output* out,
                      std::int64_t n) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Function()(in[i]);
}

// The outputs start as a pattern that no result has everywhere, so a kernel that did not run cannot
// pass.
template <class Function>
std::vector<typename Function::Output> apply_on_device(
    CudaBackend& backend, const std::vector<typename Function::Input>& in) {
  using Input = typename Function::Input;
  using Output = typename Function::Output;
  const auto count = static_cast<std::int64_t>(in.size());
  const auto in_bytes = count * static_cast<std::int64_t>(sizeof(Input));
  const auto out_bytes = count * static_cast<std::int64_t>(sizeof(Output));
  const DeviceBuffer device_in = backend.allocate(in_bytes);
  const DeviceBuffer device_out = backend.allocate(out_bytes);
  backend.fill(device_out.data(), 0xA5, out_bytes, {});
  backend.copy_to_device(device_in.data(), in.data(), in_bytes, {});
  backend.synchronize({});
  launch("apply", apply<Function>,
         {.grid = static_cast<unsigned>((count + kApplyThreads - 1) / kApplyThreads),
          .block = kApplyThreads},
         nullptr, device_in.as<Input>(), device_out.as<Output>(), count);
  check_cuda(cudaStreamSynchronize(nullptr), "apply a function");
  std::vector<Output> out(in.size());
  backend.copy_to_host(out.data(), device_out.data(), out_bytes, {});
  backend.synchronize({});
  return out;
}

// counts[0]: words for which Function says true; counts[1]: one for which it does not.
template <class Function>
__global__ void judge_all_words(unsigned long long* counts) {
  unsigned long long right = 0;
  const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
  for (std::uint64_t word = first; word < std::uint64_t{1} << 32; word += step) {
    if (Function()(static_cast<std::uint32_t>(word))) {
      ++right;
    } else {
      counts[1] = word;
    }
  }
  atomicAdd(counts, right);
}

// Function()(word) must be true for all 2^32 words.
template <class Function>
void expect_of_all_words(CudaBackend& backend) {
  const DeviceBuffer device_counts = backend.allocate(2 * sizeof(unsigned long long));
  backend.fill(device_counts.data(), 0, device_counts.size_bytes(), {});
  backend.synchronize({});
  launch("judge_all_words", judge_all_words<Function>, {.grid = 4096, .block = kApplyThreads},
         nullptr, device_counts.as<unsigned long long>());
  check_cuda(cudaStreamSynchronize(nullptr), "judge all words");
  unsigned long long counts[2] = {};
  backend.copy_to_host(counts, device_counts.data(), sizeof(counts), {});
  backend.synchronize({});
  EXPECT_EQ(counts[0], 1ull << 32) << "wrong for " << std::hex << counts[1];
}

}  // namespace dsv4::cuda
