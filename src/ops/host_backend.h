// host_backend.h: what backends whose device is the host have in common: memory, copies, and that
// work is done when a call returns. The ops: reference/, cpu/.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>

#include "ops/backend.h"

namespace dsv4 {

// All streams of a host are its default one: work is done when a call returns.
class HostStream final : public OwnedStream {
 public:
  DeviceStream get() const override { return {}; }
};

// An event is the time at which it was recorded.
class HostEvent final : public DeviceEvent {
 public:
  void record(DeviceStream) override { recorded_ = Clock::now(); }
  void hold(DeviceStream) const override {}
  void synchronize() const override {}
  double seconds_since(const DeviceEvent& start) const override;

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> recorded_;
};

class HostBackend : public Backend {
 public:
  bool uses_host_memory() const final { return true; }
  std::int64_t allocated_bytes() const final { return allocated_bytes_; }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) final;
  void copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream stream) final;
  void copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) final;
  void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream) final;
  void synchronize(DeviceStream) final {}
  std::unique_ptr<OwnedStream> create_stream() final { return std::make_unique<HostStream>(); }
  std::unique_ptr<DeviceEvent> create_event() final { return std::make_unique<HostEvent>(); }

  using AllOps::supports;
  // All that `check` accepts, but for packed experts: these ops read weights as they are.
  Support supports(const QuantizeParams&) const final { return {}; }
  Support supports(const SwigluQuantizeParams&) const final { return {}; }
  Support supports(const AmaxParams&) const final { return {}; }
  Support supports(const DequantizeParams&) const final { return {}; }
  Support supports(const LinearParams&) const final { return {}; }
  Support supports(const EmbeddingParams&) const final { return {}; }
  Support supports(const RmsNormParams&) const final { return {}; }
  Support supports(const RopeParams&) const final { return {}; }
  Support supports(const RouterParams&) const final { return {}; }
  Support supports(const MoeDispatchParams&) const final { return {}; }
  Support supports(const ExpertPackParams&) const final { return kReadsWeightsAsTheyAre; }
  Support supports(const ExpertGateUpParams& p) const final {
    return p.packed.data == nullptr ? Support{} : kReadsWeightsAsTheyAre;
  }
  Support supports(const ExpertDownParams& p) const final {
    return p.packed.data == nullptr ? Support{} : kReadsWeightsAsTheyAre;
  }
  Support supports(const MoeCombineParams&) const final { return {}; }
  Support supports(const AttentionParams&) const final { return {}; }
  Support supports(const DenseAttentionParams&) const final { return {}; }
  Support supports(const CompressParams&) const final { return {}; }
  Support supports(const CompressorCommitParams&) const final { return {}; }
  Support supports(const IndexerParams&) const final { return {}; }
  Support supports(const HcPreParams&) const final { return {}; }
  Support supports(const HcPostParams&) const final { return {}; }
  Support supports(const HcHeadParams&) const final { return {}; }
  Support supports(const KvWriteParams&) const final { return {}; }
  Support supports(const SamplingParams&) const final { return {}; }

 protected:
  // True fills new memory with bytes 0xFF: NaN in every float format, index -1. For tests: whoever
  // reads what nobody wrote cannot go unseen.
  explicit HostBackend(bool poison_new_memory) : poison_new_memory_(poison_new_memory) {}

 private:
  static inline const Support kReadsWeightsAsTheyAre = {
      false, "this backend reads the experts' weights as they are, never packed"};

  std::byte* allocate_bytes(std::int64_t bytes) final;
  void free_bytes(std::byte* data, std::int64_t bytes) noexcept final;

  bool poison_new_memory_;
  std::atomic<std::int64_t> allocated_bytes_ = 0;
};

}  // namespace dsv4
