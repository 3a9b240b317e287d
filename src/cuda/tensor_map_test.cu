// Tensor maps: what a box brings, where in shared memory, and what lies outside of the matrix.
#include <gtest/gtest.h>

#include <cstdint>
#include <cuda/ptx>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/device/async_copy.h"
#include "cuda/launch.h"
#include "cuda/tensor_map.h"
#include "testing/device_array.h"

namespace dsv4::cuda {
namespace {

using testing::DeviceArray;
using TensorMapTest = CudaTest;

constexpr int kBoxRows = 24, kBoxChunks = 2, kChunkCols = 64;
constexpr int kBoxValues = kBoxRows * kBoxChunks * kChunkCols;

struct BoxAt {
  int row, chunk;
};

__global__ void copy_box(const __grid_constant__ CUtensorMap map, BoxAt at, std::uint16_t* out) {
  __shared__ alignas(1024) std::uint16_t box[kBoxValues];
  __shared__ std::uint64_t full;
  if (threadIdx.x == 0) {
    ::cuda::ptx::mbarrier_init(&full, 1);
    ::cuda::ptx::fence_mbarrier_init(::cuda::ptx::sem_release, ::cuda::ptx::scope_cluster);
    constexpr std::uint32_t kBytes = sizeof(box);
    ::cuda::ptx::mbarrier_arrive_expect_tx(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                           ::cuda::ptx::space_shared, &full, kBytes);
    const std::int32_t coordinates[3] = {0, at.row, at.chunk};
    ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global, box,
                                      &map, coordinates, &full);
  }
  __syncthreads();
  mbarrier_wait_parity(&full, 0);
  for (int i = threadIdx.x; i < kBoxValues; i += blockDim.x) out[i] = box[i];
}

// Value r, c of the box lies in its chunk's row r, whose pieces of eight values are exchanged by
// XOR with r % 8; outside of the matrix are zeros, whatever its row stride hides there.
TEST_F(TensorMapTest, ABoxIsChunksOfSwizzledRows) {
  constexpr int kRows = 30, kCols = 192, kStride = 200;
  std::vector<std::uint16_t> values(kRows * kStride);
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kStride; ++c) {
      values[r * kStride + c] = static_cast<std::uint16_t>(c < kCols ? r * kCols + c + 1 : 0xFFFF);
    }
  }
  const DeviceArray<std::uint16_t> x(backend(), values);
  MatrixView view = bf16_matrix(x.data(), kRows, kCols);
  view.row_stride = kStride;
  const CUtensorMap map = swizzled_boxes(view, kBoxRows, kBoxChunks);
  for (const BoxAt at : {BoxAt{0, 0}, BoxAt{5, 1}, BoxAt{7, 2}, BoxAt{29, 0}, BoxAt{30, 1}}) {
    SCOPED_TRACE(::testing::Message() << "row " << at.row << ", chunk " << at.chunk);
    const DeviceArray<std::uint16_t> out(backend(), kBoxValues);
    launch("copy_box", copy_box, {.grid = 1, .block = 128}, nullptr, map, at, out.data());
    ASSERT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    const std::vector<std::uint16_t> got = out.read();
    for (int i = 0; i < kBoxValues; ++i) {
      const int chunk = i / (kBoxRows * kChunkCols), r = i / kChunkCols % kBoxRows;
      const int piece = (i % kChunkCols / 8) ^ r % 8;
      const int row = at.row + r, col = (at.chunk + chunk) * kChunkCols + piece * 8 + i % 8;
      const int want = row < kRows && col < kCols ? row * kCols + col + 1 : 0;
      ASSERT_EQ(got[i], want) << "place " << i;
    }
  }
}

}  // namespace
}  // namespace dsv4::cuda
