// Owning host memory: alignment, fill, and who owns it after a move.
#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dsv4 {
namespace {

TEST(Buffer, EmptyOnesHoldNothing) {
  for (const Buffer& empty : {Buffer(), Buffer(0), Buffer(0, 0xFF)}) {
    EXPECT_EQ(empty.data(), nullptr);
    EXPECT_EQ(empty.size_bytes(), 0u);
    EXPECT_TRUE(empty.span<float>().empty());
  }
}

TEST(Buffer, EverySizeIsAlignedAndFilledToItsLastByte) {
  for (std::size_t bytes : {1, 2, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097}) {
    const Buffer buffer(bytes, 0xA5);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % Buffer::kAlignment, 0u);
    ASSERT_EQ(buffer.size_bytes(), bytes);
    const auto all = buffer.span<std::uint8_t>();
    ASSERT_EQ(all.size(), bytes);
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](std::uint8_t b) { return b == 0xA5; }));
  }
}

TEST(Buffer, MoveLeavesTheSourceEmpty) {
  Buffer from(100, 1);
  const std::byte* const data = from.data();
  Buffer to(std::move(from));
  EXPECT_EQ(to.data(), data);
  EXPECT_EQ(to.size_bytes(), 100u);
  EXPECT_EQ(from.size_bytes(), 0u);  // NOLINT: the state after a move is the point
  EXPECT_EQ(from.data(), nullptr);

  Buffer assigned(7, 2);
  assigned = std::move(to);
  EXPECT_EQ(assigned.data(), data);
  EXPECT_EQ(assigned.size_bytes(), 100u);
  EXPECT_EQ(to.size_bytes(), 0u);
  EXPECT_EQ(to.data(), nullptr);
  EXPECT_EQ(assigned.span<std::uint8_t>()[99], 1);
}

TEST(Buffer, SpansCountWholeElementsOnly) {
  Buffer buffer(11, 0);
  EXPECT_EQ(buffer.span<float>().size(), 2u);
  buffer.as<float>()[1] = 3.0f;
  EXPECT_EQ(buffer.span<float>()[1], 3.0f);
  EXPECT_EQ(std::as_const(buffer).as<float>()[1], 3.0f);
}

}  // namespace
}  // namespace dsv4
