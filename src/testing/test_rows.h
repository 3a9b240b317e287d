// test_rows.h: pools of cache rows for tests: in host memory with poisoned pages and padding, and
// their copies on a device.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/kv_row_codec.h"
#include "testing/device_array.h"

namespace dsv4::testing {

// A pool that owns its bytes. All of it is poison (NaN in every row kind) until a row is set.
struct HostRows {
  HostRows(const RowLayout& row_layout, std::int64_t rows_per_page, std::int64_t pages,
           std::int64_t page_padding_bytes = 0)
      : layout(row_layout),
        page_rows(rows_per_page),
        num_pages(pages),
        page_stride_bytes(rows_per_page * row_layout.row_bytes() + page_padding_bytes),
        bytes(static_cast<std::size_t>(pages * page_stride_bytes), std::byte{kPoisonByte}) {}

  void set(std::int64_t slot, const std::vector<float>& x) {
    const MutablePagedRowsView rows = view_on(bytes.data());
    encode_kv_row(layout, x.data(), rows.row_data(slot), rows.row_scales(slot));
  }
  std::vector<float> get(std::int64_t slot) const {
    const PagedRowsView rows{bytes.data(), layout, page_rows, page_stride_bytes, num_pages};
    std::vector<float> x(static_cast<std::size_t>(layout.width));
    decode_kv_row(layout, rows.row_data(slot), rows.row_scales(slot), x.data());
    return x;
  }
  MutablePagedRowsView view_on(std::byte* other) const {
    return {{other, layout, page_rows, page_stride_bytes, num_pages}};
  }

  RowLayout layout;
  std::int64_t page_rows;
  std::int64_t num_pages;
  std::int64_t page_stride_bytes;
  std::vector<std::byte> bytes;
};

// A HostRows on a backend's device, between guards.
class DeviceRows {
 public:
  DeviceRows(Backend& backend, HostRows host)
      : host_(std::move(host)), bytes_(backend, host_.bytes) {}

  MutablePagedRowsView view() const { return host_.view_on(bytes_.data()); }
  HostRows read() const {
    HostRows rows = host_;
    rows.bytes = bytes_.read();
    return rows;
  }

 private:
  HostRows host_;
  DeviceArray<std::byte> bytes_;
};

}  // namespace dsv4::testing
