// The bytes of a session's cache: the figures by which users choose their context.
#include "model/cache_schema.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace dsv4 {
namespace {

std::int64_t bytes_per_token(const ModelConfig& config, RowKind index_rows) {
  CacheSchema schema = make_cache_schema(config, {}, false);
  for (LayerCacheSchema& layer : schema.layers) {
    if (layer.has_indexer()) layer.index_rows.kind = index_rows;
  }
  return std::lround(schema.bytes_per_token());
}

// Published figures of the cache layout, in whole bytes.
TEST(CacheSchema, BytesPerToken) {
  EXPECT_EQ(bytes_per_token(flash_config(), RowKind::kIndexerFp4), 3514);
  EXPECT_EQ(bytes_per_token(flash_config(), RowKind::kIndexerFp8), 3850);
  EXPECT_EQ(bytes_per_token(pro_config(), RowKind::kIndexerFp4), 5031);
  EXPECT_EQ(bytes_per_token(pro_config(), RowKind::kIndexerFp8), 5511);
  EXPECT_EQ(make_cache_schema(flash_config(), {}, false).layers[2].index_rows.kind,
            RowKind::kIndexerFp4);
}

TEST(CacheSchema, LayersOfFlashAndPro) {
  struct Expected {
    ModelConfig config;
    int window_only, with_indexer, without;
  };
  for (const Expected& e :
       {Expected{flash_config(), 2, 21, 20}, Expected{pro_config(), 0, 30, 31}}) {
    const CacheSchema schema = make_cache_schema(e.config, {}, false);
    ASSERT_EQ(schema.layers.size(), static_cast<std::size_t>(e.config.num_layers));
    int window_only = 0, with_indexer = 0, without = 0;
    for (const LayerCacheSchema& layer : schema.layers) {
      EXPECT_EQ(layer.raw_rows.row_bytes(), 584);
      switch (layer.compress_ratio) {
        case 0:
          ++window_only;
          EXPECT_EQ(layer.comp_state_floats + layer.index_state_floats, 0);
          break;
        case 4:
          ++with_indexer;
          EXPECT_EQ(layer.comp_state_floats, 2 * 4 * 2 * 1024);
          EXPECT_EQ(layer.index_state_floats, 2 * 4 * 2 * 256);
          EXPECT_EQ(layer.index_rows.row_bytes(), 68);
          break;
        default:
          ++without;
          EXPECT_EQ(layer.compress_ratio, 128);
          EXPECT_EQ(layer.comp_state_floats, 3 * 512);
          EXPECT_FALSE(layer.has_indexer());
      }
    }
    EXPECT_EQ(window_only, e.window_only);
    EXPECT_EQ(with_indexer, e.with_indexer);
    EXPECT_EQ(without, e.without);
  }
}

TEST(CacheSchema, RowsFollowTheOptions) {
  const auto first = [](KvFormat kv, bool simulate) {
    return make_cache_schema(flash_config(), {.simulate_rows = simulate, .kv = kv}, false)
        .layers[2];
  };
  EXPECT_EQ(first(KvFormat::kBf16, true).comp_rows.row_bytes(), 1024);
  EXPECT_EQ(first(KvFormat::kF32, false).comp_rows.row_bytes(), 2048);
  EXPECT_EQ(first(KvFormat::kF32, false).index_rows.row_bytes(), 512);
  EXPECT_EQ(first(KvFormat::kBf16, true).index_rows.row_bytes(), 68);
}

TEST(CacheSchema, TheRingHoldsTheWindowAndALargestStep) {
  const CacheSchema schema = make_cache_schema(flash_config(), {.max_step_tokens = 100}, false);
  EXPECT_EQ(schema.ring_rows, 128 - 1 + 100);
}

TEST(CacheSchema, TheDraftBlockIsTheLastLayer) {
  const CacheSchema schema = make_cache_schema(flash_config(), {}, true);
  ASSERT_EQ(schema.layers.size(), 44u);
  EXPECT_EQ(schema.layers.back().compress_ratio, 0);
}

TEST(CacheSchema, RefusesOptionsThatContradictEachOther) {
  for (const ModelOptions& options :
       {ModelOptions{.simulate_rows = false, .kv = KvFormat::kFp8},
        ModelOptions{.max_step_tokens = 0}, ModelOptions{.max_step_tokens = -1},
        ModelOptions{.max_step_tokens = kMaxStepTokens + 1}, ModelOptions{.page_rows = 0},
        ModelOptions{.page_rows = kMaxPageRows + 1}}) {
    try {
      make_cache_schema(flash_config(), options, false);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    }
  }
}

}  // namespace
}  // namespace dsv4
