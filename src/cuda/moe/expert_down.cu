// The down GEMM of the experts.
#include "cuda/moe/expert_launch.cuh"
#include "cuda/moe/moe.h"

namespace dsv4::cuda {

Support supports_expert_down(const ExpertDownParams& p) {
  return supports_expert_gemm(p.x, p.packed, p.num_experts, p.out);
}

void launch_expert_down(const ExpertDownParams& p, cudaStream_t stream) {
  const ExpertGemmArgs args =
      expert_gemm_args(p.x, p.packed, false, p.num_experts, p.expert_offsets, p.out);
  launch_expert_gemm<DownEpilogue>("expert_down", p.packed.format, args, stream);
}

}  // namespace dsv4::cuda
