// What is said of CUDA devices. Needs none.
#include "cuda/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsv4 {
namespace {

CudaDevice h200() {
  return {.device_idx = 0,
          .name = "NVIDIA H200",
          .compute_major = 9,
          .compute_minor = 0,
          .num_sms = 132,
          .memory_bytes = std::int64_t{143771} << 20,
          .l2_bytes = 60 << 20,
          .driver = "13.0"};
}

TEST(CudaDevices, AreDescribedForAUser) {
  EXPECT_EQ(h200().description(),
            "NVIDIA H200, sm_90, 132 SMs, 140.4 GiB, 60 MiB of L2, driver for CUDA 13.0");
}

TEST(CudaDevices, OnlyHopperIsUsable) {
  CudaDevice device = h200();
  EXPECT_EQ(device.problem(), "");
  const int others[][2] = {{8, 0}, {8, 9}, {9, 1}, {10, 0}, {12, 0}};
  for (const auto& [major, minor] : others) {
    device.compute_major = major;
    device.compute_minor = minor;
    EXPECT_THAT(device.problem(),
                testing::HasSubstr("NVIDIA H200 has compute capability " + std::to_string(major) +
                                   "." + std::to_string(minor)));
    EXPECT_THAT(device.problem(), testing::HasSubstr("need 9.0"));
  }
}

TEST(CudaDevices, VersionsAreReadAsCudaWritesThem) {
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12080), "12.8");
}

TEST(CudaDevices, AreFoundOrTheReasonIsGiven) {
  const CudaDevices found = find_cuda_devices();
  EXPECT_EQ(found.devices.empty(), !found.problem.empty()) << found.problem;
}

}  // namespace
}  // namespace dsv4
