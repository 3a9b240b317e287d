// reference_backend.h: the plain scalar implementation of every contract, the judge of all others.
//
// Device memory is host memory, work is done before a call returns, sums are FP64. Correct before
// everything; never optimised. One file an op family implements its `compute` functions.
#pragma once

#include <atomic>

#include "ops/backend.h"

namespace dsv4 {

class ReferenceBackend final : public Backend {
 public:
  ReferenceBackend() = default;
  // True fills new memory with bytes 0xFF: NaN in every float format, index -1. For tests: whoever
  // reads what nobody wrote cannot go unseen.
  explicit ReferenceBackend(bool poison_new_memory) : poison_new_memory_(poison_new_memory) {}

  std::string_view name() const override { return "reference"; }
  bool uses_host_memory() const override { return true; }
  std::int64_t allocated_bytes() const override { return allocated_bytes_; }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream) override;
  void synchronize(DeviceStream) override {}

  // It runs all that `check` accepts. Its scratch is small and allocated where it is needed: the
  // one liberty it takes with the rule that an op allocates nothing.
  Support supports(const QuantizeParams&) const override { return {}; }
  Support supports(const LinearParams&) const override { return {}; }
  Support supports(const EmbeddingParams&) const override { return {}; }
  Support supports(const RmsNormParams&) const override { return {}; }
  Support supports(const RopeParams&) const override { return {}; }
  Support supports(const RouterParams&) const override { return {}; }
  Support supports(const MoeDispatchParams&) const override { return {}; }
  Support supports(const ExpertGateUpParams&) const override { return {}; }
  Support supports(const ExpertDownParams&) const override { return {}; }
  Support supports(const MoeCombineParams&) const override { return {}; }
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

 protected:
  std::byte* allocate_bytes(std::int64_t bytes) override;
  void free_bytes(std::byte* data, std::int64_t bytes) noexcept override;

  // One file an op family: linear.cc, attention.cc, ...
  void compute(const QuantizeParams& p, const OpContext& context) override;
  void compute(const LinearParams& p, const OpContext& context) override;
  void compute(const EmbeddingParams& p, const OpContext& context) override;
  void compute(const RmsNormParams& p, const OpContext& context) override;
  void compute(const RopeParams& p, const OpContext& context) override;
  void compute(const RouterParams& p, const OpContext& context) override;
  void compute(const MoeDispatchParams& p, const OpContext& context) override;
  void compute(const ExpertGateUpParams& p, const OpContext& context) override;
  void compute(const ExpertDownParams& p, const OpContext& context) override;
  void compute(const MoeCombineParams& p, const OpContext& context) override;
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
  bool poison_new_memory_ = false;
  std::atomic<std::int64_t> allocated_bytes_ = 0;
};

}  // namespace dsv4
