// V4's attention on every backend: against the formula, at the edges of window, groups and pages.
#include "ops/attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>

#include "testing/cases/attention_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/softmax_oracle.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// What the formula says, and what FP32 and FP64 arithmetic may differ by.
struct Expectation {
  std::vector<double> out;
  std::vector<double> lse;
  Tolerance fp32_out, fp64_out, fp32_lse, fp64_lse;
};

Expectation expect_by_formula(const AttentionCase& c, const AttentionInputs& in) {
  Expectation e;
  const std::vector<float> q = in.q.values();
  const auto d = static_cast<std::size_t>(c.head_dim);
  const double softmax_scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  for (Tolerance* t : {&e.fp32_out, &e.fp64_out}) t->relative = one_ulp(c.spec.format);
  for (Tolerance* t : {&e.fp32_lse, &e.fp64_lse}) t->relative = one_ulp(Format::kF32);
  for (Tolerance* t : {&e.fp32_out, &e.fp64_out, &e.fp32_lse, &e.fp64_lse}) t->of_magnitude = 1;
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    const auto& rows = in.attended_rows[t];
    for (int h = 0; h < c.num_heads; ++h) {
      if (in.positions[t] < 0) {  // stays as it was: poison
        e.out.insert(e.out.end(), d, std::nan(""));
        e.lse.push_back(std::nan(""));
        for (Tolerance* tol : {&e.fp32_out, &e.fp64_out}) tol->magnitudes.resize(e.out.size());
        for (Tolerance* tol : {&e.fp32_lse, &e.fp64_lse}) tol->magnitudes.push_back(0);
        continue;
      }
      const std::size_t begin = (t * c.num_heads + h) * d;
      const std::vector<float> query(q.begin() + begin, q.begin() + begin + d);
      const double sink = in.attn_sink.empty() ? -kInf : in.attn_sink[h];
      const HeadOracle head = attend_by_formula(query, rows, rows, d, softmax_scale, sink);
      e.out.insert(e.out.end(), head.out.begin(), head.out.end());
      e.lse.push_back(head.lse);
      const double fp32 = fp32_attention_error(head, d, rows.size());
      const double fp64 = fp64_attention_error(head, d, rows.size());
      for (double magnitude : head.magnitudes) {
        e.fp32_out.magnitudes.push_back(fp32 * magnitude);
        e.fp64_out.magnitudes.push_back(fp64 * magnitude);
      }
      e.fp32_lse.magnitudes.push_back(fp32);
      e.fp64_lse.magnitudes.push_back(fp64);
    }
  }
  return e;
}

TEST_EACH_BACKEND(Attention, MatchesReference) {
  for (const AttentionCase& c : attention_cases()) {
    SCOPED_TRACE(c.name);
    const AttentionInputs in(c);
    const AttentionResult got = run_attention(backend, c, in);
    const AttentionResult want = run_attention(reference_backend(), c, in);
    const Expectation e = expect_by_formula(c, in);
    EXPECT_CLOSE(got.out, want.out, e.fp32_out);
    EXPECT_CLOSE(got.lse, want.lse, e.fp32_lse);
  }
}

TEST(Attention, ReferenceFollowsTheFormula) {
  for (const AttentionCase& c : attention_cases()) {
    SCOPED_TRACE(c.name);
    const AttentionInputs in(c);
    const AttentionResult got = run_attention(reference_backend(), c, in);
    const Expectation e = expect_by_formula(c, in);
    EXPECT_CLOSE(got.out, e.out, e.fp64_out);
    EXPECT_CLOSE(got.lse, e.lse, e.fp64_lse);
  }
}

AttentionCase small_case(std::vector<std::int32_t> positions) {
  AttentionCase c;
  c.positions = std::move(positions);
  return c;
}

// Of a sink beyond every score nothing is left, below every score it changes nothing; the LSE never
// sees it.
TEST_EACH_BACKEND(Attention, SinksOfEverySizeWithoutNan) {
  AttentionCase c = small_case({0, 20});
  const std::vector<float> sinks = {-kInf, 0, 5, kInf, 3e38f, -3e38f};
  c.num_heads = static_cast<int>(sinks.size());
  AttentionInputs in(c);
  in.attn_sink.clear();
  const AttentionResult without = run_attention(backend, c, in);
  const Expectation no_sink = expect_by_formula(c, in);
  in.attn_sink = sinks;
  const AttentionResult with = run_attention(backend, c, in);
  EXPECT_SAME_BITS(with.lse, without.lse);
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    for (std::size_t h = 0; h < sinks.size(); ++h) {
      const double lse = without.lse[t * c.num_heads + h];
      const double share = 1 / (1 + std::exp(static_cast<double>(sinks[h]) - lse));
      for (std::int64_t i = 0; i < c.head_dim; ++i) {
        const std::size_t at = (t * c.num_heads + h) * c.head_dim + i;
        // Both outputs err once, and the share by the LSE's error.
        const double tolerance = 3 * no_sink.fp32_out.at(at, without.out[at]);
        EXPECT_LE(std::fabs(with.out[at] - share * without.out[at]), tolerance)
            << "sink " << sinks[h] << " token " << t << " value " << i;
        if (sinks[h] > 1e38f) {
          EXPECT_EQ(with.out[at], 0.0f);
        }
      }
    }
  }
}

TEST_EACH_BACKEND(Attention, NoAttendedRowGivesZeroAndMinusInfinity) {
  for (const float sink : {-kInf, 0.0f, kInf}) {
    AttentionCase c = small_case({0, 1, 2});
    c.window = 0;
    c.compress_ratio = 4;
    AttentionInputs in(c);
    in.attn_sink.assign(static_cast<std::size_t>(c.num_heads), sink);
    const AttentionResult got = run_attention(backend, c, in);
    for (float value : got.out) EXPECT_EQ(value, 0.0f);
    for (float lse : got.lse) EXPECT_EQ(lse, -kInf);
    in.attn_sink.clear();
    EXPECT_SAME_BITS(run_attention(backend, c, in).out, got.out);
  }
}

// Queries of zeros score every row 0, so the LSE is the log of how many rows there are: counted by
// hand, window rows and compressed rows, at the positions before, at and after a group's last.
TEST_EACH_BACKEND(Attention, RowsAtTheEdgesOfGroupsCountedByHand) {
  struct Count {
    std::int32_t pos;
    int ratio, raw_rows, comp_rows;
  };
  for (const Count& want :
       {Count{0, 4, 1, 0}, Count{2, 4, 3, 0}, Count{3, 4, 4, 1}, Count{4, 4, 5, 1},
        Count{6, 4, 7, 1}, Count{7, 4, 8, 2}, Count{8, 4, 8, 2}, Count{126, 128, 8, 0},
        Count{127, 128, 8, 1}, Count{128, 128, 8, 1}, Count{255, 128, 8, 2}}) {
    SCOPED_TRACE("position " + std::to_string(want.pos) + " ratio " + std::to_string(want.ratio));
    AttentionCase c = small_case({want.pos});
    c.compress_ratio = want.ratio;
    c.head_dim = 64;
    AttentionInputs in(c);
    in.q = HostMatrix(c.spec, 1, c.num_heads * c.head_dim,
                      std::vector<float>(static_cast<std::size_t>(c.num_heads * c.head_dim)));
    const auto expected = static_cast<float>(std::log(want.raw_rows + want.comp_rows));
    for (const float lse : run_attention(backend, c, in).lse) EXPECT_FLOAT_EQ(lse, expected);
  }
}

// Every count of selected rows up to the window, and the counts that dispatch tables forget.
TEST_EACH_BACKEND(Attention, EveryNumberOfIndices) {
  std::vector<std::int64_t> counts = {127, 128, 129, 192, 256, 512, 1152};
  for (std::int64_t n = 0; n <= 66; ++n) counts.push_back(n);
  for (const std::int64_t n : counts) {
    SCOPED_TRACE(n);
    AttentionCase c = small_case({static_cast<std::int32_t>(4 * n + 9)});
    c.num_heads = 1;
    c.compress_ratio = 4;
    c.num_indices = n;
    const AttentionInputs in(c);
    const Expectation e = expect_by_formula(c, in);
    const AttentionResult got = run_attention(backend, c, in);
    EXPECT_CLOSE(got.out, e.out, e.fp32_out);
    EXPECT_CLOSE(got.lse, e.lse, e.fp32_lse);
  }
}

TEST_EACH_BACKEND(Attention, InactiveTokensAreNeitherReadNorWritten) {
  AttentionCase c = small_case({-1, 9, -1});
  c.sequences = {-1, 0, -1};
  c.compress_ratio = 4;
  c.num_indices = 2;
  const AttentionResult got = run_attention(backend, c, AttentionInputs(c));
  const auto width = static_cast<std::size_t>(c.num_heads * c.head_dim);
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    const bool active = i / width == 1;
    EXPECT_EQ(std::isnan(got.out[i]), !active) << i;
    if (!active) {
      EXPECT_EQ(__builtin_bit_cast(std::uint32_t, got.out[i]), 0xFFFFFFFFu);
    }
  }
}

TEST_EACH_BACKEND(Attention, AloneOrInABatchTheSameBits) {
  for (AttentionCase c : attention_cases()) {
    if (c.positions.size() < 2) continue;
    SCOPED_TRACE(c.name);
    const AttentionResult batch = run_attention(backend, c, AttentionInputs(c));
    const AttentionCase all = c;
    const auto width = static_cast<std::ptrdiff_t>(c.num_heads * c.head_dim);
    for (std::size_t t = 0; t < all.positions.size(); ++t) {
      if (all.positions[t] < 0) continue;
      c.positions = {all.positions[t]};
      c.sequences = {all.sequences.empty() ? 0 : all.sequences[t]};
      const AttentionResult alone = run_attention(backend, c, AttentionInputs(c));
      const auto begin = batch.out.begin() + static_cast<std::ptrdiff_t>(t) * width;
      EXPECT_SAME_BITS(alone.out, std::vector<float>(begin, begin + width));
    }
  }
}

TEST_EACH_BACKEND(Attention, SameBitsOnEveryRun) {
  AttentionCase c = small_case({100, 101, 102});
  c.compress_ratio = 4;
  const AttentionInputs in(c);
  const AttentionResult first = run_attention(backend, c, in);
  for (int i = 0; i < 50; ++i) {
    const AttentionResult again = run_attention(backend, c, in);
    ASSERT_TRUE(compare_bits(again.out, first.out));
    ASSERT_TRUE(compare_bits(again.lse, first.lse));
  }
}

// The window's part and the compressed part, merged by their LSEs, are the whole.
TEST_EACH_BACKEND(Attention, PartsMergeByLse) {
  AttentionCase whole = small_case({2, 3, 90});
  whole.sinks = false;
  whole.compress_ratio = 4;
  AttentionCase raw_part = whole;
  raw_part.compress_ratio = 0;
  AttentionCase comp_part = whole;
  comp_part.window = 0;
  const AttentionResult a = run_attention(backend, raw_part, AttentionInputs(raw_part));
  const AttentionResult b = run_attention(backend, comp_part, AttentionInputs(comp_part));
  const AttentionInputs in(whole);
  const AttentionResult want = run_attention(backend, whole, in);
  const Expectation e = expect_by_formula(whole, in);
  const auto d = static_cast<std::size_t>(whole.head_dim);
  for (std::size_t i = 0; i < want.out.size(); ++i) {
    const double lse_a = a.lse[i / d];
    const double lse_b = b.lse[i / d];
    const double share_b = 1 / (1 + std::exp(lse_a - lse_b));
    const double merged = a.out[i] * (1 - share_b) + b.out[i] * share_b;
    // The whole errs once, the parts' outputs together once, their shares by the LSEs' errors.
    EXPECT_LE(std::fabs(merged - want.out[i]), 4 * e.fp32_out.at(i, want.out[i])) << i;
  }
}

// A page that lies past 2^31 bytes, and past 2^31 values, of the pool; untouched pages take no
// memory.
TEST_EACH_BACKEND(Attention, PagesBeyond32BitOffsets) {
  if (!backend.uses_host_memory()) GTEST_SKIP() << "needs memory that is mapped but not backed";
  AttentionCase c = small_case({30});
  c.compress_ratio = 4;
  const AttentionInputs in(c);
  const AttentionResult want = run_attention(backend, c, in);
  constexpr std::int64_t kStride = std::int64_t{1} << 22;
  constexpr std::int64_t kPages = 2'200;
  void* const memory = mmap(nullptr, kPages * kStride, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse mapping";
  auto* const pool = static_cast<std::byte*>(memory);
  DeviceAttention device(backend, c, in);
  std::vector<std::int32_t> pages = in.comp_pages;
  for (std::int32_t& page : pages) {
    if (page < 0) continue;
    const std::int32_t far_page = 2'150 + page;
    std::copy_n(in.comp.bytes.begin() + page * in.comp.page_stride_bytes, in.comp.page_stride_bytes,
                pool + far_page * kStride);
    page = far_page;
  }
  device.comp_pages.write(pages);
  device.params.comp_rows.data = pool;
  device.params.comp_rows.page_stride_bytes = kStride;
  device.params.comp_rows.num_pages = kPages;
  EXPECT_SAME_BITS(device.run(backend).out, want.out);
  munmap(memory, kPages * kStride);
}

// Each refusal names the field, and the door is shut before anything is computed.
TEST_EACH_BACKEND(Attention, RefusalsNameTheField) {
  AttentionCase c = small_case({12});
  c.compress_ratio = 4;
  c.num_indices = 2;
  const AttentionInputs in(c);
  const auto refusal = [&](auto change) -> std::string {
    DeviceAttention device(backend, c, in);
    change(device.params);
    return refusal_of([&] { device.run(backend); });
  };
  using P = AttentionParams;
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal([](P&) {}), "accepted");
  EXPECT_THAT(refusal([](P& p) { p.num_heads = 0; }), HasSubstr("num_heads is 0"));
  EXPECT_THAT(refusal([](P& p) { p.num_heads = 5; }), HasSubstr("q.cols is 192"));
  EXPECT_THAT(refusal([](P& p) { p.window = -1; }), HasSubstr("window is -1"));
  EXPECT_THAT(refusal([](P& p) { p.window = 17; }), HasSubstr("window is 17"));
  EXPECT_THAT(refusal([](P& p) { p.raw_rows.layout.width = 32; }),
              HasSubstr("raw_rows.layout.width is 32"));
  EXPECT_THAT(refusal([](P& p) { p.comp_rows.page_rows = 0; }),
              HasSubstr("comp_rows.page_rows is 0"));
  EXPECT_THAT(refusal([](P& p) { p.comp_rows.page_stride_bytes = 10; }),
              HasSubstr("comp_rows.page_stride_bytes is 10"));
  EXPECT_THAT(refusal([](P& p) { p.comp_rows.num_pages = std::int64_t{1} << 60; }),
              HasSubstr("comp_rows.num_pages"));
  EXPECT_THAT(refusal([](P& p) { p.num_indices = -1; }), HasSubstr("num_indices is -1"));
  EXPECT_THAT(refusal([](P& p) { p.compress_ratio = -4; }), HasSubstr("compress_ratio is -4"));
  EXPECT_THAT(refusal([](P& p) { p.softmax_scale = kInf; }), HasSubstr("softmax_scale is inf"));
  EXPECT_THAT(refusal([](P& p) { p.positions = nullptr; }), HasSubstr("positions is null"));
  EXPECT_THAT(refusal([](P& p) { p.comp_pages = nullptr; }), HasSubstr("comp_pages is null"));
  EXPECT_THAT(refusal([](P& p) { p.out.cols = 64; }), HasSubstr("out.cols is 64"));
  EXPECT_THAT(refusal([](P& p) { p.out.format = Format::kE4m3; }), HasSubstr("out.format is FP8"));
}

TEST(Attention, CostCountsRowsOnceAndFourFlopsAValue) {
  AttentionCase c = small_case({500, 501});
  c.compress_ratio = 4;
  c.num_indices = 10;
  const AttentionInputs in(c);
  DeviceAttention device(reference_backend(), c, in);
  const Cost got = cost(device.params);
  EXPECT_EQ(got.flops, 4.0 * 2 * 192 * (8 + 10));
  EXPECT_EQ(got.bytes_written, 2 * 192 * 4 + 2 * 3 * 4);
  EXPECT_EQ(got.bytes_read, 2 * 192 * 4 + 2 * 8 + 2 * 8 * 256 + 2 * 10 * 256 + 2 * 10 * 4);
}

}  // namespace
}  // namespace dsv4::testing
