// Memory, copies and streams of the CUDA backend. Ops: the tests of each contract run on it, too.
#include "cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/cuda_test.h"

namespace dsv4::cuda {
namespace {

using CudaBackendTest = CudaTest;

std::vector<std::uint8_t> counting_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  return bytes;
}

TEST_F(CudaBackendTest, CountsTheBytesOfLiveBuffersExactly) {
  EXPECT_EQ(backend().allocated_bytes(), 0);
  {
    const DeviceBuffer one = backend().allocate(1);
    DeviceBuffer large = backend().allocate((std::int64_t{1} << 32) + 3);
    EXPECT_EQ(backend().allocated_bytes(), (std::int64_t{1} << 32) + 4);
    large = backend().allocate(5);
    EXPECT_EQ(backend().allocated_bytes(), 6);
    const DeviceBuffer moved = std::move(large);
    EXPECT_EQ(backend().allocated_bytes(), 6);
  }
  EXPECT_EQ(backend().allocated_bytes(), 0);
}

TEST_F(CudaBackendTest, NoBytesAreNoMemory) {
  const DeviceBuffer none = backend().allocate(0);
  EXPECT_EQ(none.data(), nullptr);
  backend().copy_to_device(nullptr, nullptr, 0, {});
  backend().copy_to_host(nullptr, nullptr, 0, {});
  backend().copy_on_device(nullptr, nullptr, 0, {});
  backend().fill(nullptr, 1, 0, {});
  backend().synchronize({});
}

TEST_F(CudaBackendTest, MemoryIsAlignedAsTheContractSays) {
  std::vector<DeviceBuffer> buffers;
  for (std::int64_t bytes = 1; bytes < 2000; bytes += 333) {
    buffers.push_back(backend().allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 256, 0u) << bytes;
  }
}

TEST_F(CudaBackendTest, TooMuchMemoryIsRefusedWithNumbersAndChangesNothing) {
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 50;
  try {
    backend().allocate(kTooMuch);
    FAIL() << "a pebibyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("cannot allocate 1125899906842624 bytes on cuda:0: "
                                      "[0-9]+ of its [0-9]+ are free"));
  }
  EXPECT_EQ(backend().allocated_bytes(), 0);
  const DeviceBuffer buffer = backend().allocate(256);
  backend().fill(buffer.data(), 1, 256, {});
  backend().synchronize({});
}

// Lengths and offsets that no wide access divides, and copies longer than any staging buffer.
TEST_F(CudaBackendTest, BytesComeBackAsTheyWent) {
  for (const std::int64_t bytes : {1, 3, 255, 4097, (9 << 20) + 1}) {
    SCOPED_TRACE(bytes);
    const std::vector<std::uint8_t> sent = counting_bytes(static_cast<std::size_t>(bytes));
    const DeviceBuffer a = backend().allocate(bytes + 2);
    const DeviceBuffer b = backend().allocate(bytes + 2);
    backend().fill(a.data(), 0xA5, bytes + 2, {});
    backend().fill(b.data(), 0x5A, bytes + 2, {});
    backend().copy_to_device(a.data() + 1, sent.data(), bytes, {});
    backend().copy_on_device(b.data() + 1, a.data() + 1, bytes, {});
    std::vector<std::uint8_t> got(static_cast<std::size_t>(bytes + 2));
    backend().copy_to_host(got.data(), b.data(), bytes + 2, {});
    backend().synchronize({});
    EXPECT_EQ(got.front(), 0x5A);
    EXPECT_EQ(got.back(), 0x5A);
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin() + 1));
  }
}

TEST_F(CudaBackendTest, WorkOnOneStreamIsDoneInOrder) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  constexpr std::int64_t kBytes = 64 << 20;
  const DeviceBuffer buffer = backend().allocate(kBytes);
  for (const DeviceStream on : {DeviceStream{}, DeviceStream{stream}}) {
    std::vector<std::uint8_t> got(kBytes);
    for (int i = 0; i < 8; ++i) {
      backend().fill(buffer.data(), static_cast<std::uint8_t>(i), kBytes, on);
    }
    backend().copy_to_host(got.data(), buffer.data(), kBytes, on);
    backend().synchronize(on);
    EXPECT_EQ(std::count(got.begin(), got.end(), 7), kBytes);
  }
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(CudaBackendTest, ADeviceThatIsNotThereIsNamedWithThoseThatAre) {
  try {
    CudaBackend missing(4096);
    FAIL() << "cuda:4096 was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedDevice);
    EXPECT_THAT(error.what(), testing::StartsWith("there is no cuda:4096; the devices are cuda:0"));
  }
}

}  // namespace
}  // namespace dsv4::cuda
