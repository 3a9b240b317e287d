// moe.h: the experts' ops on Hopper, behind ops/moe.h: which params they take, and their launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/moe.h"

namespace dsv4::cuda {

// Weights in NVFP4 or MXFP4.
Support supports_expert_pack(const ExpertPackParams& p);
std::int64_t expert_packed_bytes(const ExpertPackParams& p);
void launch_expert_pack(const ExpertPackParams& p, cudaStream_t stream);

// Packed weights; x in BF16, its rows on multiples of 16 bytes and within 4 GiB.
Support supports_expert_gate_up(const ExpertGateUpParams& p);
void launch_expert_gate_up(const ExpertGateUpParams& p, cudaStream_t stream);
Support supports_expert_down(const ExpertDownParams& p);
void launch_expert_down(const ExpertDownParams& p, cudaStream_t stream);

}  // namespace dsv4::cuda
