// cache_fixtures.h: a small cache schema and a backend of memory alone, for the tests of kv/, which
// launches no kernel and must not depend on one.
#pragma once

#include <cstdlib>
#include <cstring>

#include "kv/kv_cache.h"
#include "ops/host_backend.h"

namespace dsv4 {

// Host memory, filled with 0xFF; no ops.
class MemoryBackend final : public Backend {
 public:
  std::string_view name() const override { return "memory"; }
  bool uses_host_memory() const override { return true; }
  std::int64_t allocated_bytes() const override { return allocated_bytes_; }
  void copy_to_device(void* to, const void* from, std::int64_t bytes, DeviceStream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void copy_to_host(void* to, const void* from, std::int64_t bytes, DeviceStream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void copy_on_device(void* to, const void* from, std::int64_t bytes, DeviceStream) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void fill(void* to, std::uint8_t byte, std::int64_t bytes, DeviceStream) override {
    std::memset(to, byte, static_cast<std::size_t>(bytes));
  }
  void synchronize(DeviceStream) override {}
  std::unique_ptr<OwnedStream> create_stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<DeviceEvent> create_event() override { return std::make_unique<HostEvent>(); }

 protected:
  std::byte* allocate_bytes(std::int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* data = std::malloc(static_cast<std::size_t>(bytes));
    std::memset(data, 0xFF, static_cast<std::size_t>(bytes));
    allocated_bytes_ += bytes;
    return static_cast<std::byte*>(data);
  }
  void free_bytes(std::byte* data, std::int64_t bytes) noexcept override {
    std::free(data);
    allocated_bytes_ -= bytes;
  }

 private:
  std::int64_t allocated_bytes_ = 0;
};

// One layer of each kind: ratio 0, 4 with an indexer, 128.
inline CacheSchema small_schema(std::int64_t page_rows, std::int64_t ring_rows = 40) {
  const RowLayout row{RowKind::kAttentionFp8, 128, 64};
  CacheSchema schema;
  schema.ring_rows = ring_rows;
  schema.page_rows = page_rows;
  schema.layers = {
      {0, row, {}, {}, 0, 0},
      {4, row, row, {RowKind::kIndexerFp4, 128, 0}, 4096, 2048},
      {128, row, row, {}, 384, 0},
  };
  return schema;
}

}  // namespace dsv4
