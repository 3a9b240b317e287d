// cuda_rows.h: rows of matrices on a device, in host memory, for a benchmark's check against the
// reference.
#pragma once

#include "ops/backend.h"
#include "testing/test_matrix.h"

namespace dsv4::bench {

// A copy of a device matrix's row [1, cols] in host memory.
inline testing::HostMatrix row_from(Backend& backend, const testing::HostMatrix& shape,
                                    const MatrixView& m, std::int64_t row) {
  testing::HostMatrix host(shape.spec, 1, m.cols);
  const auto copy = [&](void* to, const void* from, std::int64_t bytes, std::int64_t rows_before) {
    if (bytes == 0) return;
    backend.copy_to_host(to, static_cast<const std::byte*>(from) + rows_before * bytes, bytes);
  };
  copy(host.data.data(), m.data, static_cast<std::int64_t>(host.data.size()), row);
  copy(host.block_scales.data(), m.block_scales,
       static_cast<std::int64_t>(host.block_scales.size()), row);
  if (m.global_scale_stride == 1) {
    copy(host.global_scales.data(), m.global_scales, sizeof(float), row);
  }
  backend.synchronize();
  return host;
}

}  // namespace dsv4::bench
