// cpu_backend.h: the contracts on a CPU with SIMD and threads; device memory is host memory.
//
// One file an op family holds its `compute`; what is not there yet `supports` refuses. Work is done
// when a call returns. Kernels are compiled for several instruction sets and chosen when a backend
// is made; all of them, any number of threads and any batch give the same bits (lanes-inl.h says
// why, docs/kernels/cpu.md for whom).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"

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
  // New memory is filled with bytes 0xFF: NaN in every float format, index -1. For tests: whoever
  // reads what nobody wrote cannot go unseen.
  bool poison_new_memory = false;
};

// Those that this build and this machine can run, best first: "AVX3" (AVX-512), "AVX2", "NEON",
// "SCALAR" or "EMU128" (plain C++).
std::vector<std::string> cpu_instruction_sets();

class CpuBackend final : public Backend {
 public:
  // Throws Error: kUnsupportedDevice, naming the instruction sets there are.
  explicit CpuBackend(const CpuOptions& options = {});
  ~CpuBackend() override;

  std::string_view name() const override { return "cpu"; }
  bool uses_host_memory() const override { return true; }
  std::int64_t allocated_bytes() const override { return allocated_bytes_; }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream) override;
  void synchronize(DeviceStream) override {}
  int num_threads() const { return pool_.num_threads(); }

  using AllOps::supports;
  using AllOps::workspace_bytes;
  // These run all that `check` accepts.
  Support supports(const QuantizeParams&) const override { return {}; }
  Support supports(const LinearParams&) const override { return {}; }
  Support supports(const EmbeddingParams&) const override { return {}; }
  Support supports(const MoeDispatchParams&) const override { return {}; }
  Support supports(const ExpertGateUpParams&) const override { return {}; }
  Support supports(const ExpertDownParams&) const override { return {}; }
  Support supports(const MoeCombineParams&) const override { return {}; }
  Support supports(const RmsNormParams&) const override { return {}; }
  Support supports(const RopeParams&) const override { return {}; }
  Support supports(const RouterParams&) const override { return {}; }
  Support supports(const AttentionParams&) const override { return {}; }
  Support supports(const DenseAttentionParams&) const override { return {}; }
  Support supports(const CompressParams&) const override { return {}; }
  Support supports(const CompressorCommitParams&) const override { return {}; }
  Support supports(const IndexerParams&) const override { return {}; }
  Support supports(const HcPreParams&) const override { return {}; }
  Support supports(const HcPostParams&) const override { return {}; }
  Support supports(const HcHeadParams&) const override { return {}; }
  Support supports(const KvWriteParams&) const override { return {}; }
  Support supports(const SamplingParams&) const override { return {}; }

  std::int64_t workspace_bytes(const QuantizeParams& p) const override;
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
  std::byte* allocate_bytes(std::int64_t bytes) override;
  void free_bytes(std::byte* data, std::int64_t bytes) noexcept override;

  void compute(const QuantizeParams& p, const OpContext& context) override;
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
  bool poison_new_memory_;
  std::atomic<std::int64_t> allocated_bytes_ = 0;
};

}  // namespace dsv4
