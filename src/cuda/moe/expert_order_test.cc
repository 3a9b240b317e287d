// Quantise behind an expert GEMM on one stream: its kernels may start while the GEMM still runs,
// and have to wait for what it writes. One expert GEMM behind another: expert_graph_test.cc.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/cuda_test.h"
#include "cuda/graph.h"
#include "numerics/fp8_block.h"
#include "ops/quantize.h"
#include "testing/cases/expert_gemm_cases.h"
#include "testing/comparator.h"

namespace dsv4::cuda {
namespace {

using testing::DeviceArray;
using testing::DeviceExpertGemm;
using testing::DeviceMatrix;
using testing::ExpertGemmCase;
using testing::HostMatrix;
using testing::MatrixSpec;

class ExpertGemmOrderTest : public CudaTest {
 protected:
  // `params`, whose input is the GEMM's output, must give behind it in a graph, which leaves no
  // time between the two, what it gives once the GEMM is done.
  template <class Params>
  void expect_waits_for(DeviceExpertGemm& gemm, Params params, const MatrixSpec& spec) {
    const MutableMatrixView x = gemm.out.mutable_view();
    DeviceMatrix out(backend(), HostMatrix(spec, x.rows, x.cols));
    params.out = out.mutable_view();
    gemm.run();
    testing::run_op(backend(), params);
    const HostMatrix want = out.read();

    const auto owned = backend().create_stream();
    const auto stream = static_cast<cudaStream_t>(owned->get().handle);
    OpContext context;
    context.stream = owned->get();
    const Graph graph(stream, [&] {
      backend().run(gemm.gate_up, context);
      backend().run(params, context);
    });
    for (int replay = 0; replay < 3; ++replay) {
      SCOPED_TRACE(replay);
      gemm.out.poison();
      out.poison();
      graph.replay(stream);
      backend().synchronize(owned->get());
      const HostMatrix got = out.read();
      EXPECT_SAME_BITS(got.data, want.data);
      EXPECT_SAME_BITS(got.block_scales, want.block_scales);
      EXPECT_SAME_BITS(got.global_scales, want.global_scales);
    }
  }
};

// Every kernel of both ops. The GEMM's has one CTA an SM, which lets the next kernel start at once.
TEST_F(ExpertGemmOrderTest, QuantiseWaitsForWhatItReads) {
  ExpertGemmCase c;
  c.expert_rows = {40, 9, 33};
  c.k = 1568;
  c.n = 160;
  DeviceExpertGemm gemm(backend(), c, testing::ExpertGemmInputs(c));
  const DeviceArray<float> global_scale(backend(), std::vector{1e-3f});
  struct Output {
    MatrixSpec spec;
    bool is_static = false;
  };
  for (const Output& output :
       {Output{testing::nvfp4_spec(true)}, Output{testing::nvfp4_spec(true), true},
        Output{testing::mxfp4_spec()},
        Output{testing::fp8_spec(1, kActivationQuantBlock, DType::kE8M0)}}) {
    SCOPED_TRACE(output.spec.name + (output.is_static ? ", static" : ""));
    QuantizeParams quantize;
    quantize.x = gemm.out.view();
    SwigluQuantizeParams swiglu;
    swiglu.gate = swiglu.up = gemm.out.view();
    if (output.is_static) {
      quantize.static_global_scales = swiglu.static_global_scales = global_scale.data();
    }
    expect_waits_for(gemm, quantize, output.spec);
    expect_waits_for(gemm, swiglu, output.spec);
  }
}

}  // namespace
}  // namespace dsv4::cuda
