// cuda_backend.h: the contracts on one Hopper GPU: memory, copies, and which ops there are. No CUDA
// header, so that backends/ may include it. Kernels: the folder of each op family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "ops/backend.h"

struct CUstream_st;  // a CUDA stream, which a DeviceStream's handle points to

namespace dsv4 {
namespace cuda {
class MemoryPool;
}

class CudaBackend final : public Backend {
 public:
  // Throws Error: kUnsupportedDevice, saying what is missing.
  // poison_new_memory: as HostBackend's, for tests.
  explicit CudaBackend(int device_idx, bool poison_new_memory = false);
  ~CudaBackend() override;

  std::string_view name() const override { return name_; }
  bool uses_host_memory() const override { return false; }
  std::int64_t allocated_bytes() const override;
  std::int64_t reserved_bytes() const override;
  void trim() override;

  void copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream stream) override;
  void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream) override;
  void synchronize(DeviceStream stream) override;
  std::unique_ptr<OwnedStream> create_stream() override;
  std::unique_ptr<DeviceEvent> create_event() override;

  using AllOps::supports;
  Support supports(const QuantizeParams& p) const override;
  Support supports(const SwigluQuantizeParams& p) const override;
  Support supports(const ExpertPackParams& p) const override;
  Support supports(const ExpertGateUpParams& p) const override;
  Support supports(const ExpertDownParams& p) const override;
  std::int64_t packed_bytes(const ExpertPackParams& p) const override;

 private:
  using AllOps::compute;
  void compute(const QuantizeParams& p, const OpContext& context) override;
  void compute(const SwigluQuantizeParams& p, const OpContext& context) override;
  void compute(const ExpertPackParams& p, const OpContext& context) override;
  void compute(const ExpertGateUpParams& p, const OpContext& context) override;
  void compute(const ExpertDownParams& p, const OpContext& context) override;

  std::byte* allocate_bytes(std::int64_t bytes) override;
  void free_bytes(std::byte* data, std::int64_t bytes) noexcept override;

  CUstream_st* stream_of(DeviceStream stream) const;

  int device_idx_;
  std::string name_;
  std::unique_ptr<cuda::MemoryPool> memory_;
  std::unique_ptr<OwnedStream> default_stream_;
};

}  // namespace dsv4
