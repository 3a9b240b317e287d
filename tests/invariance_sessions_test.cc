// Sessions of one step do not reach one another: whatever else is computed with them, each gets the
// logits, bit for bit, that it gets alone.
#include <gtest/gtest.h>

#include <random>

#include "model_runner.h"

namespace dsv4 {
namespace {

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

}  // namespace
}  // namespace dsv4
