// A model at its door: what it refuses, and that a refusal changes nothing. What it computes is
// judged by tests/golden_test.cc and tests/invariance_test.cc.
#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "backends/backends.h"
#include "base/error.h"
#include "checkpoint/bind.h"
#include "checkpoint/layout.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "testing/golden_copy.h"

namespace dsv4 {
namespace {

using testing::HasSubstr;

template <class Action>
Error error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::kIo, "");
}

struct Preset {
  const char* name;
  ModelConfig config;
  LayoutFormats formats;
};
void PrintTo(const Preset& preset, std::ostream* os) { *os << preset.name; }

class Presets : public testing::TestWithParam<Preset> {};

// All layers of the published models, from headers alone: names, dtypes, shapes, plans.
TEST_P(Presets, EveryLayerConstructsAndValidates) {
  const Preset& preset = GetParam();
  const auto store = std::make_shared<TensorStore>(
      TensorStore::from_headers(expected_tensors(preset.config, preset.formats)));
  const auto weights = std::make_shared<ModelWeights>(bind_weights(preset.config, store));
  ASSERT_EQ(weights->layers.size(), static_cast<std::size_t>(preset.config.num_layers));
  EXPECT_TRUE(weights->report.unused.empty());
  for (std::size_t i = 0; i < weights->layers.size(); ++i) {
    SCOPED_TRACE(i);
    const LayerWeights& layer = weights->layers[i];
    EXPECT_EQ(layer.compress_ratio, preset.config.compress_ratios[i]);
    EXPECT_EQ(layer.compressor.has_value(), layer.compress_ratio != 0);
    EXPECT_EQ(layer.indexer.has_value(), layer.compress_ratio == 4);
    EXPECT_EQ(layer.router.by_hash, i < 3);
    EXPECT_EQ(layer.experts.gate.size(), static_cast<std::size_t>(preset.config.num_experts));
  }
  const auto backend = open_backend("reference");
  const Model model(weights, *backend, {.max_step_tokens = 1});
  EXPECT_TRUE(model.has_draft());
  const auto cache = model.make_cache(256, 1);
  EXPECT_EQ(cache->schema.layers.size(), weights->layers.size() + 1);
}

INSTANTIATE_TEST_SUITE_P(
    Published, Presets,
    testing::Values(Preset{"FlashOfficial", flash_config(), kOfficialFormats},
                    Preset{"FlashNvfp4", flash_config(), kModelOptNvfp4Formats},
                    Preset{"FlashBf16", flash_config(), kBf16Formats},
                    Preset{"ProOfficial", pro_config(), kOfficialFormats},
                    Preset{"ProNvfp4", pro_config(), kModelOptNvfp4Formats}),
    [](const auto& preset_info) { return std::string(preset_info.param.name); });

// A golden model with room for `capacity` tokens over two sessions, pages of two rows.
class TinyModel : public testing::Test {
 protected:
  explicit TinyModel(std::int64_t capacity = 64) { cache_ = model_.make_cache(capacity, 2); }

  void forward(std::vector<TokenId> tokens, std::vector<StepSequence> sequences,
               std::vector<std::int32_t> rows = {}) {
    model_.forward(*cache_, {tokens, sequences, rows});
  }
  void run(SequenceCache& sequence, std::int64_t count) {
    forward(std::vector<TokenId>(static_cast<std::size_t>(count), 7),
            {{&sequence, sequence.length(), count}});
  }
  std::vector<std::int32_t> free_pages() {
    return {cache_->paged.pages(4).num_free(), cache_->paged.pages(128).num_free()};
  }

  std::unique_ptr<Backend> backend_ = open_backend("reference");
  Model model_{load_checkpoint(golden_dir("flash-bf16")),
               *backend_,
               {.max_step_tokens = 40, .page_rows = 2}};
  std::unique_ptr<KvCache> cache_;
};

TEST_F(TinyModel, RefusesATokenOutsideTheVocabulary) {
  SequenceCache sequence(*cache_);
  run(sequence, 5);
  const auto before = free_pages();
  for (const TokenId id : {-1, 256, -2147483647 - 1, 2147483647}) {
    const Error error = error_of([&] { forward({1, id}, {{&sequence, 5, 2}}); });
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(id)));
    EXPECT_EQ(sequence.length(), 5);
    EXPECT_EQ(free_pages(), before);
  }
  forward({0, 255}, {{&sequence, 5, 2}});
  EXPECT_EQ(sequence.length(), 7);
}

TEST_F(TinyModel, RefusesAStepOfOneTokenTooMany) {
  SequenceCache a(*cache_), b(*cache_);
  EXPECT_EQ(error_of([&] { run(a, 41); }).code(), ErrorCode::kBadRequest);
  EXPECT_EQ(a.length(), 0);
  const std::vector<TokenId> tokens(41, 7);
  EXPECT_EQ(error_of([&] {
              forward(tokens, {{&a, 0, 40}, {&b, 0, 1}});
            }).code(),
            ErrorCode::kBadRequest);
  EXPECT_EQ(b.length(), 0);
  run(a, 40);
  EXPECT_EQ(a.length(), 40);
}

TEST_F(TinyModel, RefusesAPositionPastTheModels) {
  ModelWeights weights =
      bind_weights(load_model_config(golden_dir("flash-bf16")),
                   std::make_shared<TensorStore>(TensorStore::open(golden_dir("flash-bf16"))));
  weights.config.max_positions = 6;
  Model model(std::make_shared<const ModelWeights>(std::move(weights)), *backend_,
              {.max_step_tokens = 40});
  const auto cache = model.make_cache(64, 1);
  SequenceCache sequence(*cache);
  const std::vector<TokenId> tokens(7, 7);
  const auto step = [&](std::size_t count) {
    const StepSequence sequences[] = {
        {&sequence, sequence.length(), static_cast<std::int64_t>(count)}};
    model.forward(*cache, {std::span(tokens).first(count), sequences, {}});
  };
  EXPECT_EQ(error_of([&] { step(7); }).code(), ErrorCode::kBadRequest);
  step(6);
  EXPECT_EQ(error_of([&] { step(1); }).code(), ErrorCode::kBadRequest);
  EXPECT_EQ(sequence.length(), 6);
}

// The second session does not fit: the first must not keep the pages reserved for this step.
TEST_F(TinyModel, AFullCacheChangesNothing) {
  SequenceCache a(*cache_), b(*cache_);
  run(a, 30);
  run(b, 30);
  const auto before = free_pages();
  const std::vector<std::int32_t> table(a.page_table(4).begin(), a.page_table(4).end());
  const std::vector<TokenId> tokens(40, 7);
  const Error error = error_of([&] { forward(tokens, {{&a, 30, 8}, {&b, 30, 32}}); });
  EXPECT_EQ(error.code(), ErrorCode::kOverloaded);
  EXPECT_EQ(a.length(), 30);
  EXPECT_EQ(b.length(), 30);
  EXPECT_EQ(free_pages(), before);
  EXPECT_EQ(std::vector<std::int32_t>(a.page_table(4).begin(), a.page_table(4).end()), table);
  run(a, 2);  // what fits still runs
  EXPECT_EQ(a.length(), 32);
}

TEST_F(TinyModel, ZeroTokensAreAStepOfNothing) {
  forward({}, {});
  EXPECT_EQ(model_.logits().rows, 0);
  EXPECT_EQ(model_.residuals().rows, 0);
  SequenceCache a(*cache_), b(*cache_);
  forward({}, {{&a, 0, 0}});
  EXPECT_EQ(a.length(), 0);
  // A session without tokens between others.
  run(a, 3);
  forward({5, 6}, {{&b, 0, 0}, {&a, 3, 2}}, {1});
  EXPECT_EQ(a.length(), 5);
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(model_.logits().rows, 1);
}

TEST_F(TinyModel, LogitsComeInTheOrderAsked) {
  SequenceCache a(*cache_), b(*cache_);
  forward({1, 2, 3}, {{&a, 0, 3}}, {0, 1, 2});
  std::vector<float> all(3 * 256);
  std::memcpy(all.data(), model_.logits().data, all.size() * sizeof(float));
  forward({1, 2, 3}, {{&b, 0, 3}}, {2, 0, 2});
  ASSERT_EQ(model_.logits().rows, 3);
  const auto* got = static_cast<const float*>(model_.logits().data);
  for (int i = 0; i < 3; ++i) {
    const int row = std::array{2, 0, 2}[static_cast<std::size_t>(i)];
    EXPECT_EQ(std::memcmp(got + i * 256, all.data() + row * 256, 256 * sizeof(float)), 0) << i;
  }
}

TEST_F(TinyModel, ReadsExactlyWhenNothingRounds) {
  const auto weights = load_checkpoint(golden_dir("flash-official"));
  const auto is_exact = [&](Activations activations, bool simulate, KvFormat kv) {
    return Model(weights, *backend_,
                 {.activations = activations,
                  .simulate_rows = simulate,
                  .kv = kv,
                  .max_step_tokens = 1})
        .is_exact();
  };
  EXPECT_TRUE(is_exact(Activations::kA16, false, KvFormat::kF32));
  EXPECT_FALSE(is_exact(Activations::kA16, false, KvFormat::kBf16));
  EXPECT_FALSE(is_exact(Activations::kA16, true, KvFormat::kF32));
  EXPECT_FALSE(is_exact(Activations::kA8, false, KvFormat::kF32));
}

TEST_F(TinyModel, RefusesADraftThatIsNotThere) {
  Model model(load_checkpoint(golden_dir("flash-bf16"), {.with_draft = false}), *backend_,
              {.max_step_tokens = 4});
  EXPECT_FALSE(model.has_draft());
  const auto cache = model.make_cache(64, 1);
  EXPECT_EQ(error_of([&] { model.forward_draft(*cache, {}); }).code(), ErrorCode::kUnsupported);
}

TEST_F(TinyModel, RefusesOptionsBeforeAllocatingForThem) {
  const std::int64_t before = backend_->allocated_bytes();
  for (const std::int64_t max_step : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 62}) {
    const Error error = error_of([&] {
      Model(load_checkpoint(golden_dir("flash-bf16")), *backend_, {.max_step_tokens = max_step});
    });
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
  }
  EXPECT_EQ(backend_->allocated_bytes(), before);
}

}  // namespace
}  // namespace dsv4
