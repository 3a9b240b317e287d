// The instructions between shared memory and registers, and those that warpgroups share, against
// what the ISA says of them.
#include <cuda/ptx>
#include <numeric>

#include "cuda/cuda_test.h"
#include "cuda/device/async_copy.h"
#include "cuda/device/matrix_load.h"
#include "cuda/device/warpgroup.h"
#include "cuda/errors.h"
#include "cuda/launch.h"

namespace dsv4::cuda {
namespace {

using DeviceInstructions = CudaTest;

// Runs a kernel of one CTA that fills out [count], and brings that back.
template <class T, class Kernel>
std::vector<T> output_of(CudaBackend& backend, Kernel* kernel, unsigned threads,
                         std::int64_t count) {
  const auto bytes = count * static_cast<std::int64_t>(sizeof(T));
  const DeviceBuffer out = backend.allocate(bytes);
  backend.fill(out.data(), 0xA5, bytes, {});
  backend.synchronize({});
  launch("kernel of a test", kernel, {.grid = 1, .block = threads}, nullptr, out.as<T>());
  check_cuda(cudaStreamSynchronize(nullptr), "run a kernel");
  std::vector<T> values(static_cast<std::size_t>(count));
  backend.copy_to_host(values.data(), out.data(), bytes, {});
  backend.synchronize({});
  return values;
}

// Shared memory holds 32 rows of 8 elements, four matrices one below another; element = its index.
__device__ std::uint16_t (*numbered_rows())[8] {
  __shared__ alignas(16) std::uint16_t rows[32][8];
  for (int col = 0; col < 8; ++col) {
    rows[threadIdx.x][col] = static_cast<std::uint16_t>(threadIdx.x * 8 + col);
  }
  __syncwarp();
  return rows;
}

// out [2, 32, 4]: what each lane got, plain and transposed.
__global__ void load_matrices(std::uint32_t* out) {
  std::uint16_t(*const rows)[8] = numbered_rows();
  const MatrixFragments plain = ldmatrix_x4(rows[threadIdx.x]);
  const MatrixFragments transposed = ldmatrix_x4_trans(rows[threadIdx.x]);
  for (int m = 0; m < 4; ++m) {
    out[threadIdx.x * 4 + m] = plain.matrices[m];
    out[128 + threadIdx.x * 4 + m] = transposed.matrices[m];
  }
}

TEST_F(DeviceInstructions, LdmatrixGivesEachLaneItsElements) {
  const auto got = output_of<std::uint32_t>(backend(), load_matrices, 32, 256);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t m = 0; m < 4; ++m) {
      const std::uint32_t row = lane / 4, col = lane % 4 * 2, first = m * 64;
      EXPECT_EQ(got[lane * 4 + m], (first + row * 8 + col) | (first + row * 8 + col + 1) << 16);
      EXPECT_EQ(got[128 + lane * 4 + m], (first + col * 8 + row) | (first + col * 8 + 8 + row)
                                                                       << 16);
    }
  }
}

// out [3, 32, 8]: rows as they were loaded and stored again, plainly, transposed on the way out,
// and transposed on both ways.
__global__ void store_matrices(std::uint16_t* out) {
  __shared__ alignas(16) std::uint16_t stored[3][32][8];
  std::uint16_t(*const rows)[8] = numbered_rows();
  const unsigned lane = threadIdx.x;
  stmatrix_x4(stored[0][lane], ldmatrix_x4(rows[lane]));
  stmatrix_x4_trans(stored[1][lane], ldmatrix_x4(rows[lane]));
  stmatrix_x4_trans(stored[2][lane], ldmatrix_x4_trans(rows[lane]));
  __syncwarp();
  for (int kind = 0; kind < 3; ++kind) {
    for (int col = 0; col < 8; ++col) out[kind * 256 + lane * 8 + col] = stored[kind][lane][col];
  }
}

TEST_F(DeviceInstructions, StmatrixPutsThemBack) {
  const auto got = output_of<std::uint16_t>(backend(), store_matrices, 32, 768);
  for (unsigned row = 0; row < 32; ++row) {
    for (unsigned col = 0; col < 8; ++col) {
      const unsigned transposed = row / 8 * 64 + col * 8 + row % 8;
      EXPECT_EQ(got[row * 8 + col], row * 8 + col);
      EXPECT_EQ(got[256 + row * 8 + col], transposed);
      EXPECT_EQ(got[512 + row * 8 + col], row * 8 + col);
    }
  }
}

// out [32, 4]: four matrices, each transposed between the registers of the warp.
__global__ void transpose_matrices(std::uint32_t* out) {
  const MatrixFragments plain = ldmatrix_x4(numbered_rows()[threadIdx.x]);
  for (int m = 0; m < 4; ++m) out[threadIdx.x * 4 + m] = movmatrix_trans(plain.matrices[m]);
}

TEST_F(DeviceInstructions, MovmatrixExchangesRowsAndColumns) {
  const auto got = output_of<std::uint32_t>(backend(), transpose_matrices, 32, 128);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t m = 0; m < 4; ++m) {
      const std::uint32_t row = lane / 4, col = lane % 4 * 2, first = m * 64;
      EXPECT_EQ(got[lane * 4 + m], (first + col * 8 + row) | (first + col * 8 + 8 + row) << 16);
    }
  }
}

constexpr int kValues = 160;  // more registers than a warp has at launch

// One warpgroup gives registers, the other takes them and needs them all at once.
__global__ void __launch_bounds__(256, 1) exchange_registers(std::uint32_t* out) {
  if (threadIdx.x < 128) {
    setmaxnreg_dec<40>();
    out[threadIdx.x] = threadIdx.x;
  } else {
    setmaxnreg_inc<216>();
    std::uint32_t values[kValues];
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      values[i] = clock() * 0 + threadIdx.x + static_cast<unsigned>(i);
    for (int round = 0; round < 3; ++round) {
#pragma unroll
      for (int i = 0; i < kValues; ++i) values[i] = values[i] * 3 + values[(i + 1) % kValues];
    }
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) sum += values[i];
    out[threadIdx.x] = sum;
  }
}

TEST_F(DeviceInstructions, RegistersGoFromOneWarpgroupToAnother) {
  const auto got = output_of<std::uint32_t>(backend(), exchange_registers, 256, 256);
  for (std::uint32_t thread = 0; thread < 256; ++thread) {
    std::uint32_t want = thread;
    if (thread >= 128) {
      std::vector<std::uint32_t> values(kValues);
      std::iota(values.begin(), values.end(), thread);
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < kValues; ++i) {
          const auto idx = static_cast<std::size_t>(i);
          values[idx] = values[idx] * 3 + values[(idx + 1) % kValues];
        }
      }
      want = std::accumulate(values.begin(), values.end(), std::uint32_t{0});
    }
    EXPECT_EQ(got[thread], want) << thread;
  }
}

// Warp 0 fills what warp 1 then reads; warps 2 and 3 take part in nothing.
__global__ void hand_over(std::uint32_t* out) {
  __shared__ std::uint32_t values[32];
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    __nanosleep(20000);
    values[lane] = lane + 1;
    bar_arrive(1, 64);
  } else if (warp == 1) {
    bar_sync(1, 64);
    out[lane] = values[31 - lane];
  }
}

TEST_F(DeviceInstructions, ABarrierHoldsThoseThatItCounts) {
  const auto got = output_of<std::uint32_t>(backend(), hand_over, 128, 32);
  for (std::uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(got[lane], 32 - lane);
}

constexpr unsigned kPieces = 128;  // of 16 bytes, one a thread

// out [4, kPieces, 4]: the source; what came by each of two phases of an mbarrier; what came by
// wait_all. Thread t copies piece t + 1 + round, every third copy is of zeros. After the mbarrier a
// thread passes on what another one copied, after wait_all its own.
__global__ void copy_pieces(std::uint32_t* out) {
  __shared__ alignas(16) std::uint32_t received[kPieces][4];
  __shared__ alignas(8) std::uint64_t full;
  const unsigned thread = threadIdx.x;
  for (unsigned i = 0; i < 4; ++i) out[thread * 4 + i] = thread * 4 + i + 1;
  if (thread == 0) ::cuda::ptx::mbarrier_init(&full, blockDim.x);
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 4; ++i) received[thread][i] = 0xA5A5A5A5;
    __syncthreads();
    cp_async_16(shared_address(received[thread]), out + (thread + 1 + round) % kPieces * 4,
                (thread + round) % 3 == 0 ? 0 : 16);
    unsigned passed_on = thread;
    if (round < 2) {
      cp_async_mbarrier_arrive(&full);
      mbarrier_wait_parity(&full, round);
      passed_on = (thread + 77) % kPieces;
    } else {
      cp_async_wait_all();
    }
    std::uint32_t* const to = out + ((1 + round) * kPieces + passed_on) * 4;
    for (unsigned i = 0; i < 4; ++i) to[i] = received[passed_on][i];
    __syncthreads();
  }
}

TEST_F(DeviceInstructions, PiecesThatWereWaitedForAreThere) {
  const auto got = output_of<std::uint32_t>(backend(), copy_pieces, kPieces, 4 * kPieces * 4);
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned thread = 0; thread < kPieces; ++thread) {
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned piece = (thread + 1 + round) % kPieces;
        const unsigned want = (thread + round) % 3 == 0 ? 0 : piece * 4 + i + 1;
        ASSERT_EQ(got[((1 + round) * kPieces + thread) * 4 + i], want) << round << " " << thread;
      }
    }
  }
}

constexpr int kBulkValues = 1024;

// What threads wrote to shared memory goes out and comes in again by the bulk copy engine, by
// cuda::ptx: fences, mbarrier and both directions of cp.async.bulk. out [2, kBulkValues].
__global__ void copy_in_bulk(std::uint32_t* out) {
  namespace ptx = ::cuda::ptx;
  constexpr unsigned kBytes = kBulkValues * sizeof(std::uint32_t);
  __shared__ alignas(128) std::uint32_t sent[kBulkValues], received[kBulkValues];
  __shared__ alignas(8) std::uint64_t full;
  for (unsigned i = threadIdx.x; i < kBulkValues; i += blockDim.x) {
    sent[i] = i * 3 + 1;
    received[i] = 0;
  }
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, sent, kBytes);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full,
                                   kBytes);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, received, out, kBytes, &full);
  }
  while (!ptx::mbarrier_try_wait_parity(&full, 0)) {
  }
  for (unsigned i = threadIdx.x; i < kBulkValues; i += blockDim.x) {
    out[kBulkValues + i] = received[i];
  }
}

TEST_F(DeviceInstructions, TheBulkCopyEngineSeesWhatThreadsWrote) {
  const auto got = output_of<std::uint32_t>(backend(), copy_in_bulk, 128, 2 * kBulkValues);
  for (std::uint32_t i = 0; i < kBulkValues; ++i) {
    ASSERT_EQ(got[i], i * 3 + 1);
    ASSERT_EQ(got[kBulkValues + i], i * 3 + 1);
  }
}

}  // namespace
}  // namespace dsv4::cuda
