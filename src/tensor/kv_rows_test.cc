// Bytes of every row kind, and where rows and their scales lie in a page.
#include "tensor/kv_rows.h"

#include <gtest/gtest.h>

#include <vector>

namespace dsv4 {
namespace {

const RowLayout kAllLayouts[] = {
    {RowKind::kF32, 128},        {RowKind::kBf16, 512},       {RowKind::kAttentionFp8, 512, 64},
    {RowKind::kIndexerFp8, 128}, {RowKind::kIndexerFp4, 128},
};

TEST(RowLayout, BytesOfTheReleasedRows) {
  EXPECT_EQ(RowLayout({RowKind::kAttentionFp8, 512, 64}).data_bytes(), 448 + 2 * 64);
  EXPECT_EQ(RowLayout({RowKind::kAttentionFp8, 512, 64}).scale_bytes(), 8) << "7 scales and a pad";
  EXPECT_EQ(RowLayout({RowKind::kAttentionFp8, 512, 64}).num_scales(), 7);
  EXPECT_EQ(RowLayout({RowKind::kIndexerFp8, 128}).row_bytes(), 132);
  EXPECT_EQ(RowLayout({RowKind::kIndexerFp4, 128}).data_bytes(), 64);
  EXPECT_EQ(RowLayout({RowKind::kIndexerFp4, 128}).scale_bytes(), 4);
  EXPECT_EQ(RowLayout({RowKind::kF32, 512}).row_bytes(), 2048);
  EXPECT_EQ(RowLayout({RowKind::kBf16, 512}).row_bytes(), 1024);
}

TEST(RowLayout, ScalesRoundUpBesideEveryBoundary) {
  const auto scale_bytes = [](std::int64_t nope) {
    return RowLayout{RowKind::kAttentionFp8, nope + 64, 64}.scale_bytes();
  };
  EXPECT_EQ(scale_bytes(0), 0) << "a row of nothing but RoPE values";
  EXPECT_EQ(scale_bytes(1), 8);
  EXPECT_EQ(scale_bytes(63), 8);
  EXPECT_EQ(scale_bytes(64), 8);
  EXPECT_EQ(scale_bytes(65), 8);
  EXPECT_EQ(scale_bytes(8 * 64), 8);
  EXPECT_EQ(scale_bytes(8 * 64 + 1), 16);
}

// Every byte of a page belongs to exactly one row's data or scales, data first.
TEST(PagedRows, RowsTileThePageDataFirst) {
  for (const RowLayout& layout : kAllLayouts) {
    for (std::int64_t page_rows : {1, 2, 16, 32, 64, 256}) {
      const std::int64_t page_bytes = page_rows * layout.row_bytes();
      std::vector<std::byte> memory(static_cast<std::size_t>(3 * (page_bytes + 40)));
      const PagedRowsView rows{memory.data(), layout, page_rows, page_bytes + 40, 3};
      for (std::int64_t page = 0; page < 3; ++page) {
        const std::byte* const begin = memory.data() + page * (page_bytes + 40);
        for (std::int64_t i = 0; i < page_rows; ++i) {
          const std::int64_t slot = page * page_rows + i;
          ASSERT_EQ(rows.row_data(slot) - begin, i * layout.data_bytes());
          ASSERT_EQ(rows.row_scales(slot) - begin,
                    page_rows * layout.data_bytes() + i * layout.scale_bytes());
          ASSERT_LE(rows.row_scales(slot) + layout.scale_bytes() - begin, page_bytes);
        }
      }
    }
  }
}

// Slots past 2^31 and byte offsets past 2^41; no pointer is followed.
TEST(PagedRows, OffsetsAre64Bit) {
  const std::int64_t stride = std::int64_t{1} << 20;
  const PagedRowsView rows{
      nullptr, {RowKind::kAttentionFp8, 512, 64}, 64, stride, std::int64_t{1} << 30};
  const auto offset = [](const std::byte* p) { return reinterpret_cast<std::intptr_t>(p); };
  for (const std::int64_t page : {2'100LL, 1LL << 21, 1LL << 26}) {
    EXPECT_EQ(offset(rows.row_data(page * 64 + 3)), page * stride + 3 * 576);
    EXPECT_EQ(offset(rows.row_scales(page * 64 + 3)), page * stride + 64 * 576 + 3 * 8);
  }
}

TEST(PagedRows, MutableViewConvertsToTheSamePlace) {
  std::vector<std::byte> memory(1024);
  const MutablePagedRowsView rows{{memory.data(), {RowKind::kBf16, 16}, 4, 256, 4}};
  const PagedRowsView view = rows;
  EXPECT_EQ(view.row_data(7), rows.row_data(7));
  EXPECT_EQ(view.layout, rows.layout);
  EXPECT_EQ(view.num_pages, 4);
}

}  // namespace
}  // namespace dsv4
