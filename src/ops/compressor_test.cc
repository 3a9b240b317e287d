// The compressor on every backend: groups against the model's formula, and the same bits however a
// sequence is cut into steps, batched with others, or speculated on.
#include "ops/compressor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "testing/cases/compressor_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"

namespace dsv4::testing {
namespace {

// Row of a group by the model's formula in FP64, over the whole group at once, and the error that
// an FP32 left fold may have.
struct GroupOracle {
  std::vector<double> row;
  Tolerance tolerance;
};

GroupOracle pool_by_formula(const CompressorCase& c, std::int64_t sequence, std::int64_t group) {
  const std::int64_t ratio = c.compress_ratio;
  const std::int64_t first_pos =
      std::max<std::int64_t>(0, group * ratio - (c.overlapping ? ratio : 0));
  const std::vector<float> ape = compressor_ape(c);
  std::vector<std::vector<float>> values, scores;
  for (std::int64_t pos = first_pos; pos < (group + 1) * ratio; ++pos) {
    values.push_back(compressor_values(c, sequence, pos));
    scores.push_back(compressor_scores(c, sequence, pos));
  }
  std::vector<double> pooled, errors;
  double square_sum = 0, error_square_sum = 0;
  for (std::int64_t i = 0; i < c.row_dim; ++i) {
    double sum = 0, acc = 0, magnitude = 0, largest = 0;
    for (std::int64_t pos = first_pos; pos < (group + 1) * ratio; ++pos) {
      const std::int64_t channel = c.overlapping && pos >= group * ratio ? c.row_dim + i : i;
      const double v = values[pos - first_pos][channel];
      // The score is an FP32 number: projection plus ape.
      const float s =
          scores[pos - first_pos][channel] + ape[pos % ratio * compressor_width(c) + channel];
      const double e = std::exp(double{s});
      sum += e;
      acc += e * v;
      magnitude += e * std::fabs(v);
      largest = std::max(largest, std::fabs(double{s}));
    }
    // A term passes through at most one product and one sum a token, with an exponential of a
    // difference of scores (two ulps, and the difference's rounding) each time the maximum moves;
    // the differences add up to at most twice the largest score. The denominator likewise.
    const double terms = static_cast<double>((c.overlapping ? 2 : 1) * ratio);
    const double relative = 2 * (5 * terms + 2 * largest) * 0x1p-24;
    pooled.push_back(acc / sum);
    errors.push_back(relative * magnitude / sum);
    square_sum += pooled.back() * pooled.back();
    error_square_sum += errors.back() * errors.back();
  }
  GroupOracle oracle;
  oracle.tolerance.relative = 8 * 0x1p-24;  // the norm's own roundings
  oracle.tolerance.of_magnitude = 1;
  const auto d = static_cast<double>(c.row_dim);
  const double factor = 1 / std::sqrt(square_sum / d + kCompressorEps);
  const std::vector<float> weight = compressor_norm_weight(c);
  for (std::int64_t i = 0; i < c.row_dim; ++i) {
    oracle.row.push_back(pooled[i] * factor * weight[i]);
    // The row's error and, through the norm, that of the row's length.
    oracle.tolerance.magnitudes.push_back(
        factor * weight[i] *
        (errors[i] + std::fabs(pooled[i]) * std::sqrt(error_square_sum / square_sum)));
  }
  return oracle;
}

using Rows = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<float>>;

// Every group that `tokens` tokens close is there, once, near the formula.
void expect_groups(const CompressorCase& c, std::int64_t sequence, std::int64_t tokens,
                   const Rows& rows) {
  std::size_t found = 0;
  for (const auto& entry : rows) found += entry.first.first == sequence ? 1 : 0;
  EXPECT_EQ(found, static_cast<std::size_t>(tokens / c.compress_ratio));
  for (std::int64_t group = 0; group < tokens / c.compress_ratio; ++group) {
    SCOPED_TRACE("group " + std::to_string(group));
    ASSERT_EQ(rows.count({sequence, group}), 1u);
    const GroupOracle want = pool_by_formula(c, sequence, group);
    EXPECT_CLOSE(rows.at({sequence, group}), want.row, want.tolerance);
  }
}

void expect_same_rows(const Rows& got, const Rows& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& entry : want) {
    ASSERT_EQ(got.count(entry.first), 1u);
    ASSERT_TRUE(compare_bits(got.at(entry.first), entry.second))
        << "sequence " << entry.first.first << " group " << entry.first.second;
  }
}

// The cases of few channels, for tests of many steps.
std::vector<CompressorCase> narrow_cases() {
  std::vector<CompressorCase> cases = compressor_cases();
  cases.erase(std::remove_if(cases.begin(), cases.end(),
                             [](const CompressorCase& c) { return c.row_dim > 8; }),
              cases.end());
  return cases;
}

TEST_EACH_BACKEND(Compressor, GroupsFollowTheFormula) {
  for (const CompressorCase& c : compressor_cases()) {
    SCOPED_TRACE(c.name);
    CompressorRun run(backend, c, 1);
    run.step({{0, 0, 260}});
    expect_groups(c, 0, 260, run.rows());
  }
}

TEST_EACH_BACKEND(Compressor, MatchesReference) {
  for (const CompressorCase& c : compressor_cases()) {
    SCOPED_TRACE(c.name);
    CompressorRun got(backend, c, 2);
    CompressorRun want(reference_backend(), c, 2);
    for (CompressorRun* run : {&got, &want}) {
      run->step({{0, 0, 130}, {1, 0, 5}});
      run->step({{1, 5, 124}, {0, 130, 126}});
    }
    ASSERT_EQ(got.rows().size(), want.rows().size());
    for (const auto& entry : want.rows()) {
      const GroupOracle oracle = pool_by_formula(c, entry.first.first, entry.first.second);
      Tolerance tolerance = oracle.tolerance;  // both may err
      tolerance.of_magnitude = 2;
      EXPECT_CLOSE(got.rows().at(entry.first), entry.second, tolerance);
    }
  }
}

// Rows appear exactly at the ends of groups, whichever boundary is crossed.
TEST_EACH_BACKEND(Compressor, RowsAtEveryBoundary) {
  for (const CompressorCase& c : {compressor_cases()[0], compressor_cases()[2]}) {
    for (const std::int64_t tokens : {1, 3, 4, 5, 7, 8, 9, 63, 64, 65, 127, 128, 129, 511, 512}) {
      SCOPED_TRACE(c.name + " " + std::to_string(tokens));
      CompressorRun run(backend, c, 1);
      run.step({{0, 0, tokens}});
      expect_groups(c, 0, tokens, run.rows());
    }
  }
}

// States begin as NaN, so a read of what no token has touched shows in every row after it.
TEST_EACH_BACKEND(Compressor, EveryChunkingGivesTheSameBits) {
  constexpr std::int64_t kTokens = 300;
  for (const CompressorCase& c : {compressor_cases()[0], compressor_cases()[2]}) {
    CompressorRun whole(backend, c, 1);
    whole.step({{0, 0, kTokens}});
    const std::vector<float> whole_state = whole.states();
    for (std::int64_t chunk = 1; chunk < kTokens; ++chunk) {
      SCOPED_TRACE(c.name + " in chunks of " + std::to_string(chunk));
      CompressorRun run(backend, c, 1);
      for (std::int64_t begin = 0; begin < kTokens; begin += chunk) {
        run.step({{0, begin, std::min(chunk, kTokens - begin)}});
      }
      expect_same_rows(run.rows(), whole.rows());
      ASSERT_TRUE(compare_bits(run.states(), whole_state));
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST_EACH_BACKEND(Compressor, ChunksOfChangingSizesGiveTheSameBits) {
  for (const CompressorCase& c : narrow_cases()) {
    SCOPED_TRACE(c.name);
    CompressorRun whole(backend, c, 1);
    whole.step({{0, 0, 400}});
    CompressorRun run(backend, c, 1);
    Random random(9);
    for (std::int64_t begin = 0; begin < 400;) {
      const std::int64_t chunk = std::min<std::int64_t>(random.index(140), 400 - begin);
      run.step({{0, begin, chunk}});  // sometimes of no token
      begin += chunk;
    }
    expect_same_rows(run.rows(), whole.rows());
  }
}

// Sequences at unrelated positions, entering and leaving the batch and changing places in it.
TEST_EACH_BACKEND(Compressor, InterleavedSequencesGiveTheirOwnBits) {
  for (const CompressorCase& c : narrow_cases()) {
    SCOPED_TRACE(c.name);
    Rows want;
    const std::int64_t lengths[] = {140, 9, 257, 1};
    for (std::int64_t s = 0; s < 4; ++s) {
      CompressorRun alone(backend, c, 4);
      alone.step({{s, 0, lengths[s]}});
      for (const auto& entry : alone.rows()) want.insert(entry);
    }
    CompressorRun batch(backend, c, 4);
    Random random(3);
    std::vector<std::int64_t> done(4);
    while (done != std::vector<std::int64_t>(lengths, lengths + 4)) {
      std::vector<CompressorStep> steps;
      const std::int64_t first = random.index(4);  // a different order in each step
      for (std::int64_t i = 0; i < 4; ++i) {
        const std::int64_t s = (first + i) % 4;
        const std::int64_t n = std::min<std::int64_t>(random.index(30), lengths[s] - done[s]);
        if (n > 0 || random.index(2) == 0) steps.push_back({s, done[s], n});
        done[s] += n;
      }
      batch.step(steps);
    }
    expect_same_rows(batch.rows(), want);
  }
}

// Inactive tokens behind the active ones hold NaN, and a sequence may have nothing else.
TEST_EACH_BACKEND(Compressor, InactiveTokensChangeNothing) {
  for (const CompressorCase& c : {compressor_cases()[0], compressor_cases()[2]}) {
    CompressorRun plain(backend, c, 2);
    CompressorRun padded(backend, c, 2);
    for (std::int64_t begin = 0; begin < 270; begin += 3) {
      plain.step({{0, begin, 3}});
      padded.step({{1, 0, 0, -1, begin % 5}, {0, begin, 3, -1, begin % 4}});
    }
    expect_same_rows(padded.rows(), plain.rows());
    EXPECT_SAME_BITS(padded.states(), plain.states());
  }
}

TEST_EACH_BACKEND(Compressor, NoTokenAtAll) {
  for (const CompressorCase& c : narrow_cases()) {
    CompressorRun run(backend, c, 2);
    run.step({});
    run.step({{1, 0, 0}, {0, 0, 0, -1, 3}});
    EXPECT_TRUE(run.rows().empty());
    for (float value : run.states()) EXPECT_TRUE(std::isnan(value));
  }
}

// Speculation: of every step some tokens are rejected and come again. What
// follows, and the state, equal never having seen them.
TEST_EACH_BACKEND(Compressor, RejectedTokensLeaveNoTrace) {
  for (const CompressorCase& c : narrow_cases()) {
    for (const std::int64_t drafts : {1, 2, 5, 9}) {
      SCOPED_TRACE(c.name + " drafts " + std::to_string(drafts));
      constexpr std::int64_t kTokens = 280;
      CompressorRun whole(backend, c, 1);
      whole.step({{0, 0, kTokens}});
      CompressorRun run(backend, c, 1);
      std::int64_t step = 0;
      for (std::int64_t begin = 0; begin < kTokens; ++step) {
        const std::int64_t accepted = std::min(step % (drafts + 1), kTokens - begin);
        run.step({{0, begin, drafts, accepted}});
        begin += accepted;
      }
      Rows kept = run.rows();  // the last steps saw tokens past the end
      for (auto it = kept.begin(); it != kept.end();) {
        it = it->first.second < kTokens / c.compress_ratio ? std::next(it) : kept.erase(it);
      }
      expect_same_rows(kept, whole.rows());
      EXPECT_SAME_BITS(run.states(), whole.states());
    }
  }
}

// Drafts that differ from the tokens that come instead must not show either.
TEST_EACH_BACKEND(Compressor, ReplacedDraftsLeaveNoTrace) {
  for (const CompressorCase& c : {compressor_cases()[0], compressor_cases()[2]}) {
    constexpr std::int64_t kTokens = 264;
    const std::int64_t stride = compressor_state_floats(c.compress_ratio, c.overlapping, c.row_dim);
    DeviceArray<float> states(backend, stride);
    CompressorRun whole(backend, c, 1);
    Rows rows;
    for (std::int64_t pos = 0; pos < kTokens; ++pos) {
      whole.step({{0, pos, 1}});
      // Sequence 1's tokens at these positions, all rejected; then the true one. Both continue
      // state 0.
      DeviceCompressorStep draft(backend, c, {{1, pos, 7, 0}}, 2, stride, states.data());
      run_op(backend, draft.compress);
      run_op(backend, draft.commit);
      DeviceCompressorStep real(backend, c, {{0, pos, 1}}, 1, stride, states.data());
      run_op(backend, real.compress);
      run_op(backend, real.commit);
      if ((pos + 1) % c.compress_ratio == 0) rows[{0, pos / c.compress_ratio}] = real.rows.values();
    }
    expect_same_rows(rows, whole.rows());
  }
}

TEST_EACH_BACKEND(Compressor, CompressingLeavesTheStatesAlone) {
  for (const CompressorCase& c : narrow_cases()) {
    const std::int64_t stride = compressor_state_floats(c.compress_ratio, c.overlapping, c.row_dim);
    DeviceArray<float> states(backend, 2 * stride);
    run_op(backend,
           DeviceCompressorStep(backend, c, {{0, 0, 150}, {1, 0, 3}}, 2, stride, states.data())
               .commit);
    const std::vector<float> before = states.read();
    run_op(backend,
           DeviceCompressorStep(backend, c, {{0, 150, 130}, {1, 3, 9}}, 2, stride, states.data())
               .compress);
    EXPECT_SAME_BITS(states.read(), before);
  }
}

// Without counts all active tokens are kept.
TEST_EACH_BACKEND(Compressor, NoCountsMeansAllActiveTokens) {
  for (const CompressorCase& c : narrow_cases()) {
    const std::int64_t stride = compressor_state_floats(c.compress_ratio, c.overlapping, c.row_dim);
    DeviceArray<float> counted(backend, stride);
    DeviceArray<float> uncounted(backend, stride);
    run_op(backend,
           DeviceCompressorStep(backend, c, {{0, 0, 77}}, 1, stride, counted.data()).commit);
    DeviceCompressorStep step(backend, c, {{0, 0, 77, 0, 2}}, 1, stride, uncounted.data());
    step.commit.num_accepted = nullptr;
    run_op(backend, step.commit);
    EXPECT_SAME_BITS(uncounted.read(), counted.read());
  }
}

TEST(Compressor, StateSizes) {
  EXPECT_EQ(compressor_state_floats(128, false, 512), 3 * 512);
  EXPECT_EQ(compressor_state_floats(4, true, 512), 8 * 2 * 1024);
  EXPECT_EQ(compressor_state_floats(4, true, 128), 8 * 2 * 256);
}

TEST_EACH_BACKEND(Compressor, RefusalsNameTheField) {
  const CompressorCase c = compressor_cases()[0];
  DeviceArray<float> states(backend, 256);
  const auto refusal = [&](auto change) -> std::string {
    DeviceCompressorStep step(backend, c, {{0, 0, 5}}, 1, 256, states.data());
    change(step.compress);
    step.commit.tokens = step.compress.tokens;
    const std::string compress_message = refusal_of([&] { run_op(backend, step.compress); });
    if (compress_message.find("Params.tokens.") == std::string::npos) return compress_message;
    EXPECT_THROW(run_op(backend, step.commit), Error) << compress_message;
    return compress_message;
  };
  using P = CompressParams;
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal([](P&) {}), "accepted");
  EXPECT_THAT(refusal([](P& p) { p.tokens.compress_ratio = 0; }), HasSubstr("compress_ratio is 0"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.row_dim = 7; }), HasSubstr("tokens.values.cols is 16"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.overlapping = false; }), HasSubstr("values.cols is 16"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.scores.rows = 4; }), HasSubstr("scores.rows is 4"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.scores.format = Format::kBf16; }),
              HasSubstr("scores.format is BF16"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.state_stride = 255; }), HasSubstr("state_stride is 255"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.ape = nullptr; }), HasSubstr("ape is null"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.positions = nullptr; }), HasSubstr("positions is null"));
  EXPECT_THAT(refusal([](P& p) { p.tokens.state_idx = nullptr; }), HasSubstr("state_idx is null"));
  EXPECT_THAT(refusal([](P& p) { p.states = nullptr; }), HasSubstr("states is null"));
  EXPECT_THAT(refusal([](P& p) { p.rows.rows = 4; }), HasSubstr("rows.rows is 4"));
  EXPECT_THAT(refusal([](P& p) { p.norm_weight.cols = 4; }), HasSubstr("norm_weight.cols is 4"));
  EXPECT_THAT(refusal([](P& p) { p.eps = -1; }), HasSubstr("eps is -1"));
}

}  // namespace
}  // namespace dsv4::testing
