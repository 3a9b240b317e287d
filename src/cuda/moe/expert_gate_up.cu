// The gate and up GEMMs of the experts with SwiGLU.
#include "cuda/moe/expert_launch.cuh"
#include "cuda/moe/moe.h"

namespace dsv4::cuda {

Support supports_expert_gate_up(const ExpertGateUpParams& p) {
  return supports_expert_gemm(p.x, p.packed, p.num_experts, p.out);
}

void launch_expert_gate_up(const ExpertGateUpParams& p, cudaStream_t stream) {
  ExpertGemmArgs args =
      expert_gemm_args(p.x, p.packed, true, p.num_experts, p.expert_offsets, p.out);
  args.row_tokens = p.row_tokens;
  args.row_weights = p.row_weights;
  args.swiglu_limit = p.swiglu_limit;
  args.out_global_scales = p.out_global_scales;
  launch_expert_gemm<GateUpEpilogue>("expert_gate_up", p.packed.format, args, stream);
}

}  // namespace dsv4::cuda
