// Recorded work: it runs when it is replayed, as often as it is, and not before. The expert GEMMs
// in a graph: moe/expert_graph_test.cc.
#include "cuda/graph.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "cuda/cuda_test.h"

namespace dsv4::cuda {
namespace {

class GraphTest : public CudaTest {
 protected:
  // Of the first two bytes of a buffer.
  std::uint16_t read(const DeviceBuffer& buffer) {
    std::uint16_t value = 0;
    backend().copy_to_host(&value, buffer.data(), sizeof(value), {});
    backend().synchronize({});
    return value;
  }
  void write(const DeviceBuffer& buffer, std::uint8_t byte) {
    backend().fill(buffer.data(), byte, 2, {});
    backend().synchronize({});
  }
};

TEST_F(GraphTest, RunsAtEveryReplayAndNotBefore) {
  const DeviceBuffer from = backend().allocate(2), to = backend().allocate(2);
  const auto owned = backend().create_stream();
  const auto stream = static_cast<cudaStream_t>(owned->get().handle);
  write(to, 1);
  const Graph graph(stream,
                    [&] { backend().copy_on_device(to.data(), from.data(), 2, owned->get()); });
  backend().synchronize(owned->get());
  EXPECT_EQ(read(to), 0x0101);
  for (const std::uint8_t byte : {2, 3}) {
    write(from, byte);
    graph.replay(stream);
    backend().synchronize(owned->get());
    EXPECT_EQ(read(to), byte * 0x0101);
  }
}

TEST_F(GraphTest, AFailedRecordingLeavesTheStreamUsable) {
  const DeviceBuffer buffer = backend().allocate(2);
  const auto owned = backend().create_stream();
  const auto stream = static_cast<cudaStream_t>(owned->get().handle);
  write(buffer, 1);
  const auto record = [&](bool fails) {
    return Graph(stream, [&] {
      backend().fill(buffer.data(), 2, 2, owned->get());
      if (fails) fail(ErrorCode::kBadRequest, "no");
    });
  };
  EXPECT_THROW(record(true), Error);
  backend().synchronize(owned->get());
  EXPECT_EQ(read(buffer), 0x0101);
  const Graph graph = record(false);
  graph.replay(stream);
  backend().synchronize(owned->get());
  EXPECT_EQ(read(buffer), 0x0202);
}

}  // namespace
}  // namespace dsv4::cuda
