// A token's logits do not depend on how its prompt was cut into steps, on what else is in a step,
// or on what the cache memory held before: all comparisons here are bit for bit. All memory starts
// as NaN, so that a value read before it was written cannot go unseen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>

#include "base/error.h"
#include "checkpoint/bind.h"
#include "dsv4/types.h"
#include "kv/handle.h"
#include "model/model.h"
#include "reference/reference_backend.h"
#include "testing/golden_copy.h"
#include "testing/poisoned_backend.h"

namespace dsv4 {
namespace {

using Logits = std::vector<float>;

struct Mode {
  const char* name;
  const char* model;
  Activations activations;
  bool simulate_rows;
  KvFormat kv;
  const char* device = "reference";
};
void PrintTo(const Mode& mode, std::ostream* os) { *os << mode.name; }

const Mode kBf16{"bf16", "flash-bf16", Activations::kA16, true, KvFormat::kFp8};

ModelOptions options_of(const Mode& mode, std::int64_t max_step_tokens, std::int64_t page_rows) {
  return {.activations = mode.activations,
          .simulate_rows = mode.simulate_rows,
          .kv = mode.kv,
          .max_step_tokens = max_step_tokens,
          .page_rows = page_rows};
}

// Layers 1 and 2 of a golden model: window, CSA with indexer, HCA. Half the time of all four.
std::shared_ptr<const ModelWeights> two_layers(std::string_view model) {
  const std::filesystem::path dir = golden_dir(model);
  ModelWeights weights =
      bind_weights(load_model_config(dir), std::make_shared<TensorStore>(TensorStore::open(dir)),
                   {.with_draft = false});
  weights.layers.erase(weights.layers.begin() + 3, weights.layers.end());
  weights.layers.erase(weights.layers.begin());
  weights.config.num_layers = 2;
  weights.config.compress_ratios = {4, 128};
  return std::make_shared<const ModelWeights>(std::move(weights));
}

std::vector<TokenId> random_tokens(std::int64_t count, unsigned seed, std::int64_t vocab_size) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab_size)));
  }
  return tokens;
}

// Tokens of one session that one step computes.
struct Part {
  SequenceCache* sequence = nullptr;
  std::span<const TokenId> tokens;
};

class Runner {
 public:
  Runner(std::shared_ptr<const ModelWeights> weights, const ModelOptions& options,
         std::int64_t capacity_tokens = 1024, int max_sessions = 4,
         std::string_view device = "reference")
      : backend_(poisoned_backend(device)),
        model_(std::move(weights), *backend_, options),
        cache_(model_.make_cache(capacity_tokens, max_sessions)) {}

  KvCache& cache() { return *cache_; }
  std::int64_t vocab_size() const { return model_.config().vocab_size; }

  // Logits of every token of the step, in the order of `parts`.
  std::vector<Logits> step(const std::vector<Part>& parts) {
    std::vector<TokenId> tokens;
    std::vector<StepSequence> sequences;
    for (const Part& part : parts) {
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      sequences.push_back(
          {part.sequence, part.sequence->length(), static_cast<std::int64_t>(part.tokens.size())});
    }
    std::vector<std::int32_t> rows;
    for (std::size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<std::int32_t>(i));
    model_.forward(*cache_, {tokens, sequences, rows});
    return logits();
  }
  // Logits of the last token alone.
  Logits prefill(SequenceCache& sequence, std::span<const TokenId> tokens) {
    const auto count = static_cast<std::int64_t>(tokens.size());
    const StepSequence sequences[] = {{&sequence, sequence.length(), count}};
    const std::int32_t rows[] = {static_cast<std::int32_t>(count - 1)};
    model_.forward(*cache_, {tokens, sequences, rows});
    return logits().at(0);
  }
  // The tokens in steps of the given sizes; what the sizes leave is one more step.
  std::vector<Logits> in_chunks(SequenceCache& sequence, std::span<const TokenId> tokens,
                                std::span<const std::size_t> sizes) {
    std::vector<Logits> all;
    std::size_t begin = 0;
    const auto take = [&](std::size_t count) {
      for (Logits& row : step({{&sequence, tokens.subspan(begin, count)}})) {
        all.push_back(std::move(row));
      }
      begin += count;
    };
    for (const std::size_t size : sizes) take(size);
    if (begin < tokens.size()) take(tokens.size() - begin);
    return all;
  }
  std::vector<Logits> in_chunks(std::span<const TokenId> tokens,
                                std::span<const std::size_t> sizes) {
    SequenceCache sequence(*cache_);
    return in_chunks(sequence, tokens, sizes);
  }
  // One token a step.
  std::vector<Logits> decode(std::span<const TokenId> tokens) {
    return in_chunks(tokens, std::vector<std::size_t>(tokens.size(), 1));
  }

  // NaN into all rows and states; no session may live.
  void poison_cache() {
    for (std::size_t i = 0; i < cache_->schema.layers.size(); ++i) {
      const int layer = static_cast<int>(i);
      const LayerCacheSchema& schema = cache_->schema.layers[i];
      const std::int64_t sessions = cache_->state.states().capacity();
      poison_rows(cache_->state.raw_rows(layer));
      poison_rows(cache_->paged.comp_rows(layer));
      poison_rows(cache_->paged.index_rows(layer));
      poison_floats(cache_->state.comp_states(layer), sessions * schema.comp_state_floats);
      poison_floats(cache_->state.index_states(layer), sessions * schema.index_state_floats);
    }
  }

 private:
  std::vector<Logits> logits() {
    const MatrixView m = model_.logits();
    std::vector<Logits> rows;
    for (std::int64_t row = 0; row < m.rows; ++row) {
      Logits& values = rows.emplace_back(static_cast<std::size_t>(m.cols));
      backend_->copy_to_host(values.data(), static_cast<const float*>(m.data) + row * m.row_stride,
                             m.cols * static_cast<std::int64_t>(sizeof(float)), {});
    }
    return rows;
  }
  void poison_rows(const MutablePagedRowsView& rows) {
    if (rows.data != nullptr)
      backend_->fill(rows.data, 0xFF, rows.num_pages * rows.page_stride_bytes, {});
  }
  void poison_floats(float* values, std::int64_t count) {
    if (values != nullptr)
      backend_->fill(values, 0xFF, count * static_cast<std::int64_t>(sizeof(float)), {});
  }

  std::unique_ptr<Backend> backend_;
  Model model_;
  std::unique_ptr<KvCache> cache_;
};

// Bits, not values: -0 is not 0. A NaN is a failure whatever it is compared with.
bool same_bits(const Logits& a, const Logits& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y) && x == x;
  });
}

// Names the first position that differs.
void expect_same(std::span<const Logits> got, std::span<const Logits> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same_bits(got[i], want[i])) << "position " << i << " of " << got.size();
  }
}

// Cuts `count` into steps of random sizes, small and large.
std::vector<std::size_t> random_split(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes;
  for (std::size_t left = count; left > 0; left -= sizes.back()) {
    const std::size_t largest = random() % 3 == 0 ? 150 : 9;
    sizes.push_back(std::min<std::size_t>(left, 1 + random() % largest));
  }
  return sizes;
}

// Steps that end exactly at the given lengths.
std::vector<std::size_t> split_at(std::initializer_list<std::size_t> lengths) {
  std::vector<std::size_t> sizes;
  std::size_t begin = 0;
  for (const std::size_t length : lengths) {
    sizes.push_back(length - begin);
    begin = length;
  }
  return sizes;
}

constexpr std::int64_t kMaxLength = 300;  // past two HCA groups of 128 and nine windows of 32

// Every length by itself, in four parts that can run side by side.
class EveryLength : public testing::TestWithParam<std::int64_t> {};

TEST_P(EveryLength, PrefillEqualsDecode) {
  Runner run(two_layers("flash-bf16"), options_of(kBf16, kMaxLength, 64));
  const std::vector<TokenId> tokens = random_tokens(kMaxLength, 1, run.vocab_size());
  const std::vector<Logits> decoded = run.decode(tokens);
  for (std::int64_t length = 1 + GetParam(); length <= kMaxLength; length += 4) {
    SequenceCache sequence(run.cache());
    const Logits logits =
        run.prefill(sequence, std::span(tokens).first(static_cast<std::size_t>(length)));
    ASSERT_TRUE(same_bits(logits, decoded[static_cast<std::size_t>(length - 1)])) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, EveryLength, testing::Values(0, 1, 2, 3));

const Mode kModes[] = {
    kBf16,
    {"bf16_rows_bf16", "flash-bf16", Activations::kA16, true, KvFormat::kBf16},
    {"bf16_rows_exact", "flash-bf16", Activations::kA16, false, KvFormat::kF32},
    {"bf16_rows_exact_in_bf16", "flash-bf16", Activations::kA16, false, KvFormat::kBf16},
    {"official_a16", "flash-official", Activations::kA16, true, KvFormat::kFp8},
    {"official_a8", "flash-official", Activations::kA8, true, KvFormat::kFp8},
    {"nvfp4_a16", "flash-nvfp4", Activations::kA16, true, KvFormat::kFp8},
    {"nvfp4_a4", "flash-nvfp4", Activations::kA4, true, KvFormat::kFp8},
    {"bf16_on_cpu", "flash-bf16", Activations::kA16, true, KvFormat::kFp8, "cpu"},
    {"bf16_rows_exact_on_cpu", "flash-bf16", Activations::kA16, false, KvFormat::kF32, "cpu"},
    {"official_a8_on_cpu", "flash-official", Activations::kA8, true, KvFormat::kFp8, "cpu"},
    {"nvfp4_a4_on_cpu", "flash-nvfp4", Activations::kA4, true, KvFormat::kFp8, "cpu"},
};

class EveryMode : public testing::TestWithParam<Mode> {};

// Around the groups of 4 (two of them overlap), the window of 32 and the groups of 128: a step that
// ends one before, at and one after each.
TEST_P(EveryMode, AnySplitEqualsDecode) {
  const auto weights = load_checkpoint(golden_dir(GetParam().model), {.with_draft = false});
  Runner run(weights, options_of(GetParam(), 270, 64), 1024, 4, GetParam().device);
  const std::vector<TokenId> tokens = random_tokens(270, 2, run.vocab_size());
  const std::vector<Logits> decoded = run.decode(tokens);
  expect_same(run.in_chunks(tokens, {}), decoded);
  expect_same(run.in_chunks(tokens, split_at({4, 8, 32, 128, 256})), decoded);
  expect_same(run.in_chunks(tokens, split_at({3, 7, 31, 127, 255})), decoded);
  expect_same(run.in_chunks(tokens, split_at({5, 9, 33, 129, 257})), decoded);
  expect_same(run.in_chunks(tokens, random_split(tokens.size(), 3)), decoded);
}

std::string mode_name(const testing::TestParamInfo<Mode>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Modes, EveryMode, testing::ValuesIn(kModes), mode_name);

TEST(Invariance, RandomSplitsEqualDecode) {
  Runner run(two_layers("flash-bf16"), options_of(kBf16, 150, 64));
  const std::vector<TokenId> tokens = random_tokens(kMaxLength, 4, run.vocab_size());
  const std::vector<Logits> decoded = run.decode(tokens);
  for (unsigned seed = 10; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    expect_same(run.in_chunks(tokens, random_split(tokens.size(), seed)), decoded);
  }
}

// Every simulated row is exact in BF16.
TEST(Invariance, Bf16RowsEqualFp8Rows) {
  for (const char* model : {"flash-bf16", "flash-official"}) {
    SCOPED_TRACE(model);
    const auto weights = two_layers(model);
    Mode mode{"", model, Activations::kAuto, true, KvFormat::kFp8};
    Runner fp8(weights, options_of(mode, 140, 64));
    mode.kv = KvFormat::kBf16;
    Runner bf16(weights, options_of(mode, 140, 64));
    const std::vector<TokenId> tokens = random_tokens(140, 5, fp8.vocab_size());
    expect_same(bf16.in_chunks(tokens, {}), fp8.in_chunks(tokens, {}));
  }
}

TEST(Invariance, PageSizeDoesNotMatter) {
  const auto weights = two_layers("flash-bf16");
  Runner wide(weights, options_of(kBf16, 300, 64));
  const std::vector<TokenId> tokens = random_tokens(kMaxLength, 6, wide.vocab_size());
  const std::vector<Logits> want = wide.in_chunks(tokens, {});
  for (const std::int64_t page_rows : {1, 2, 16}) {
    SCOPED_TRACE(page_rows);
    Runner run(weights, options_of(kBf16, 300, page_rows));
    expect_same(run.in_chunks(tokens, random_split(tokens.size(), 7)), want);
  }
}

// The ring of window rows is window - 1 + the largest step: here 32, 33 and 46 rows, wrapped often.
TEST(Invariance, RingWrapDoesNotMatter) {
  const auto weights = two_layers("flash-bf16");
  Runner wide(weights, options_of(kBf16, 300, 64));
  const std::vector<TokenId> tokens = random_tokens(kMaxLength, 8, wide.vocab_size());
  const std::vector<Logits> want = wide.in_chunks(tokens, {});
  for (const std::int64_t max_step : {1, 2, 15}) {
    SCOPED_TRACE(max_step);
    Runner run(weights, options_of(kBf16, max_step, 64));
    expect_same(
        run.in_chunks(tokens, std::vector<std::size_t>(static_cast<std::size_t>(300 / max_step),
                                                       static_cast<std::size_t>(max_step))),
        want);
  }
}

TEST(Invariance, WhatTheMemoryHeldBeforeDoesNotMatter) {
  Runner run(two_layers("flash-bf16"), options_of(kBf16, 150, 2));
  const std::vector<TokenId> tokens = random_tokens(150, 9, run.vocab_size());
  const std::vector<TokenId> others = random_tokens(140, 10, run.vocab_size());
  const std::vector<Logits> want = run.in_chunks(tokens, {});
  {
    SequenceCache sequence(run.cache());
    run.in_chunks(sequence, others, {});
    sequence.clear();  // rows and open groups of `others` stay in the memory
    expect_same(run.in_chunks(sequence, tokens, random_split(tokens.size(), 11)), want);
  }
  run.poison_cache();
  expect_same(run.in_chunks(tokens, {}), want);
}

// A session that advances together with others, a few tokens of each a step.
struct Member {
  std::vector<TokenId> tokens;
  std::vector<Logits> alone;
  std::vector<Logits> together;
};

std::vector<Member> members(Runner& run, std::initializer_list<std::int64_t> lengths) {
  std::vector<Member> all;
  unsigned seed = 20;
  for (const std::int64_t length : lengths) {
    Member& member = all.emplace_back();
    member.tokens = random_tokens(length, seed++, run.vocab_size());
    member.alone = run.in_chunks(member.tokens, {});
  }
  return all;
}

void step_together(Runner& run, std::vector<Member>& all,
                   const std::vector<SequenceCache*>& sequences,
                   const std::vector<std::size_t>& counts) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (counts[i] == 0) continue;
    parts.push_back(
        {sequences[i], std::span(all[i].tokens).subspan(all[i].together.size(), counts[i])});
  }
  std::vector<Logits> logits = run.step(parts);
  std::size_t row = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t n = 0; n < counts[i]; ++n) {
      all[i].together.push_back(std::move(logits[row++]));
    }
  }
}

class Interleaved : public testing::TestWithParam<Mode> {};

TEST_P(Interleaved, RandomSharesEqualAlone) {
  Runner run(two_layers(GetParam().model), options_of(GetParam(), 160, 2), 1024, 4,
             GetParam().device);
  std::vector<Member> all = members(run, {150, 137, 61});
  run.poison_cache();
  SequenceCache a(run.cache()), b(run.cache()), c(run.cache());
  std::mt19937 random(30);
  const auto left = [](const Member& m) { return m.tokens.size() - m.together.size(); };
  while (left(all[0]) + left(all[1]) + left(all[2]) > 0) {
    std::vector<std::size_t> counts;
    for (const Member& member : all) {
      const std::size_t most = random() % 4 == 0 ? 50 : 4;
      counts.push_back(std::min<std::size_t>(left(member), random() % most));
    }
    if (counts[0] + counts[1] + counts[2] == 0) continue;
    step_together(run, all, {&a, &b, &c}, counts);
  }
  for (const Member& member : all) expect_same(member.together, member.alone);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Interleaved,
    testing::Values(kBf16,
                    Mode{"official_a8", "flash-official", Activations::kA8, true, KvFormat::kFp8},
                    Mode{"nvfp4_a4", "flash-nvfp4", Activations::kA4, true, KvFormat::kFp8},
                    Mode{"official_a8_on_cpu", "flash-official", Activations::kA8, true,
                         KvFormat::kFp8, "cpu"}),
    mode_name);

// One token, a window less one, exactly one HCA group and a long one, all decoding together.
TEST(Invariance, VeryDifferentLengthsInOneStepEqualAlone) {
  Runner run(two_layers("flash-bf16"), options_of(kBf16, 300, 16), 2048);
  std::vector<Member> all = members(run, {12, 42, 139, 291});
  SequenceCache a(run.cache()), b(run.cache()), c(run.cache()), d(run.cache());
  const std::vector<SequenceCache*> sequences = {&a, &b, &c, &d};
  step_together(run, all, sequences, {0, 31, 0, 0});
  step_together(run, all, sequences, {1, 0, 128, 0});
  step_together(run, all, sequences, {0, 0, 0, 280});
  for (int i = 0; i < 11; ++i) step_together(run, all, sequences, {1, 1, 1, 1});
  for (const Member& member : all) expect_same(member.together, member.alone);
}

// State must follow the session, not its place in the step: the first of three ends in the middle
// of a window, the others move up, a new one takes over its state and pages.
TEST(Invariance, ASessionThatEndsLeavesTheOthersAlone) {
  Runner run(two_layers("flash-bf16"), options_of(kBf16, 171, 2), 512, 3);
  std::vector<Member> all = members(run, {50, 140, 70, 45});
  auto first = std::make_unique<SequenceCache>(run.cache());
  SequenceCache second(run.cache()), third(run.cache());
  step_together(run, all, {first.get(), &second, &third, nullptr}, {41, 100, 30, 0});
  for (int i = 0; i < 9; ++i) {
    step_together(run, all, {first.get(), &second, &third, nullptr}, {1, 1, 1, 0});
  }
  const std::int32_t freed_state = first->state_idx();
  first.reset();
  step_together(run, all, {nullptr, &second, &third, nullptr}, {0, 1, 1, 0});
  SequenceCache fourth(run.cache());
  EXPECT_EQ(fourth.state_idx(), freed_state);
  step_together(run, all, {nullptr, &second, &third, &fourth}, {0, 1, 1, 6});
  for (int i = 0; i < 29; ++i) {
    step_together(run, all, {nullptr, &second, &third, &fourth}, {0, 1, 1, 1});
  }
  for (Member& member : all) {
    expect_same(member.together, std::span(member.alone).first(member.together.size()));
  }
  EXPECT_EQ(all[1].together.size(), 140u);
}

// The draft block keeps a window of its own: prefilled at once or token by token.
TEST(Invariance, DraftInChunksEqualsDraftAtOnce) {
  ReferenceBackend backend(/*poison_new_memory=*/true);
  Model model(load_checkpoint(golden_dir("flash-bf16")), backend, options_of(kBf16, 40, 64));
  const auto cache = model.make_cache(256, 2);
  const std::vector<TokenId> tokens = random_tokens(41, 12, model.config().vocab_size);
  const auto draft_logits = [&](std::span<const std::size_t> sizes) {
    SequenceCache sequence(*cache);
    std::vector<Logits> all;
    std::size_t begin = 0;
    for (const std::size_t size : sizes) {
      const StepSequence sequences[] = {
          {&sequence, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(size)}};
      std::vector<std::int32_t> rows;
      for (std::size_t i = 0; i < size; ++i) rows.push_back(static_cast<std::int32_t>(i));
      const std::span<const TokenId> all_tokens(tokens);
      model.forward(*cache, {all_tokens.subspan(begin, size), sequences, {}});
      model.forward_draft(*cache, {all_tokens.subspan(begin + 1, size), sequences, rows});
      const auto* values = static_cast<const float*>(model.logits().data);
      for (std::size_t i = 0; i < size; ++i) {
        const std::ptrdiff_t cols = model.logits().cols;
        const float* row = values + static_cast<std::ptrdiff_t>(i) * cols;
        all.emplace_back(row, row + cols);
      }
      begin += size;
    }
    return all;
  };
  const std::vector<Logits> want = draft_logits(std::vector<std::size_t>{40});
  expect_same(draft_logits(std::vector<std::size_t>(40, 1)), want);
  expect_same(draft_logits(split_at({4, 31, 32, 33, 40})), want);
}

}  // namespace
}  // namespace dsv4
