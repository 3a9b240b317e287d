// cuda_test.h: the fixture of tests that need a device and skip themselves where none is.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "cuda/cuda_backend.h"

namespace dsv4::cuda {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      backend_ = std::make_unique<CudaBackend>(0, /*poison_new_memory=*/true);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupportedDevice) throw;
      GTEST_SKIP() << error.what();
    }
  }
  CudaBackend& backend() { return *backend_; }

 private:
  std::unique_ptr<CudaBackend> backend_;
};

}  // namespace dsv4::cuda
