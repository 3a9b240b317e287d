// A session's logits depend on its tokens alone: not on chunks, on what it held before, or on other
// sessions. All comparisons are of bits.
#include "runtime/model_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "runtime/nano_model.h"

namespace dsv4 {
namespace {

// Windows end at 128, compression groups at multiples of 4 and 128.
const std::vector<std::size_t> kBoundaries = {1,   2,   3,   4,   5,   7,   8,   9,
                                              127, 128, 129, 131, 132, 133, 255, 257};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class SessionTest : public testing::Test {
 protected:
  explicit SessionTest(int max_sessions = 2) : model(options(max_sessions)) {}
  static ModelOpenOptions options(int max_sessions) {
    ModelOpenOptions options = nano_options();
    options.max_sessions = max_sessions;
    return options;
  }
  std::span<const TokenId> first(std::size_t count) const {
    return std::span<const TokenId>(tokens).first(count);
  }
  // Logits after the first `count` tokens, from a session of their own.
  std::vector<float> fresh_logits(std::span<const TokenId> prefix) {
    ModelSession session(model);
    session.sync(prefix);
    return copy_logits(session);
  }

  LoadedModel model;
  std::vector<TokenId> tokens = held_out_tokens(model.tokenizer(), 300);
};

TEST_F(SessionTest, SingleStepsEqualPrefillAtEveryBoundary) {
  ModelSession stepped(model);
  for (const std::size_t length : kBoundaries) {
    while (stepped.tokens().size() < length) stepped.step(tokens[stepped.tokens().size()]);
    EXPECT_TRUE(same_bits(copy_logits(stepped), fresh_logits(first(length)))) << length;
  }
}

TEST_F(SessionTest, ChunksDoNotChangeLogits) {
  const std::vector<float> want = fresh_logits(tokens);
  for (const std::int64_t chunk : {7, 64, 127, 128, 129, 299}) {
    ModelSession session(model);
    EXPECT_EQ(session.sync(tokens, {.chunk_tokens = chunk}), 300);
    EXPECT_TRUE(same_bits(copy_logits(session), want)) << chunk;
  }
}

TEST_F(SessionTest, LargestStepOfTheModelDoesNotChangeLogits) {
  const std::vector<float> want = fresh_logits(tokens);
  ModelOpenOptions small = options(1);
  small.model.max_step_tokens = 13;
  LoadedModel other(small);
  ModelSession session(other);
  session.sync(tokens);
  EXPECT_TRUE(same_bits(copy_logits(session), want));
}

TEST_F(SessionTest, SyncComputesOnlyWhatIsNew) {
  ModelSession session(model);
  EXPECT_EQ(session.sync(first(0)), 0);
  EXPECT_EQ(session.sync(first(100)), 100);
  const std::vector<float> at_100 = copy_logits(session);
  EXPECT_EQ(session.sync(first(100)), 0);
  EXPECT_TRUE(same_bits(copy_logits(session), at_100));
  EXPECT_EQ(session.sync(first(101)), 1);
  EXPECT_EQ(session.sync(first(160)), 59);
  EXPECT_EQ(session.length(), 160);
  EXPECT_THAT(session.tokens(), testing::ElementsAreArray(first(160)));
  EXPECT_TRUE(same_bits(copy_logits(session), fresh_logits(first(160))));
}

TEST_F(SessionTest, AnotherPrefixStartsOver) {
  std::vector<TokenId> other(tokens.begin(), tokens.begin() + 140);
  other[70] = other[70] == 5 ? 6 : 5;
  ModelSession session(model);
  session.sync(first(150));
  EXPECT_EQ(session.sync(other), 140);
  EXPECT_TRUE(same_bits(copy_logits(session), fresh_logits(other)));
}

TEST_F(SessionTest, ShorterPrefixStartsOver) {
  ModelSession session(model);
  session.sync(first(150));
  // A view of the session's own tokens.
  EXPECT_EQ(session.sync(session.tokens().first(149)), 149);
  EXPECT_TRUE(same_bits(copy_logits(session), fresh_logits(first(149))));
}

TEST_F(SessionTest, ClearedSessionKeepsNothing) {
  ModelSession session(model);
  session.sync(std::span<const TokenId>(tokens).last(200));
  session.clear();
  EXPECT_EQ(session.length(), 0);
  for (std::size_t i = 0; i < 9; ++i) session.step(tokens[i]);
  EXPECT_TRUE(same_bits(copy_logits(session), fresh_logits(first(9))));
}

TEST_F(SessionTest, SessionsKeepTheirOwnRowsAndLogits) {
  const auto last = std::span<const TokenId>(tokens).last(140);
  const std::vector<float> want_first = fresh_logits(first(140));
  const std::vector<float> want_last = fresh_logits(last);
  ModelSession a(model), b(model);
  for (std::size_t i = 0; i < 140; i += 20) {
    a.sync(first(i + 20));
    b.sync(last.first(i + 20));
  }
  EXPECT_TRUE(same_bits(copy_logits(a), want_first));
  EXPECT_TRUE(same_bits(copy_logits(b), want_last));
}

TEST_F(SessionTest, RefusedTokensChangeNothing) {
  ModelSession session(model);
  session.sync(first(20));
  const std::vector<float> before = copy_logits(session);
  const auto vocab = static_cast<TokenId>(model.config().vocab_size);
  for (const TokenId bad : {TokenId{-1}, vocab}) {
    EXPECT_EQ(error_of([&] { session.step(bad); }), name_of(ErrorCode::kBadRequest));
    const std::vector<TokenId> other = {tokens[0], bad};
    EXPECT_EQ(error_of([&] { session.sync(other); }), name_of(ErrorCode::kBadRequest));
  }
  for (const std::int64_t chunk : {std::int64_t{-1}, model.model().options().max_step_tokens + 1}) {
    EXPECT_EQ(error_of([&] { session.sync(first(30), {.chunk_tokens = chunk}); }),
              name_of(ErrorCode::kBadRequest));
  }
  const std::vector<TokenId> too_many(static_cast<std::size_t>(model.config().max_positions) + 1,
                                      7);
  EXPECT_EQ(error_of([&] { session.sync(too_many); }), name_of(ErrorCode::kBadRequest));
  EXPECT_EQ(session.length(), 20);
  EXPECT_TRUE(same_bits(copy_logits(session), before));
  session.step(vocab - 1);
  EXPECT_EQ(session.length(), 21);
}

TEST_F(SessionTest, EmptySessionHasNoLogits) {
  ModelSession session(model);
  EXPECT_EQ(error_of([&] { session.logits(); }), name_of(ErrorCode::kBadRequest));
  session.sync(first(3));
  session.sync(first(0));
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(error_of([&] { session.logits(); }), name_of(ErrorCode::kBadRequest));
}

TEST_F(SessionTest, StatesAreLimitedAndComeBack) {
  std::optional<ModelSession> a(model);
  const ModelSession b(model);
  EXPECT_EQ(error_of([&] { const ModelSession c(model); }), name_of(ErrorCode::kOverloaded));
  a.reset();
  EXPECT_EQ(error_of([&] { const ModelSession c(model); }), "no error");
}

TEST_F(SessionTest, ProgressTellsEveryStepAndMayStop) {
  ModelSession session(model);
  std::vector<std::pair<std::int64_t, std::int64_t>> seen;
  session.sync(first(4));
  session.sync(first(30),
               {.chunk_tokens = 10, .progress = [&](std::int64_t done, std::int64_t total) {
                  seen.emplace_back(done, total);
                }});
  EXPECT_THAT(seen, testing::ElementsAre(testing::Pair(10, 26), testing::Pair(20, 26),
                                         testing::Pair(26, 26)));
  struct Stop {};
  EXPECT_THROW(
      session.sync(first(60), {.chunk_tokens = 10,
                               .progress = [](std::int64_t, std::int64_t) { throw Stop(); }}),
      Stop);
  EXPECT_EQ(session.length(), 0);
  session.sync(first(9));
  EXPECT_TRUE(same_bits(copy_logits(session), fresh_logits(first(9))));
}

// One page of 64 rows holds 256 tokens of ratio 4, and 3 more are an open group.
TEST(SessionOfASmallCache, FullCacheEmptiesTheSession) {
  ModelOpenOptions options = nano_options();
  options.kv_tokens = 1;
  LoadedModel model(options);
  const std::vector<TokenId> tokens = held_out_tokens(model.tokenizer(), 260);
  const auto fits = std::span<const TokenId>(tokens).first(259);
  ModelSession session(model);
  session.sync(fits);
  const std::vector<float> before = copy_logits(session);
  EXPECT_EQ(error_of([&] { session.step(tokens[259]); }), name_of(ErrorCode::kOverloaded));
  EXPECT_EQ(session.length(), 0);
  EXPECT_EQ(error_of([&] { session.sync(tokens, {.chunk_tokens = 100}); }),
            name_of(ErrorCode::kOverloaded));
  EXPECT_EQ(session.length(), 0);
  session.sync(fits);
  EXPECT_TRUE(same_bits(copy_logits(session), before));
}

}  // namespace
}  // namespace dsv4
