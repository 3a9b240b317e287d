// errors_test.cc: CUDA's status codes as errors; needs no device.
#include "cuda/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace dsv4::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

template <class Check>
Error error_of(Check check) {
  try {
    check();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kBadRequest, "no error");
}

TEST(CudaErrors, CodesAreOurs) {
  EXPECT_EQ(error_code_of(cudaErrorMemoryAllocation), ErrorCode::kOutOfMemory);
  EXPECT_EQ(error_code_of(cudaErrorNoDevice), ErrorCode::kUnsupportedDevice);
  EXPECT_EQ(error_code_of(cudaErrorInsufficientDriver), ErrorCode::kUnsupportedDevice);
  EXPECT_EQ(error_code_of(cudaErrorNoKernelImageForDevice), ErrorCode::kUnsupportedDevice);
  EXPECT_EQ(error_code_of(cudaErrorIllegalAddress), ErrorCode::kInternal);
  EXPECT_EQ(error_code_of(cudaErrorInvalidValue), ErrorCode::kInternal);
}

TEST(CudaErrors, SuccessIsNone) {
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "copy"));
  EXPECT_NO_THROW(check_work(cudaSuccess, "cuda:0"));
  EXPECT_FALSE(is_of_earlier_work(cudaSuccess));
}

// Those after which CUDA's header says that nothing works any more, and others.
TEST(CudaErrors, FaultsAreToldFromRefusals) {
  for (const cudaError_t fault :
       {cudaErrorIllegalAddress, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorHardwareStackError,
        cudaErrorLaunchFailure, cudaErrorLaunchTimeout, cudaErrorAssert, cudaErrorECCUncorrectable,
        cudaErrorNvlinkUncorrectable, cudaErrorContained}) {
    EXPECT_TRUE(is_of_earlier_work(fault)) << cudaGetErrorName(fault);
    EXPECT_EQ(error_code_of(fault), ErrorCode::kInternal) << cudaGetErrorName(fault);
  }
  for (const cudaError_t refusal :
       {cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorInvalidConfiguration,
        cudaErrorNoDevice, cudaErrorInsufficientDriver, cudaErrorLaunchOutOfResources,
        cudaErrorStreamCaptureUnsupported, cudaErrorNotReady}) {
    EXPECT_FALSE(is_of_earlier_work(refusal)) << cudaGetErrorName(refusal);
  }
}

// Whatever call happens to hear of a fault is not to blame for it.
TEST(CudaErrors, AFaultOfEarlierWorkIsNotBlamedOnTheCall) {
  const Error fault = error_of([] { check_cuda(cudaErrorIllegalAddress, "copy to cuda:1"); });
  EXPECT_EQ(fault.code(), ErrorCode::kInternal);
  EXPECT_THAT(fault.what(), HasSubstr("cannot copy to cuda:1: work queued before it failed"));
  EXPECT_THAT(fault.what(), HasSubstr("DSV4_CUDA_SYNC=1"));
  const Error refusal = error_of([] { check_cuda(cudaErrorInvalidValue, "copy to cuda:1"); });
  EXPECT_THAT(refusal.what(), HasSubstr("cannot copy to cuda:1: "));
  EXPECT_THAT(refusal.what(), Not(HasSubstr("before")));
  const Error work = error_of([] { check_work(cudaErrorLaunchFailure, "cuda:1"); });
  EXPECT_THAT(work.what(), HasSubstr("work on cuda:1 failed"));
  EXPECT_THAT(work.what(), HasSubstr("DSV4_CUDA_SYNC=1"));
}

}  // namespace
}  // namespace dsv4::cuda
