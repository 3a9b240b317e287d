// Memory, copies, streams and events of the CUDA backend. What every backend does:
// ops/backend_test.cc, and the tests of each contract.
#include "cuda/cuda_backend.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/errors.h"

namespace dsv4::cuda {
namespace {

using CudaBackendTest = CudaTest;

cudaStream_t cuda_stream(const OwnedStream& stream) {
  return static_cast<cudaStream_t>(stream.get().handle);
}

// Work queued on `stream` after this waits until open() or the end of the scope.
class StreamGate {
 public:
  explicit StreamGate(cudaStream_t stream) {
    using Opened = std::future<void>;
    const auto wait = [](void* opened) {
      std::unique_ptr<Opened>(static_cast<Opened*>(opened))->wait();
    };
    check_cuda(cudaLaunchHostFunc(stream, wait, new Opened(opened_.get_future())), "close a gate");
  }
  ~StreamGate() { open(); }
  void open() {
    if (!std::exchange(is_open_, true)) opened_.set_value();
  }

 private:
  bool is_open_ = false;
  std::promise<void> opened_;
};

// Late enough that a call which ought to wait for the gate, and does not, has returned before.
std::future<void> open_later(StreamGate& gate) {
  return std::async(std::launch::async, [&gate] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    gate.open();
  });
}

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
  const DeviceBuffer live = backend().allocate(1000);
  const std::int64_t reserved = backend().reserved_bytes();
  try {
    backend().allocate(kTooMuch);
    FAIL() << "a pebibyte was allocated";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(error.what(),
                testing::MatchesRegex("cannot allocate 1125899906842624 bytes on cuda:0: "
                                      "buffers have 1000, their pool holds [0-9]+, and of the "
                                      "device's [0-9]+ there are [0-9]+ free"));
  }
  EXPECT_EQ(backend().allocated_bytes(), 1000);
  EXPECT_EQ(backend().reserved_bytes(), reserved);
  const DeviceBuffer buffer = backend().allocate(256);
  backend().fill(buffer.data(), 1, 256, {});
  backend().synchronize({});
}

TEST_F(CudaBackendTest, NewMemoryIsPoisonAlsoWhereOldDataWas) {
  constexpr std::int64_t kBytes = 1 << 20;
  for (int round = 0; round < 3; ++round) {
    const DeviceBuffer buffer = backend().allocate(kBytes);
    std::vector<std::uint8_t> got(kBytes);
    backend().copy_to_host(got.data(), buffer.data(), kBytes, {});
    backend().fill(buffer.data(), 0x11, kBytes, {});
    backend().synchronize({});
    EXPECT_EQ(std::count(got.begin(), got.end(), 0xFF), kBytes);
  }
}

TEST_F(CudaBackendTest, FreedMemoryIsUsedAgainBeforeMoreIsTaken) {
  constexpr std::int64_t kBytes = 100 << 20;
  backend().allocate(kBytes);
  const std::int64_t reserved = backend().reserved_bytes();
  EXPECT_GE(reserved, kBytes);
  EXPECT_LT(reserved, 2 * kBytes);
  for (int round = 0; round < 100; ++round) {
    const DeviceBuffer whole = backend().allocate(kBytes);
    EXPECT_EQ(backend().reserved_bytes(), reserved);
  }
  // Four pieces of it, too.
  std::vector<DeviceBuffer> pieces;
  for (int i = 0; i < 4; ++i) pieces.push_back(backend().allocate(kBytes / 4));
  EXPECT_EQ(backend().reserved_bytes(), reserved);
}

// A fill waits on a stream behind a gate when its buffer is freed. Were the memory given out before
// the gate opens, the fill would come after that of the new buffer.
TEST_F(CudaBackendTest, FreedMemoryIsNotUsedAgainWhileQueuedWorkMayTouchIt) {
  constexpr std::int64_t kBytes = 64 << 20;
  const auto closed = backend().create_stream(), open = backend().create_stream();
  StreamGate gate(cuda_stream(*closed));
  std::byte* freed = nullptr;
  {
    const DeviceBuffer old = backend().allocate(kBytes);
    freed = old.data();
    backend().fill(old.data(), 0x11, kBytes, closed->get());
  }
  const auto opened = open_later(gate);
  const DeviceBuffer fresh = backend().allocate(kBytes);
  EXPECT_EQ(fresh.data(), freed) << "the test needs the same memory";
  backend().fill(fresh.data(), 0x22, kBytes, open->get());
  backend().synchronize(open->get());
  backend().synchronize(closed->get());
  std::vector<std::uint8_t> got(kBytes);
  backend().copy_to_host(got.data(), fresh.data(), kBytes, {});
  backend().synchronize({});
  EXPECT_EQ(std::count(got.begin(), got.end(), 0x22), kBytes);
}

TEST_F(CudaBackendTest, TrimGivesBackWhatIsFreeAndNothingElse) {
  constexpr std::int64_t kBytes = 200 << 20;
  const std::vector<std::uint8_t> sent = counting_bytes(1000);
  const DeviceBuffer live = backend().allocate(1000);
  backend().copy_to_device(live.data(), sent.data(), 1000, {});
  backend().synchronize({});
  backend().trim();
  const std::int64_t reserved = backend().reserved_bytes();
  EXPECT_GE(reserved, 1000);
  backend().allocate(kBytes);
  EXPECT_GE(backend().reserved_bytes(), kBytes);
  backend().trim();
  EXPECT_EQ(backend().reserved_bytes(), reserved);
  std::vector<std::uint8_t> got(1000);
  backend().copy_to_host(got.data(), live.data(), 1000, {});
  backend().synchronize({});
  EXPECT_EQ(got, sent);
}

TEST_F(CudaBackendTest, TwoBackendsOfADeviceHaveMemoryOfTheirOwn) {
  CudaBackend other(0);
  const DeviceBuffer ours = backend().allocate(100);
  EXPECT_EQ(other.allocated_bytes(), 0);
  EXPECT_EQ(other.reserved_bytes(), 0);
  {
    const DeviceBuffer theirs = other.allocate(7);
    EXPECT_EQ(other.allocated_bytes(), 7);
    EXPECT_EQ(backend().allocated_bytes(), 100);
  }
  const std::int64_t reserved = backend().reserved_bytes();
  other.trim();
  EXPECT_EQ(other.reserved_bytes(), 0);
  EXPECT_EQ(backend().reserved_bytes(), reserved);
}

// What is freed last has to outlive the backend's last work as well.
TEST_F(CudaBackendTest, ABackendMayEndWhileItsMemoryIsWrittenTo) {
  const auto stream = backend().create_stream();
  {
    CudaBackend ending(0);
    const DeviceBuffer buffer = ending.allocate(64 << 20);
    for (int i = 0; i < 100; ++i) ending.fill(buffer.data(), 1, 64 << 20, stream->get());
  }
  backend().synchronize(stream->get());
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
  const auto stream = backend().create_stream();
  constexpr std::int64_t kBytes = 64 << 20;
  const DeviceBuffer buffer = backend().allocate(kBytes);
  for (const DeviceStream on : {DeviceStream{}, stream->get()}) {
    std::vector<std::uint8_t> got(kBytes);
    for (int i = 0; i < 8; ++i) {
      backend().fill(buffer.data(), static_cast<std::uint8_t>(i), kBytes, on);
    }
    backend().copy_to_host(got.data(), buffer.data(), kBytes, on);
    backend().synchronize(on);
    EXPECT_EQ(std::count(got.begin(), got.end(), 7), kBytes);
  }
}

// While one stream stands still, a second one works, and a third that an event holds does not.
TEST_F(CudaBackendTest, AHeldStreamStandsStillAndOthersDoNot) {
  const auto closed = backend().create_stream(), held = backend().create_stream(),
             open = backend().create_stream();
  const auto event = backend().create_event();
  const DeviceBuffer buffer = backend().allocate(1), copied = backend().allocate(1);
  std::uint8_t before = 0, after = 0;
  backend().fill(buffer.data(), 1, 1, {});
  backend().synchronize({});

  StreamGate gate(cuda_stream(*closed));
  backend().fill(buffer.data(), 2, 1, closed->get());
  event->record(closed->get());
  event->hold(held->get());
  // Not to the host: a copy to pageable memory returns only when it is done.
  backend().copy_on_device(copied.data(), buffer.data(), 1, held->get());
  backend().copy_to_host(&before, buffer.data(), 1, open->get());
  backend().synchronize(open->get());
  EXPECT_EQ(before, 1);
  EXPECT_EQ(cudaStreamQuery(cuda_stream(*held)), cudaErrorNotReady);
  gate.open();
  backend().copy_to_host(&after, copied.data(), 1, held->get());
  backend().synchronize(held->get());
  EXPECT_EQ(after, 2);
}

// Another stream shows what the host has waited for.
TEST_F(CudaBackendTest, TheHostWaitsForAnEventBehindAGate) {
  const auto closed = backend().create_stream(), open = backend().create_stream();
  const auto event = backend().create_event();
  const DeviceBuffer buffer = backend().allocate(1);
  backend().fill(buffer.data(), 1, 1, {});
  backend().synchronize({});
  StreamGate gate(cuda_stream(*closed));
  backend().fill(buffer.data(), 2, 1, closed->get());
  event->record(closed->get());
  const auto opened = open_later(gate);
  event->synchronize();
  std::uint8_t got = 0;
  backend().copy_to_host(&got, buffer.data(), 1, open->get());
  backend().synchronize(open->get());
  EXPECT_EQ(got, 2);
}

// No gate here: under compute-sanitizer the destruction of a stream waits for its work.
TEST_F(CudaBackendTest, AStreamThatIsDestroyedFinishesItsWork) {
  constexpr std::int64_t kBytes = 64 << 20;
  const DeviceBuffer buffer = backend().allocate(kBytes);
  const auto event = backend().create_event();
  std::vector<std::uint8_t> got(kBytes);
  {
    const auto stream = backend().create_stream();
    for (int i = 0; i < 100; ++i) {
      backend().fill(buffer.data(), static_cast<std::uint8_t>(i), kBytes, stream->get());
    }
    event->record(stream->get());
  }
  event->synchronize();
  backend().copy_to_host(got.data(), buffer.data(), kBytes, {});
  backend().synchronize({});
  EXPECT_EQ(std::count(got.begin(), got.end(), 99), kBytes);
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
