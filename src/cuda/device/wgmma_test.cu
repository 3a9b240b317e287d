// wgmma with weights from registers: every width against exact sums, and the same bits of a column
// whatever the width.
#include <cuda/ptx>
#include <random>

#include "cuda/cuda_test.h"
#include "cuda/device/matrix_load.h"
#include "cuda/device/wgmma.h"
#include "cuda/errors.h"
#include "cuda/launch.h"
#include "numerics/bf16.h"

namespace dsv4::cuda {
namespace {

using WgmmaTest = CudaTest;

constexpr int kRows = 64, kK = 64;

// out [64, kN] = a [64, 64] b [kN, 64]^T, four steps of 16 on one sum.
template <int kN>
__global__ void multiply(const std::uint16_t* a, const std::uint16_t* b, float* out) {
  __shared__ alignas(1024) std::uint16_t columns[kN * kK];
  for (int i = threadIdx.x; i < kN * kK; i += 128) {
    const int n = i / kK, k = i % kK;
    columns[n * kK + (k / 8 ^ n % 8) * 8 + k % 8] = b[i];
  }
  ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
  __syncthreads();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  float sums[kN / 2] = {};
  std::uint32_t fragments[4][4];
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 4; ++i) {
      const int k = step * 16 + 2 * c + i / 2 * 8;
      const std::uint16_t* const pair = a + (row + i % 2 * 8) * kK + k;
      fragments[step][i] = pair[0] | static_cast<std::uint32_t>(pair[1]) << 16;
    }
  }
  wgmma_fence();
  for (int step = 0; step < 4; ++step) {
    Wgmma<kN>::run(sums, fragments[step], wgmma_descriptor(shared_address(columns)) + 2 * step);
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
  for (int i = 0; i < kN / 8; ++i) {
    for (int j = 0; j < 4; ++j) {
      out[(row + j / 2 * 8) * kN + i * 8 + 2 * c + j % 2] = sums[4 * i + j];
    }
  }
}

template <int kN>
std::vector<float> product(CudaBackend& backend, const std::vector<std::uint16_t>& a,
                           const std::vector<std::uint16_t>& b) {
  const DeviceBuffer device_a = backend.allocate(kRows * kK * 2);
  const DeviceBuffer device_b = backend.allocate(kN * kK * 2);
  const DeviceBuffer device_out = backend.allocate(kRows * kN * 4);
  backend.copy_to_device(device_a.data(), a.data(), kRows * kK * 2, {});
  backend.copy_to_device(device_b.data(), b.data(), kN * kK * 2, {});
  backend.fill(device_out.data(), 0xFF, kRows * kN * 4, {});
  backend.synchronize({});
  launch("multiply", multiply<kN>, {.grid = 1, .block = 128}, nullptr, device_a.as<std::uint16_t>(),
         device_b.as<std::uint16_t>(), device_out.as<float>());
  check_cuda(cudaStreamSynchronize(nullptr), "run a kernel");
  std::vector<float> out(kRows * kN);
  backend.copy_to_host(out.data(), device_out.data(), kRows * kN * 4, {});
  backend.synchronize({});
  return out;
}

std::vector<std::uint16_t> random_bf16(int count, bool integers, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint16_t> values;
  for (int i = 0; i < count; ++i) {
    const int integer = static_cast<int>(random() % 33) - 16;
    const float real = std::normal_distribution<float>()(random);
    values.push_back(encode_bf16(integers ? static_cast<float>(integer) : real));
  }
  return values;
}

// Sums of integers are exact in FP32 in any order.
template <int kN>
void expect_exact_sums(CudaBackend& backend) {
  SCOPED_TRACE(kN);
  const std::vector<std::uint16_t> a = random_bf16(kRows * kK, true, 1);
  const std::vector<std::uint16_t> b = random_bf16(kN * kK, true, 2);
  const std::vector<float> out = product<kN>(backend, a, b);
  for (int row = 0; row < kRows; ++row) {
    for (int n = 0; n < kN; ++n) {
      double want = 0;
      for (int k = 0; k < kK; ++k)
        want += decode_bf16(a[row * kK + k]) * decode_bf16(b[n * kK + k]);
      ASSERT_EQ(out[row * kN + n], want) << "row " << row << " column " << n;
    }
  }
  if constexpr (kN > 8) expect_exact_sums<kN - 8>(backend);
}

TEST_F(WgmmaTest, EveryWidthGivesExactSums) { expect_exact_sums<160>(backend()); }

// What batch invariance rests on: the sum of a column does not depend on the instruction's width.
template <int kN>
void expect_bits_of_the_widest(CudaBackend& backend, const std::vector<float>& widest) {
  SCOPED_TRACE(kN);
  const std::vector<float> out =
      product<kN>(backend, random_bf16(kRows * kK, false, 3), random_bf16(160 * kK, false, 4));
  for (int row = 0; row < kRows; ++row) {
    for (int n = 0; n < kN; ++n) ASSERT_EQ(out[row * kN + n], widest[row * 160 + n]) << n;
  }
  if constexpr (kN > 8) expect_bits_of_the_widest<kN - 8>(backend, widest);
}

TEST_F(WgmmaTest, BitsDoNotDependOnTheWidth) {
  const std::vector<float> widest =
      product<160>(backend(), random_bf16(kRows * kK, false, 3), random_bf16(160 * kK, false, 4));
  expect_bits_of_the_widest<152>(backend(), widest);
}

}  // namespace
}  // namespace dsv4::cuda
