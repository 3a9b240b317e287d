// cpu_backend.h: the contracts on a CPU with SIMD and threads; device memory is host memory.
//
// One file an op family holds its `compute`. Kernels are compiled for several instruction sets and
// chosen when a backend is made; all of them, any number of threads and any batch give the same
// bits (lanes-inl.h says why, docs/kernels/cpu.md for whom).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "ops/host_backend.h"

namespace dsv4 {

namespace cpu {
class E2m1Tables;
struct DotKernels;
struct RowKernels;
}  // namespace cpu

struct CpuOptions {
  int num_threads = 0;  // 0: the cores of the affinity mask
  // One of cpu_instruction_sets(); empty: the best.
  std::string instruction_set;
  bool poison_new_memory = false;  // as in HostBackend, for tests
};

// Those that this build and this machine can run, best first: "AVX3" (AVX-512), "AVX2", "NEON",
// "SCALAR" or "EMU128" (plain C++).
std::vector<std::string> cpu_instruction_sets();

class CpuBackend final : public HostBackend {
 public:
  // Throws Error: kUnsupportedDevice, naming the instruction sets there are.
  explicit CpuBackend(const CpuOptions& options = {});
  ~CpuBackend() override;

  std::string_view name() const override { return "cpu"; }
  int num_threads() const { return pool_.num_threads(); }

  using AllOps::workspace_bytes;
  std::int64_t workspace_bytes(const QuantizeParams& p) const override;
  std::int64_t workspace_bytes(const SwigluQuantizeParams& p) const override;
  std::int64_t workspace_bytes(const AmaxParams& p) const override;
  std::int64_t workspace_bytes(const DequantizeParams& p) const override;
  std::int64_t workspace_bytes(const LinearParams& p) const override;
  std::int64_t workspace_bytes(const EmbeddingParams& p) const override;
  std::int64_t workspace_bytes(const MoeDispatchParams& p) const override;
  std::int64_t workspace_bytes(const ExpertGateUpParams& p) const override;
  std::int64_t workspace_bytes(const ExpertDownParams& p) const override;
  std::int64_t workspace_bytes(const MoeCombineParams& p) const override;
  std::int64_t workspace_bytes(const RmsNormParams& p) const override;
  std::int64_t workspace_bytes(const RopeParams& p) const override;
  std::int64_t workspace_bytes(const RouterParams& p) const override;
  std::int64_t workspace_bytes(const AttentionParams& p) const override;
  std::int64_t workspace_bytes(const DenseAttentionParams& p) const override;
  std::int64_t workspace_bytes(const CompressParams& p) const override;
  std::int64_t workspace_bytes(const IndexerParams& p) const override;
  std::int64_t workspace_bytes(const HcPreParams& p) const override;
  std::int64_t workspace_bytes(const HcPostParams& p) const override;
  std::int64_t workspace_bytes(const HcHeadParams& p) const override;
  std::int64_t workspace_bytes(const KvWriteParams& p) const override;
  std::int64_t workspace_bytes(const SamplingParams& p) const override;

 protected:
  using AllOps::compute;
  void compute(const QuantizeParams& p, const OpContext& context) override;
  void compute(const SwigluQuantizeParams& p, const OpContext& context) override;
  void compute(const AmaxParams& p, const OpContext& context) override;
  void compute(const DequantizeParams& p, const OpContext& context) override;
  void compute(const LinearParams& p, const OpContext& context) override;
  void compute(const EmbeddingParams& p, const OpContext& context) override;
  void compute(const MoeDispatchParams& p, const OpContext& context) override;
  void compute(const ExpertGateUpParams& p, const OpContext& context) override;
  void compute(const ExpertDownParams& p, const OpContext& context) override;
  void compute(const MoeCombineParams& p, const OpContext& context) override;
  void compute(const RmsNormParams& p, const OpContext& context) override;
  void compute(const RopeParams& p, const OpContext& context) override;
  void compute(const RouterParams& p, const OpContext& context) override;
  void compute(const AttentionParams& p, const OpContext& context) override;
  void compute(const DenseAttentionParams& p, const OpContext& context) override;
  void compute(const CompressParams& p, const OpContext& context) override;
  void compute(const CompressorCommitParams& p, const OpContext& context) override;
  void compute(const IndexerParams& p, const OpContext& context) override;
  void compute(const HcPreParams& p, const OpContext& context) override;
  void compute(const HcPostParams& p, const OpContext& context) override;
  void compute(const HcHeadParams& p, const OpContext& context) override;
  void compute(const KvWriteParams& p, const OpContext& context) override;
  void compute(const SamplingParams& p, const OpContext& context) override;

 private:
  std::int64_t targets_;  // mask of HWY_* bits to choose kernels from
  const cpu::DotKernels& dot_;
  const cpu::RowKernels& rows_;
  std::unique_ptr<const cpu::E2m1Tables> tables_;
  ThreadPool pool_;
};

}  // namespace dsv4
