// A token's logits do not depend on how its prompt was cut into steps, or on what the cache memory
// held before: all comparisons here are bit for bit. All memory starts as NaN, so that a value read
// before it was written cannot go unseen.
#include <gtest/gtest.h>

#include "model_runner.h"
#include "reference/reference_backend.h"

namespace dsv4 {
namespace {

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
