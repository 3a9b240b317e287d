// Hyper-connections: every backend against the model's text, written out naively in double, with
// error bounds propagated step by step.
#include "ops/mhc.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing/cases/mhc_cases.h"
#include "testing/comparator.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr double kEps = unit_roundoff(Format::kF32);
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double sigmoid_ref(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : 1 - sigmoid_ref(-x); }

// A value and how far an FP32 computation of it may be from it.
struct Bounded {
  double value = 0;
  double error = 0;
};

// mix * scale + base for one mix of one token, rows of the weight counted by `mix_idx`.
Bounded scaled_mix(const MhcCase& c, const MhcInputs& in, const std::vector<float>& flat,
                   std::int64_t mix_idx, float scale) {
  const std::vector<float> weight = in.mix_weight.row(mix_idx).values();
  double sum = 0;
  double magnitude = 0;
  double squares = 0;
  for (std::size_t k = 0; k < flat.size(); ++k) {
    sum += double{weight[k]} * flat[k];
    magnitude += std::fabs(double{weight[k]} * flat[k]);
    squares += double{flat[k]} * flat[k];
  }
  const auto n = static_cast<std::int64_t>(flat.size());
  const double r = 1 / std::sqrt(squares / static_cast<double>(n) + double{c.norm_eps});
  const double base = in.base[static_cast<std::size_t>(mix_idx)];
  const double mix = sum * r * scale;
  // The dot product; r, whose sum of squares has half its relative error in the root; roundings of
  // r (4), its product, the scale and the sum with base.
  const double error = std::fabs(scale) * r * accumulation_bound(n) * magnitude +
                       std::fabs(mix) * (accumulation_bound(n) / 2 + 7 * kEps) +
                       std::fabs(mix + base) * kEps;
  return {mix + base, error};
}

// factor * sigmoid(mix) + addend. The slope of sigmoid is at most 1/4; exp, sum, quotient, addend.
Bounded sigmoid_of(const Bounded& mix, double factor, double addend) {
  return {factor * sigmoid_ref(mix.value) + addend, factor * (mix.error / 4 + 5 * kEps)};
}

struct Expected {
  std::vector<double> values;
  Tolerance tolerance;
  void add(const Bounded& bounded) {
    values.push_back(bounded.value);
    tolerance.magnitudes.push_back(bounded.error);
  }
};
Expected expected_as(Format format) {
  Expected expected;
  expected.tolerance.of_magnitude = 1;
  expected.tolerance.relative = one_ulp(format);
  return expected;
}

// Appends RMSNorm(sum over j of pre[j] X_j) of one token, or the sum without the norm.
void add_mixed_row(const MhcCase& c, const MhcInputs& in, const std::vector<float>& flat,
                   const std::vector<Bounded>& pre, Expected& expected) {
  std::vector<Bounded> sums(static_cast<std::size_t>(c.dim));
  double squares = 0;
  double error_squares = 0;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    for (std::size_t j = 0; j < pre.size(); ++j) {
      const double x = flat[j * sums.size() + k];
      sums[k].value += pre[j].value * x;
      sums[k].error += pre[j].error * std::fabs(x) +
                       std::fabs(pre[j].value * x) * static_cast<double>(c.copies + 1) * kEps;
    }
    squares += sums[k].value * sums[k].value;
    error_squares += sums[k].error * sums[k].error;
  }
  if (!in.norm_weight) {
    for (const Bounded& sum : sums) expected.add(sum);
    return;
  }
  const auto n = static_cast<double>(c.dim);
  const double root = std::sqrt(squares / n + double{c.norm_eps});
  // The root moves by at most the root mean square of the errors; then its own roundings.
  const double root_error =
      std::sqrt(error_squares / n) / root + accumulation_bound(c.dim) / 2 + 6 * kEps;
  const std::vector<float> weight = in.norm_weight->values();
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const double factor = weight[k] / root;
    expected.add({sums[k].value * factor,
                  std::fabs(factor) * (sums[k].error + std::fabs(sums[k].value) * root_error)});
  }
}

// comb of one token: softmax over rows, + eps, columns, then rows and columns alternating.
std::vector<double> comb_ref(const MhcCase& c, const std::vector<Bounded>& mixes) {
  const int n = c.copies;
  std::vector<std::vector<double>> m(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < m.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < m.size(); ++j) sum += std::exp(mixes[i * m.size() + j].value);
    for (std::size_t j = 0; j < m.size(); ++j) {
      m[i].push_back(std::exp(mixes[i * m.size() + j].value) / sum + double{c.hc_eps});
    }
  }
  const auto divide = [&](bool by_rows) {
    for (std::size_t a = 0; a < m.size(); ++a) {
      double sum = double{c.hc_eps};
      for (std::size_t b = 0; b < m.size(); ++b) sum += by_rows ? m[a][b] : m[b][a];
      for (std::size_t b = 0; b < m.size(); ++b) (by_rows ? m[a][b] : m[b][a]) /= sum;
    }
  };
  divide(false);
  for (int iter = 0; iter + 1 < c.sinkhorn_iters; ++iter) {
    divide(true);
    divide(false);
  }
  std::vector<double> flat;
  for (const auto& row : m) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

struct HcPreExpected {
  Expected out;
  Expected post;
  Expected comb;
};
HcPreExpected hc_pre_ref(const MhcCase& c, const MhcInputs& in) {
  HcPreExpected expected{expected_as(c.out.format), expected_as(Format::kF32),
                         expected_as(Format::kF32)};
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::vector<float> flat = in.x.row(t).values();
    std::vector<Bounded> pre;
    for (int j = 0; j < c.copies; ++j) {
      pre.push_back(sigmoid_of(scaled_mix(c, in, flat, j, in.scales[0]), 1, double{c.hc_eps}));
      expected.post.add(sigmoid_of(scaled_mix(c, in, flat, c.copies + j, in.scales[1]), 2, 0));
    }
    add_mixed_row(c, in, flat, pre, expected.out);
    std::vector<Bounded> mixes;
    double largest_error = 0;
    for (int i = 0; i < c.copies * c.copies; ++i) {
      mixes.push_back(scaled_mix(c, in, flat, 2 * c.copies + i, in.scales[2]));
      largest_error = std::fmax(largest_error, mixes.back().error);
    }
    // A softmax entry moves by twice the largest error of its row, relatively. Dividing by row or
    // column sums does not increase distances in Hilbert's projective metric (Birkhoff), in which
    // every division adds its own roundings once per entry: copies additions, eps, a quotient.
    const double division = (c.copies + 2) * kEps;
    const double relative =
        2 * (2 * largest_error + 4 * kEps) + 2 * (2 * c.sinkhorn_iters) * division;
    for (const double value : comb_ref(c, mixes)) expected.comb.add({value, value * relative});
  }
  return expected;
}

Expected hc_post_ref(const MhcCase& c, const MhcInputs& in) {
  Expected expected = expected_as(c.out.format);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const MhcInputs one = token_of(in, c, t);
    const std::vector<float> x = one.x.values();
    const std::vector<float> y = one.y.values();
    const auto copies = static_cast<std::size_t>(c.copies);
    for (std::size_t j = 0; j < copies; ++j) {
      for (std::size_t k = 0; k < y.size(); ++k) {
        Bounded sum{double{one.post[j]} * y[k], std::fabs(double{one.post[j]} * y[k])};
        for (std::size_t i = 0; i < copies; ++i) {
          const double term = double{one.comb[i * copies + j]} * x[i * y.size() + k];
          sum.value += term;
          sum.error += std::fabs(term);
        }
        sum.error *= (c.copies + 2) * kEps;
        expected.add(sum);
      }
    }
  }
  return expected;
}

Expected hc_head_ref(const MhcCase& c, const MhcInputs& in) {
  Expected expected = expected_as(c.out.format);
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    const std::vector<float> flat = in.x.row(t).values();
    std::vector<Bounded> pre;
    for (int j = 0; j < c.copies; ++j) {
      pre.push_back(sigmoid_of(scaled_mix(c, in, flat, j, in.scales[0]), 1, double{c.hc_eps}));
    }
    add_mixed_row(c, in, flat, pre, expected);
  }
  return expected;
}

TEST_EACH_BACKEND(HcPre, MatchesTheText) {
  for (const MhcCase& c : mhc_cases()) {
    SCOPED_TRACE(c.name);
    const MhcInputs in = make_inputs(c);
    const HcPreOutputs got = run_hc_pre(backend, c, in);
    const HcPreExpected want = hc_pre_ref(c, in);
    EXPECT_CLOSE(got.out.values(), want.out.values, want.out.tolerance);
    EXPECT_CLOSE(got.post, want.post.values, want.post.tolerance);
    EXPECT_CLOSE(got.comb, want.comb.values, want.comb.tolerance);
  }
}

TEST_EACH_BACKEND(HcPost, MatchesTheText) {
  for (const MhcCase& c : mhc_cases()) {
    SCOPED_TRACE(c.name);
    const MhcInputs in = make_inputs(c);
    const Expected want = hc_post_ref(c, in);
    EXPECT_CLOSE(run_hc_post(backend, c, in).values(), want.values, want.tolerance);
  }
}

TEST_EACH_BACKEND(HcHead, MatchesTheText) {
  for (const MhcCase& c : mhc_cases()) {
    SCOPED_TRACE(c.name);
    const MhcInputs in = make_inputs(c);
    const Expected want = hc_head_ref(c, in);
    EXPECT_CLOSE(run_hc_head(backend, c, in).values(), want.values, want.tolerance);
  }
}

TEST_EACH_BACKEND(HcPre, ZeroMixesGiveHalvesAndAUniformComb) {
  // Weight 0, base 0: pre = 1/2, post = 1, comb = 1/4 throughout; out = half the sum of copies.
  MhcCase c{"zero_mixes", 1, 2, 4, f32_spec(), f32_spec(), std::nullopt};
  c.hc_eps = 0;
  MhcInputs in = make_inputs(c);
  in.x = HostMatrix(c.x, 1, 8, {1, 2, 3, 4, 5, 6, 7, 8});
  in.mix_weight = HostMatrix(f32_spec(), 24, 8, std::vector<float>(24 * 8));
  in.base.assign(24, 0.0f);
  const HcPreOutputs got = run_hc_pre(backend, c, in);
  EXPECT_SAME_BITS(got.out.values(), (std::vector<float>{8, 10}));
  EXPECT_SAME_BITS(got.post, std::vector<float>(4, 1.0f));
  EXPECT_SAME_BITS(got.comb, std::vector<float>(16, 0.25f));
  EXPECT_SAME_BITS(run_hc_head(backend, c, in).values(), (std::vector<float>{8, 10}));
}

TEST_EACH_BACKEND(HcPre, CombIsDoublyStochasticAfterManyIterations) {
  MhcCase c{"doubly_stochastic", 3, 64};
  c.sinkhorn_iters = 200;
  const HcPreOutputs got = run_hc_pre(backend, c, make_inputs(c));
  Tolerance tolerance;  // eps in each of the two last divisions, and roundings of a sum of four
  tolerance.absolute = 4 * double{c.hc_eps} + 10 * kEps;
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < 4; ++i) {
      double row = 0;
      double column = 0;
      for (std::size_t j = 0; j < 4; ++j) {
        row += got.comb[t * 16 + i * 4 + j];
        column += got.comb[t * 16 + j * 4 + i];
      }
      EXPECT_CLOSE((std::vector<double>{row, column}), (std::vector<double>{1, 1}), tolerance);
    }
  }
}

TEST_EACH_BACKEND(HcPre, LargeMixesDoNotOverflow) {
  MhcCase c{"large", 1, 8};
  MhcInputs in = make_inputs(c);
  for (std::size_t i = 0; i < in.base.size(); ++i) in.base[i] = i % 2 == 0 ? 500.0f : -500.0f;
  const HcPreOutputs got = run_hc_pre(backend, c, in);
  for (const float value : got.out.values()) EXPECT_TRUE(std::isfinite(value));
  for (const float value : got.post) EXPECT_TRUE(value == 0 || value == 2) << value;
  for (const float value : got.comb) EXPECT_TRUE(std::isfinite(value));
}

TEST_EACH_BACKEND(HcPost, CombMixesFromItsRowIntoItsColumn) {
  // comb[0][1] = 1 alone: copy 0 goes to place 1, nothing else survives.
  const MhcCase c{"direction", 1, 2, 2};
  MhcInputs in = make_inputs(c);
  in.x = HostMatrix(c.x, 1, 4, {1, 2, 30, 40});
  in.y = HostMatrix(c.x, 1, 2, {100, 200});
  in.post = {1, 0};
  in.comb = {0, 1, 0, 0};
  EXPECT_SAME_BITS(run_hc_post(backend, c, in).values(), (std::vector<float>{100, 200, 1, 2}));
}

TEST_EACH_BACKEND(HcPost, OutMayBeX) {
  for (const MatrixSpec& spec : {f32_spec(), bf16_spec()}) {
    const MhcCase c{"in_place", 5, 96, 4, spec, spec};
    const MhcInputs in = make_inputs(c);
    const DeviceMatrix x(backend, in.x);
    const DeviceMatrix y(backend, in.y);
    const DeviceArray<float> post(backend, in.post);
    const DeviceArray<float> comb(backend, in.comb);
    HcPostParams params;
    params.x = x.view();
    params.y = y.view();
    params.copies = c.copies;
    params.post = post.data();
    params.comb = comb.data();
    params.out = x.mutable_view();
    run_op(backend, params);
    EXPECT_SAME_BITS(x.values(), run_hc_post(backend, c, in).values());
  }
}

// Another engine's prompts differed by 1e-2 alone and in a batch: its split count of this product
// depended on the number of tokens.
TEST_EACH_BACKEND(HcPre, ATokenAloneHasTheBitsItHasInABatch) {
  const MhcCase c{"batch", 65, 640};
  const MhcInputs in = make_inputs(c);
  const HcPreOutputs batch = run_hc_pre(backend, c, in);
  const HostMatrix post_batch = run_hc_post(backend, c, in);
  const HostMatrix head_batch = run_hc_head(backend, c, in);
  for (const std::int64_t token : {0, 31, 64}) {
    SCOPED_TRACE(token);
    const MhcInputs one = token_of(in, c, token);
    const HcPreOutputs alone = run_hc_pre(backend, c, one);
    EXPECT_SAME_BITS(alone.out.values(), batch.out.row(token).values());
    EXPECT_SAME_BITS(alone.post, std::vector<float>(batch.post.begin() + token * 4,
                                                    batch.post.begin() + token * 4 + 4));
    EXPECT_SAME_BITS(alone.comb, std::vector<float>(batch.comb.begin() + token * 16,
                                                    batch.comb.begin() + token * 16 + 16));
    EXPECT_SAME_BITS(run_hc_post(backend, c, one).values(), post_batch.row(token).values());
    EXPECT_SAME_BITS(run_hc_head(backend, c, one).values(), head_batch.row(token).values());
  }
}

template <class T>
std::vector<T> poisoned_behind(std::vector<T> values, std::int64_t kept) {
  std::memset(values.data() + kept, kPoisonByte,
              (values.size() - static_cast<std::size_t>(kept)) * sizeof(T));
  return values;
}

TEST_EACH_BACKEND(HcPre, InactiveTokensAreNeitherReadNorWritten) {
  for (const std::int32_t active : {-1, 0, 1, 2, 3, 4}) {
    SCOPED_TRACE(active);
    MhcCase c{"inactive", 3, 16};
    MhcInputs in = make_inputs(c);
    const std::int64_t kept = std::clamp(active, 0, 3);
    const HcPreOutputs all = run_hc_pre(backend, c, in);
    const HostMatrix post_all = run_hc_post(backend, c, in);
    const HostMatrix head_all = run_hc_head(backend, c, in);
    c.row_count = active;
    in.x = HostMatrix(c.x, 3, 64, poisoned_behind(in.x.values(), kept * 64));
    in.y = HostMatrix(c.x, 3, 16, poisoned_behind(in.y.values(), kept * 16));
    in.post = poisoned_behind(in.post, kept * 4);
    in.comb = poisoned_behind(in.comb, kept * 16);
    const HcPreOutputs got = run_hc_pre(backend, c, in);
    EXPECT_SAME_BITS(got.out.values(), poisoned_behind(all.out.values(), kept * 16));
    EXPECT_SAME_BITS(got.post, poisoned_behind(all.post, kept * 4));
    EXPECT_SAME_BITS(got.comb, poisoned_behind(all.comb, kept * 16));
    EXPECT_SAME_BITS(run_hc_post(backend, c, in).values(),
                     poisoned_behind(post_all.values(), kept * 64));
    EXPECT_SAME_BITS(run_hc_head(backend, c, in).values(),
                     poisoned_behind(head_all.values(), kept * 16));
  }
}

TEST_EACH_BACKEND(HcPre, ANanStaysInItsToken) {
  const MhcCase c{"nan", 3, 16};
  MhcInputs in = make_inputs(c);
  const HcPreOutputs clean = run_hc_pre(backend, c, in);
  std::vector<float> x = in.x.values();
  x[64 + 5] = kNan;
  in.x = HostMatrix(c.x, 3, 64, x);
  const HcPreOutputs got = run_hc_pre(backend, c, in);
  for (const std::int64_t token : {0, 2}) {
    EXPECT_SAME_BITS(got.out.row(token).values(), clean.out.row(token).values());
  }
  for (const float value : got.out.row(1).values()) EXPECT_TRUE(std::isnan(value));
}

TEST_EACH_BACKEND(HcPre, NoTokens) {
  const MhcCase c{"empty", 0, 16};
  const MhcInputs in = make_inputs(c);
  EXPECT_TRUE(run_hc_pre(backend, c, in).out.data.empty());
  EXPECT_TRUE(run_hc_post(backend, c, in).data.empty());
  EXPECT_TRUE(run_hc_head(backend, c, in).data.empty());
}

}  // namespace
}  // namespace dsv4::testing
