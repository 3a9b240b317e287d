// kv_rows.h: the bytes of every kind of cache row, and where a row lies in a page.
//
// In a page of n rows the n x data bytes come first, then the n x scale bytes, so that data rows
// keep their alignment; the layouts are those of the fastest public kernels (docs/formats.md). A
// row's slot is page * page_rows + row_in_page. Values: kv_row_codec.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/math.h"

namespace dsv4 {

// kF32, kBf16:   width plain values (window, compressed or indexer rows)
// kAttentionFp8: width - rope_dim E4M3 codes in quant blocks of 64, then rope_dim BF16 values; E8M0
//                scales, one per 64 codes, padded to a multiple of 8 bytes. 584 bytes at 512 = 448
//                + 64
// kIndexerFp8:   width E4M3 codes and one FP32 scale
// kIndexerFp4:   width E2M1 codes, two a byte, and an E8M0 scale per 32
enum class RowKind : std::uint8_t { kF32, kBf16, kAttentionFp8, kIndexerFp8, kIndexerFp4 };

inline constexpr std::int64_t kAttentionFp8QuantBlock = 64;
inline constexpr std::int64_t kIndexerFp4QuantBlock = 32;

struct RowLayout {
  RowKind kind = RowKind::kF32;
  std::int64_t width = 0;     // values in a row: head_dim or index_head_dim
  std::int64_t rope_dim = 0;  // kAttentionFp8: how many of the last values stay BF16

  // kAttentionFp8: scales that hold something; the rest up to scale_bytes() is pad, never read.
  constexpr std::int64_t num_scales() const {
    return ceil_div(width - rope_dim, kAttentionFp8QuantBlock);
  }
  constexpr std::int64_t data_bytes() const {
    switch (kind) {
      case RowKind::kF32:
        return 4 * width;
      case RowKind::kBf16:
        return 2 * width;
      case RowKind::kAttentionFp8:
        return width - rope_dim + 2 * rope_dim;
      case RowKind::kIndexerFp8:
        return width;
      case RowKind::kIndexerFp4:
        return width / 2;
    }
    return 0;
  }
  constexpr std::int64_t scale_bytes() const {
    switch (kind) {
      case RowKind::kF32:
      case RowKind::kBf16:
        return 0;
      case RowKind::kAttentionFp8:
        return round_up(num_scales(), 8);
      case RowKind::kIndexerFp8:
        return 4;
      case RowKind::kIndexerFp4:
        return width / kIndexerFp4QuantBlock;
    }
    return 0;
  }
  constexpr std::int64_t row_bytes() const { return data_bytes() + scale_bytes(); }
  constexpr bool operator==(const RowLayout&) const = default;
};

static_assert(RowLayout{RowKind::kAttentionFp8, 512, 64}.row_bytes() == 584);
static_assert(RowLayout{RowKind::kIndexerFp8, 128}.row_bytes() == 132);
static_assert(RowLayout{RowKind::kIndexerFp4, 128}.row_bytes() == 68);

// Rows of one kind in pages. Byte is `std::byte` or `const std::byte`, perhaps on a device.
template <class Byte>
struct BasicPagedRowsView {
  Byte* data = nullptr;
  RowLayout layout;
  std::int64_t page_rows = 0;
  std::int64_t page_stride_bytes = 0;  // at least page_rows * row_bytes(); may be more
  std::int64_t num_pages = 0;

  constexpr Byte* row_data(std::int64_t slot) const {
    return data + slot / page_rows * page_stride_bytes + slot % page_rows * layout.data_bytes();
  }
  constexpr Byte* row_scales(std::int64_t slot) const {
    return data + slot / page_rows * page_stride_bytes + page_rows * layout.data_bytes() +
           slot % page_rows * layout.scale_bytes();
  }
};

using PagedRowsView = BasicPagedRowsView<const std::byte>;
struct MutablePagedRowsView : BasicPagedRowsView<std::byte> {
  operator PagedRowsView() const { return {data, layout, page_rows, page_stride_bytes, num_pages}; }
};

}  // namespace dsv4
