// apply_test.h: a function applied to many inputs on the device, for tests that compare all of them
// with the host.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/errors.h"
#include "cuda/launch.h"

namespace dsv4::cuda {

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
  constexpr int kThreads = 256;
  const auto count = static_cast<std::int64_t>(in.size());
  const auto in_bytes = count * static_cast<std::int64_t>(sizeof(Input));
  const auto out_bytes = count * static_cast<std::int64_t>(sizeof(Output));
  const DeviceBuffer device_in = backend.allocate(in_bytes);
  const DeviceBuffer device_out = backend.allocate(out_bytes);
  backend.fill(device_out.data(), 0xA5, out_bytes, {});
  backend.copy_to_device(device_in.data(), in.data(), in_bytes, {});
  backend.synchronize({});
  launch("apply", apply<Function>,
         {.grid = static_cast<unsigned>((count + kThreads - 1) / kThreads), .block = kThreads},
         nullptr, device_in.as<Input>(), device_out.as<Output>(), count);
  check_cuda(cudaStreamSynchronize(nullptr), "apply a function");
  std::vector<Output> out(in.size());
  backend.copy_to_host(out.data(), device_out.data(), out_bytes, {});
  backend.synchronize({});
  return out;
}

}  // namespace dsv4::cuda
