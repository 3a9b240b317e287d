// The expert GEMMs against the formula on the smallest cases that reach all their kernels on CUDA:
// what tools/gpu_check.sh runs under compute-sanitizer. More cases: expert_gemm_test.cc.
#include <gtest/gtest.h>

#include "testing/cases/expert_gemm_small_cases.h"
#include "testing/expert_gemm_judge.h"

namespace dsv4::testing {
namespace {

TEST_EACH_BACKEND(ExpertGemmSmall, EveryKernelInEveryForm) {
  for (const ExpertGemmCase& c : small_expert_gemm_cases(!backend.uses_host_memory())) {
    SCOPED_TRACE(c.name);
    const ExpertGemmInputs in(c);
    expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run(), {3, 2});
  }
}

TEST_EACH_BACKEND(ExpertGemmSmall, MoreUnitsThanCtas) {
  for (ExpertGemmCase c : many_unit_expert_gemm_cases()) {
    // A host has no CTAs; three experts show the rest.
    if (backend.uses_host_memory()) c.expert_rows.resize(3);
    SCOPED_TRACE(c.name);
    const ExpertGemmInputs in(c);
    expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run(), {7, 5});
  }
}

}  // namespace
}  // namespace dsv4::testing
