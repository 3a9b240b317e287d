// backend.h: a device as the engine sees it: memory, copies, streams and events, and every op of
// the contracts.
//
// A backend is safe to use from one thread at a time per DeviceStream; memory may be allocated and
// freed by any thread. Implementations: reference/, cpu/, cuda/; which were built: backends/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "ops/attention.h"
#include "ops/compressor.h"
#include "ops/indexer.h"
#include "ops/kv_write.h"
#include "ops/linear.h"
#include "ops/mhc.h"
#include "ops/moe.h"
#include "ops/norm.h"
#include "ops/op.h"
#include "ops/quantize.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/sampling.h"

namespace dsv4 {

// One op of a backend. `supports` and `workspace_bytes` depend on shapes and formats only, never on
// device memory. A backend that lacks an op leaves all three as they are.
template <class Params>
class OpImplementation {
 public:
  virtual ~OpImplementation() = default;
  virtual Support supports(const Params&) const { return {false, "this backend has no such op"}; }
  virtual std::int64_t workspace_bytes(const Params&) const { return 0; }
  // Checks, then queues the work. Throws Error: kBadRequest (params), kUnsupported (naming the op,
  // with the reason).
  void run(const Params& params, const OpContext& context = {}) {
    check(params);
    const Support support = supports(params);
    require(support.ok, ErrorCode::kUnsupported, "the op {} cannot run: {}", Params::kOpName,
            support.reason);
    DSV4_CHECK(context.workspace_bytes >= workspace_bytes(params),
               "{}: workspace of {} bytes, {} needed", Params::kOpName, context.workspace_bytes,
               workspace_bytes(params));
    compute(params, context);
  }

 protected:
  virtual void compute(const Params&, const OpContext&) {}
};

template <class... Params>
class OpSet : public OpImplementation<Params>... {
 public:
  using OpImplementation<Params>::supports...;
  using OpImplementation<Params>::workspace_bytes...;
  using OpImplementation<Params>::run...;

 protected:
  // Named again in each backend: those that it leaves out would be hidden, and clang warns of it.
  using OpImplementation<Params>::compute...;
};

using AllOps =
    OpSet<QuantizeParams, SwigluQuantizeParams, AmaxParams, DequantizeParams, LinearParams,
          EmbeddingParams, RmsNormParams, RopeParams, RouterParams, MoeDispatchParams,
          ExpertPackParams, ExpertGateUpParams, ExpertDownParams, MoeCombineParams, AttentionParams,
          DenseAttentionParams, CompressParams, CompressorCommitParams, IndexerParams, HcPreParams,
          HcPostParams, HcHeadParams, KvWriteParams, SamplingParams>;

class Backend;

// Owning device memory; returns to its backend, which must outlive it. May be destroyed while
// queued work still uses the memory: it is not handed out again before that work is done.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(Backend* backend, std::byte* data, std::int64_t bytes)
      : backend_(backend), data_(data), bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceBuffer();

  std::byte* data() const { return data_; }
  std::int64_t size_bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Backend* backend_ = nullptr;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// A stream of its own; its backend must outlive it. Work that is queued when it is destroyed is
// still done.
class OwnedStream {
 public:
  virtual ~OwnedStream() = default;
  virtual DeviceStream get() const = 0;
};

// A mark in the work of a stream. Its backend, which all streams given here belong to, must outlive
// it. Errors of queued work surface in synchronize() and seconds_since().
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Sets the mark behind all work queued on `stream` so far; an earlier mark is forgotten.
  virtual void record(DeviceStream stream = {}) = 0;
  // Work queued on `stream` from now on starts after the work before the mark; the host does not
  // wait. As the next: without a mark nothing happens.
  virtual void hold(DeviceStream stream) const = 0;
  // The host waits for the work before the mark.
  virtual void synchronize() const = 0;
  // Seconds of the device from the mark of `start` to this one, both recorded; waits for this one.
  virtual double seconds_since(const DeviceEvent& start) const = 0;
};

class Backend : public AllOps {
 public:
  // "reference", "cpu", "cuda:0".
  virtual std::string_view name() const = 0;
  // True: ops may read host memory in place (weights stay in the mapped file), and device memory is
  // host memory.
  virtual bool uses_host_memory() const = 0;

  // Uninitialised device memory, 256-byte aligned, for work on every stream. May wait for work that
  // uses freed memory, so not while a stream is being recorded. Throws Error: kOutOfMemory.
  DeviceBuffer allocate(std::int64_t bytes) { return {this, allocate_bytes(bytes), bytes}; }
  // Bytes that live DeviceBuffers hold, as they were asked for.
  virtual std::int64_t allocated_bytes() const = 0;
  // Bytes taken from the device: those, what rounds them up, and what waits to be used again.
  virtual std::int64_t reserved_bytes() const { return allocated_bytes(); }
  // Gives back what no live DeviceBuffer needs, for other users of the device; may wait as
  // allocate() does.
  virtual void trim() {}

  // Ordered on `stream`; host memory must stay valid until synchronize().
  virtual void copy_to_device(void* to, const void* from, std::int64_t bytes,
                              DeviceStream stream = {}) = 0;
  virtual void copy_to_host(void* to, const void* from, std::int64_t bytes,
                            DeviceStream stream = {}) = 0;
  virtual void copy_on_device(void* to, const void* from, std::int64_t bytes,
                              DeviceStream stream = {}) = 0;
  virtual void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream stream = {}) = 0;
  // Bytes of p.out, which need not be set yet; 0: the expert GEMMs read such weights as they are.
  virtual std::int64_t packed_bytes(const ExpertPackParams& /*p*/) const { return 0; }

  // Waits for all work queued on `stream`. Errors of queued work surface here.
  virtual void synchronize(DeviceStream stream = {}) = 0;
  // Work on different streams has no order, but for that by events. Throw Error.
  virtual std::unique_ptr<OwnedStream> create_stream() = 0;
  virtual std::unique_ptr<DeviceEvent> create_event() = 0;

 protected:
  friend class DeviceBuffer;
  virtual std::byte* allocate_bytes(std::int64_t bytes) = 0;
  virtual void free_bytes(std::byte* data, std::int64_t bytes) noexcept = 0;
};

inline DeviceBuffer::~DeviceBuffer() {
  if (backend_ != nullptr) backend_->free_bytes(data_, bytes_);
}

}  // namespace dsv4
