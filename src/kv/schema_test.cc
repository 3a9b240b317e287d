// The bytes that a cache plan promises.
#include "kv/schema.h"

#include <gtest/gtest.h>

#include "kv/cache_fixtures.h"

namespace dsv4 {
namespace {

// Rows of head dim 128 with 64 rotated: 64 + 128 + 8 = 200 bytes; index rows 68.
TEST(CacheSchema, CountsEveryRow) {
  const CacheSchema schema = small_schema(16, 40);
  EXPECT_EQ(schema.compress_ratios(), (std::vector<int>{4, 128}));
  EXPECT_EQ(schema.page_bytes(4), 16 * (200 + 68));
  EXPECT_EQ(schema.page_bytes(128), 16 * 200);
  EXPECT_DOUBLE_EQ(schema.bytes_per_token(), (200 + 68) / 4.0 + 200 / 128.0);
  EXPECT_EQ(schema.fixed_bytes(), 3 * 40 * 200 + 4 * (4096 + 2048 + 384));
}

TEST(CacheSchema, OfAWindowOnlyModelGrowsWithNothing) {
  CacheSchema schema = small_schema(16, 40);
  schema.layers.resize(1);
  EXPECT_TRUE(schema.compress_ratios().empty());
  EXPECT_EQ(schema.bytes_per_token(), 0);
  EXPECT_EQ(schema.page_bytes(4), 0);
  EXPECT_EQ(schema.fixed_bytes(), 40 * 200);
  MemoryBackend backend;
  KvCache cache(backend, schema, 1000, 1);
  EXPECT_EQ(backend.allocated_bytes(), 40 * 200);
}

}  // namespace
}  // namespace dsv4
