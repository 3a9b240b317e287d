// reference_backend.h: the plain scalar implementation of every contract, the judge of all others.
//
// Sums are FP64. Correct before everything; never optimised. One file an op family implements its
// `compute` functions.
#pragma once

#include "ops/host_backend.h"

namespace dsv4 {

class ReferenceBackend : public HostBackend {
 public:
  explicit ReferenceBackend(bool poison_new_memory = false) : HostBackend(poison_new_memory) {}

  std::string_view name() const override { return "reference"; }

 protected:
  // One file an op family: linear.cc, attention.cc, ... Scratch is small and allocated where it is
  // needed: the one liberty taken with the rule that an op allocates nothing.
  using AllOps::compute;
  void compute(const QuantizeParams& p, const OpContext& context) override;
  void compute(const SwigluQuantizeParams& p, const OpContext& context) override;
  void compute(const AmaxParams& p, const OpContext& context) override;
  void compute(const DequantizeParams& p, const OpContext& context) override;
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
};

}  // namespace dsv4
