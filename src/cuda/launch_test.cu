// Launches that fail, and kernels that fault: the error names the kernel.
#include <gmock/gmock.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cuda/cuda_test.h"
#include "cuda/device/dependent_launch.h"
#include "cuda/launch.h"

namespace dsv4::cuda {
namespace {

using LaunchTest = CudaTest;
// A fault ends all use of the device by its process, so these run in processes of their own.
using LaunchDeathTest = CudaTest;

__global__ void store(int* to, int value) { to[blockIdx.x * blockDim.x + threadIdx.x] = value; }
__global__ void store_through_shared(int* to, int value) {
  extern __shared__ int shared[];
  shared[threadIdx.x] = value;
  __syncthreads();
  to[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

// Adds one to *value, after `cycles`.
__global__ void add_late(volatile int* value, std::int64_t cycles) {
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const std::int64_t start = clock64();
  while (clock64() - start < cycles) continue;
  *value = *value + 1;
}
// Returns at once, after it has waited for the kernels before.
__global__ void do_nothing() {
  griddepcontrol_launch_dependents();
  griddepcontrol_wait();
}

std::string refusal(const LaunchShape& shape) {
  try {
    launch("store", store, shape, nullptr, nullptr, 1);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

int first_of(CudaBackend& backend, const DeviceBuffer& buffer) {
  int value = 0;
  backend.copy_to_host(&value, buffer.data(), sizeof(value), {});
  backend.synchronize({});
  return value;
}

TEST_F(LaunchTest, RunsTheKernelOnItsStream) {
  const auto owned = backend().create_stream();
  const auto stream = static_cast<cudaStream_t>(owned->get().handle);
  const DeviceBuffer buffer = backend().allocate(4 * 96);
  launch("store", store, {.grid = 3, .block = 32}, stream, buffer.as<int>(), 7);
  launch("store", store, {.grid = 1, .block = 32}, stream, buffer.as<int>() + 32, 8);
  backend().synchronize({stream});
  int got[96] = {};
  backend().copy_to_host(got, buffer.data(), sizeof(got), {});
  backend().synchronize({});
  EXPECT_EQ(got[31], 7);
  EXPECT_EQ(got[32], 8);
  EXPECT_EQ(got[95], 7);
}

// A kernel that starts early sees what all those before it wrote, also past one that ends at once.
TEST_F(LaunchTest, KernelsThatOverlapKeepTheirOrder) {
  constexpr int kRounds = 200;
  const DeviceBuffer buffer = backend().allocate(sizeof(int));
  backend().fill(buffer.data(), 0, sizeof(int), {});
  backend().synchronize({});
  const LaunchShape shape = {.grid = 1, .block = 1, .overlaps = true};
  const auto owned = backend().create_stream();
  const auto stream = static_cast<cudaStream_t>(owned->get().handle);
  for (int i = 0; i < kRounds; ++i) {
    launch("add_late", add_late, shape, stream, buffer.as<int>(), i % 2 == 0 ? 20000 : 0);
    launch("do_nothing", do_nothing, shape, stream);
  }
  backend().synchronize({stream});
  EXPECT_EQ(first_of(backend(), buffer), kRounds);
}

TEST_F(LaunchTest, AllTheSharedMemoryOfAnSmCanBeHad) {
  constexpr int kMaxSharedBytes = 227 * 1024;
  const DeviceBuffer buffer = backend().allocate(4 * 32);
  launch("store_through_shared", store_through_shared,
         {.grid = 1, .block = 32, .shared_bytes = kMaxSharedBytes}, nullptr, buffer.as<int>(), 9);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(first_of(backend(), buffer), 9);
}

TEST_F(LaunchTest, AnEmptyGridIsNoLaunch) {
  EXPECT_EQ(refusal({.grid = dim3(0), .block = 32}), "no error");
  EXPECT_EQ(refusal({.grid = dim3(1, 0), .block = 32}), "no error");
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
}

TEST_F(LaunchTest, AShapeThatNoDeviceTakesIsRefusedWithItsNumbers) {
  EXPECT_THAT(refusal({.grid = 1, .block = 2048}),
              testing::HasSubstr("the kernel store was not launched (grid 1 x 1 x 1, block 2048 x "
                                 "1 x 1, 0 bytes of shared memory)"));
  EXPECT_THAT(refusal({.grid = 1, .block = 32, .shared_bytes = 1 << 20}),
              testing::HasSubstr("the kernel store cannot have 1048576 bytes of shared memory"));
  // Neither is found again by the next launch.
  const DeviceBuffer buffer = backend().allocate(4 * 32);
  launch("store", store, {.grid = 1, .block = 32}, nullptr, buffer.as<int>(), 3);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(first_of(backend(), buffer), 3);
}

// Writes where no memory is; prints what launch and synchronize say, and exits.
[[noreturn]] void fault(const char* sync) {
  setenv("DSV4_CUDA_SYNC", sync, 1);
  CudaBackend backend(0);
  try {
    launch("store", store, {.grid = 1, .block = 32}, nullptr, static_cast<int*>(nullptr), 1);
    std::fputs("launched; ", stderr);
    cudaDeviceSynchronize();
    backend.synchronize({});
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
  }
  std::_Exit(0);
}

TEST_F(LaunchDeathTest, WithSyncTheKernelThatFaultedIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault("1"), testing::ExitedWithCode(0),
              "^the kernel store failed: .*illegal memory access");
}

TEST_F(LaunchDeathTest, WithoutItSynchronizeSaysHowToFindTheKernel) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(fault("0"), testing::ExitedWithCode(0),
              "^launched; work on cuda:0 failed: .*illegal memory access.*DSV4_CUDA_SYNC=1");
}

}  // namespace
}  // namespace dsv4::cuda
