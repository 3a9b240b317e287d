// The ops that the CUDA backend has: from the backend's interface to the launches of each family.
#include "cuda/cuda_backend.h"
#include "cuda/errors.h"
#include "cuda/moe/moe.h"
#include "cuda/quantize/quantize.h"

namespace dsv4 {

using cuda::CurrentDevice;

Support CudaBackend::supports(const QuantizeParams& p) const { return cuda::supports_quantize(p); }
Support CudaBackend::supports(const SwigluQuantizeParams& p) const {
  return cuda::supports_swiglu_quantize(p);
}
Support CudaBackend::supports(const ExpertPackParams& p) const {
  return cuda::supports_expert_pack(p);
}
Support CudaBackend::supports(const ExpertGateUpParams& p) const {
  return cuda::supports_expert_gate_up(p);
}
Support CudaBackend::supports(const ExpertDownParams& p) const {
  return cuda::supports_expert_down(p);
}

std::int64_t CudaBackend::packed_bytes(const ExpertPackParams& p) const {
  return cuda::expert_packed_bytes(p);
}

void CudaBackend::compute(const QuantizeParams& p, const OpContext& context) {
  const CurrentDevice current(device_idx_);
  cuda::launch_quantize(p, stream_of(context.stream));
}
void CudaBackend::compute(const SwigluQuantizeParams& p, const OpContext& context) {
  const CurrentDevice current(device_idx_);
  cuda::launch_swiglu_quantize(p, stream_of(context.stream));
}
void CudaBackend::compute(const ExpertPackParams& p, const OpContext& context) {
  const CurrentDevice current(device_idx_);
  cuda::launch_expert_pack(p, stream_of(context.stream));
}
void CudaBackend::compute(const ExpertGateUpParams& p, const OpContext& context) {
  const CurrentDevice current(device_idx_);
  cuda::launch_expert_gate_up(p, stream_of(context.stream));
}
void CudaBackend::compute(const ExpertDownParams& p, const OpContext& context) {
  const CurrentDevice current(device_idx_);
  cuda::launch_expert_down(p, stream_of(context.stream));
}

}  // namespace dsv4
