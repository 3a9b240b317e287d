// The experts on every backend: a layer against the model's formula token by token, and each op
// against the reference.
#include "ops/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "testing/cases/moe_cases.h"
#include "testing/comparator.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

using Values = std::vector<double>;

// W x in FP64 and the sums of |w x|.
struct Product {
  Values y, magnitudes;
};
Product multiply(const HostMatrix& w, const Values& x) {
  const std::vector<float> elements = w.values();
  Product p;
  for (std::int64_t n = 0; n < w.rows; ++n) {
    double sum = 0, magnitude = 0;
    for (std::int64_t k = 0; k < w.cols; ++k) {
      const double term = double{elements[n * w.cols + k]} * x[k];
      sum += term;
      magnitude += std::fabs(term);
    }
    p.y.push_back(sum);
    p.magnitudes.push_back(magnitude);
  }
  return p;
}

// One pair of token and expert from the formula, before and after the down GEMM, with what FP32
// arithmetic may change.
struct PairOracle {
  Values activated, activated_error, out, out_error;
};

PairOracle expert_by_formula(const MoeCase& c, const MoeInputs& in, std::int64_t token, int expert,
                             double routing_weight) {
  const std::vector<float> all = in.x.values();
  const Values x(all.begin() + token * c.hidden, all.begin() + (token + 1) * c.hidden);
  const Product gate = multiply(in.gate[expert], x);
  const Product up = multiply(in.up[expert], x);
  const double bound = accumulation_bound(c.hidden);
  PairOracle pair;
  for (std::int64_t n = 0; n < c.inter; ++n) {
    double g = gate.y[n], u = up.y[n];
    if (c.swiglu_limit > 0) {
      if (g > c.swiglu_limit) g = c.swiglu_limit;
      if (u > c.swiglu_limit) u = c.swiglu_limit;
      if (u < -c.swiglu_limit) u = -c.swiglu_limit;
    }
    const double silu = g / (1 + std::exp(-g));
    pair.activated.push_back(silu * u * routing_weight);
    // |silu'| <= 1.1; the clamps do not increase an error; about eight roundings of the result.
    const double gate_error = bound * gate.magnitudes[n] + std::fabs(g) * 0x1p-23;
    const double up_error = bound * up.magnitudes[n];
    pair.activated_error.push_back(
        std::fabs(routing_weight) *
            (1.1 * gate_error * (std::fabs(u) + up_error) + std::fabs(silu) * up_error) +
        std::fabs(pair.activated.back()) * (8 * 0x1p-24 + one_ulp(c.out_spec.format)));
  }
  const Product down = multiply(in.down[expert], pair.activated);
  const std::vector<float> w = in.down[expert].values();
  pair.out = down.y;
  for (std::int64_t n = 0; n < c.hidden; ++n) {
    double error = accumulation_bound(c.inter) * down.magnitudes[n];
    for (std::int64_t k = 0; k < c.inter; ++k) {
      error += std::fabs(w[n * c.inter + k]) * pair.activated_error[k];
    }
    pair.out_error.push_back(error + std::fabs(pair.out[n]) * one_ulp(c.out_spec.format));
  }
  return pair;
}

// The rows an op leaves alone: poison before and after.
Values poison_row(std::int64_t cols) {
  return Values(static_cast<std::size_t>(cols), std::nan(""));
}

// A whole layer from the formula. Rows are found by (token, expert), not through the dispatch.
struct LayerOracle {
  Values activated, expert_out, out;
  Tolerance activated_tolerance, expert_out_tolerance, out_tolerance;
};

LayerOracle layer_by_formula(const MoeCase& c, const MoeInputs& in) {
  LayerOracle layer;
  for (Tolerance* t :
       {&layer.activated_tolerance, &layer.expert_out_tolerance, &layer.out_tolerance}) {
    t->of_magnitude = 1;
  }
  const auto append = [](Values& to, const Values& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  std::map<std::pair<std::int64_t, int>, PairOracle> pairs;
  for (std::int64_t i = 0; i < c.tokens * c.experts_per_token; ++i) {
    if (in.choices[i] < 0) continue;
    const std::int64_t token = i / c.experts_per_token;
    pairs[{token, in.choices[i]}] =
        expert_by_formula(c, in, token, in.choices[i], in.choice_weights[i]);
  }
  std::size_t rows = 0;
  for (int e = 0; e < c.num_experts; ++e) {
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      const auto found = pairs.find({t, e});
      if (found == pairs.end()) continue;
      append(layer.activated, found->second.activated);
      append(layer.activated_tolerance.magnitudes, found->second.activated_error);
      append(layer.expert_out, found->second.out);
      append(layer.expert_out_tolerance.magnitudes, found->second.out_error);
      ++rows;
    }
  }
  for (; rows < in.choices.size(); ++rows) {
    append(layer.activated, poison_row(c.inter));
    append(layer.activated_tolerance.magnitudes, poison_row(c.inter));
    append(layer.expert_out, poison_row(c.hidden));
    append(layer.expert_out_tolerance.magnitudes, poison_row(c.hidden));
  }
  const std::vector<float> shared = in.shared.values();
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    for (std::int64_t n = 0; n < c.hidden; ++n) {
      double sum = shared[t * c.hidden + n];
      double error = 0, magnitude = std::fabs(sum);
      for (int e = 0; e < c.num_experts; ++e) {
        const auto found = pairs.find({t, e});
        if (found == pairs.end()) continue;
        sum += found->second.out[n];
        error += found->second.out_error[n];
        magnitude += std::fabs(found->second.out[n]);
      }
      layer.out.push_back(sum);
      layer.out_tolerance.magnitudes.push_back(
          error + magnitude * accumulation_bound(c.experts_per_token + 1) +
          std::fabs(sum) * one_ulp(c.out_spec.format));
    }
  }
  return layer;
}

TEST_EACH_BACKEND(Moe, LayerFollowsTheFormula) {
  for (const MoeCase& c : moe_cases()) {
    SCOPED_TRACE(c.name);
    const MoeInputs in(c);
    DeviceMoe device(backend, c, in);
    device.run(backend);
    const LayerOracle want = layer_by_formula(c, in);
    EXPECT_CLOSE(device.activated.values(), want.activated, want.activated_tolerance);
    EXPECT_CLOSE(device.expert_out.values(), want.expert_out, want.expert_out_tolerance);
    EXPECT_CLOSE(device.out.values(), want.out, want.out_tolerance);
  }
}

TEST_EACH_BACKEND(Moe, MatchesReference) {
  for (const MoeCase& c : moe_cases()) {
    SCOPED_TRACE(c.name);
    const MoeInputs in(c);
    DeviceMoe got(backend, c, in);
    got.run(backend);
    DeviceMoe want(reference_backend(), c, in);
    want.run(reference_backend());
    const LayerOracle layer = layer_by_formula(c, in);
    EXPECT_CLOSE(got.activated.values(), want.activated.values(), layer.activated_tolerance);
    EXPECT_CLOSE(got.expert_out.values(), want.expert_out.values(), layer.expert_out_tolerance);
    EXPECT_CLOSE(got.out.values(), want.out.values(), layer.out_tolerance);
  }
}

// Gate 2, 20, -20 against up 2, 20, -20 at limit 10, from one-hot rows so that nothing rounds.
TEST_EACH_BACKEND(Moe, ClampActsOnGateAboveAndOnUpBothWays) {
  MoeCase c;
  c.tokens = 1;
  c.num_experts = 1;
  c.experts_per_token = 1;
  c.hidden = 16;
  c.inter = 9;
  c.swiglu_limit = 10;
  MoeInputs in(c);
  const float sizes[] = {2, 20, -20};
  std::vector<float> x(16), gate(9 * 16), up(9 * 16);
  x[3] = 1;
  for (int n = 0; n < 9; ++n) {
    gate[n * 16 + 3] = sizes[n / 3];
    up[n * 16 + 3] = sizes[n % 3];
  }
  in.x = HostMatrix(f32_spec(), 1, 16, x);
  in.gate[0] = HostMatrix(f32_spec(), 9, 16, gate);
  in.up[0] = HostMatrix(f32_spec(), 9, 16, up);
  in.choice_weights = {1};
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  Values want, unclamped;
  for (int n = 0; n < 9; ++n) {
    const double clamped_gate = std::min(sizes[n / 3], 10.0f);
    const double clamped_up = std::clamp(sizes[n % 3], -10.0f, 10.0f);
    want.push_back(silu(clamped_gate) * clamped_up);
    unclamped.push_back(silu(sizes[n / 3]) * sizes[n % 3]);
  }
  DeviceMoe device(backend, c, in);
  device.run(backend);
  // An exponential, a sum, a quotient and two products.
  EXPECT_CLOSE(device.activated.values(), want, rounding_tolerance(8, Format::kF32));
  device.gate_up.swiglu_limit = 0;
  run_op(backend, device.gate_up);
  EXPECT_CLOSE(device.activated.values(), unclamped, rounding_tolerance(8, Format::kF32));
}

// Multiplying by a power of two is exact, so the weight shows in the down GEMM's input bit by bit.
TEST_EACH_BACKEND(Moe, RoutingWeightComesBeforeTheDownGemm) {
  MoeCase c;
  MoeInputs in(c);
  std::fill(in.choice_weights.begin(), in.choice_weights.end(), 0.25f);
  DeviceMoe weighted(backend, c, in);
  weighted.run(backend);
  DeviceMoe plain(backend, c, in);
  run_op(backend, plain.dispatch);
  plain.gate_up.row_weights = nullptr;
  run_op(backend, plain.gate_up);
  std::vector<float> want = plain.activated.values();
  for (float& value : want) value *= 0.25f;
  EXPECT_SAME_BITS(weighted.activated.values(), want);
}

TEST_EACH_BACKEND(Moe, NanInOneTokenStaysThere) {
  MoeCase c;
  MoeInputs in(c);
  DeviceMoe clean(backend, c, in);
  clean.run(backend);
  std::vector<float> x = in.x.values();
  x[2 * c.hidden + 5] = std::numeric_limits<float>::quiet_NaN();
  in.x = HostMatrix(f32_spec(), c.tokens, c.hidden, x);
  DeviceMoe device(backend, c, in);
  device.run(backend);
  const std::vector<float> got = device.out.values();
  const std::vector<float> want = clean.out.values();
  for (std::int64_t i = 0; i < c.tokens * c.hidden; ++i) {
    if (i / c.hidden == 2) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_EQ(got[i], want[i]) << i;
    }
  }
}

TEST_EACH_BACKEND(Moe, AloneOrInABatchTheSameBits) {
  for (const MatrixSpec& spec : weight_specs()) {
    SCOPED_TRACE(spec.name);
    MoeCase c;
    c.tokens = 9;
    c.weight_spec = spec;
    const MoeInputs in(c);
    DeviceMoe batch(backend, c, in);
    batch.run(backend);
    const std::vector<float> all = batch.out.values();
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      MoeCase one = c;
      one.tokens = 1;
      MoeInputs alone_in = in;
      alone_in.x = in.x.row(t);
      alone_in.shared = in.shared.row(t);
      const auto first = t * c.experts_per_token;
      alone_in.choices.assign(in.choices.begin() + first,
                              in.choices.begin() + first + c.experts_per_token);
      alone_in.choice_weights.assign(in.choice_weights.begin() + first,
                                     in.choice_weights.begin() + first + c.experts_per_token);
      DeviceMoe alone(backend, one, alone_in);
      alone.run(backend);
      EXPECT_SAME_BITS(alone.out.values(), std::vector<float>(all.begin() + t * c.hidden,
                                                              all.begin() + (t + 1) * c.hidden));
    }
  }
}

TEST_EACH_BACKEND(Moe, SameBitsOnEveryRun) {
  MoeCase c;
  c.tokens = 33;
  const MoeInputs in(c);
  DeviceMoe first(backend, c, in);
  first.run(backend);
  const std::vector<float> want = first.out.values();
  for (int i = 0; i < 20; ++i) {
    DeviceMoe again(backend, c, in);
    again.run(backend);
    ASSERT_TRUE(compare_bits(again.out.values(), want));
  }
}

// A shared expert: one expert owning all rows, no routing weights, rows in token order.
TEST_EACH_BACKEND(Moe, SharedExpertIsOneExpertOfAllRows) {
  MoeCase c;
  c.num_experts = 1;
  c.experts_per_token = 1;
  c.routing = Routing::kRandom;
  MoeInputs in(c);
  std::fill(in.choice_weights.begin(), in.choice_weights.end(), 1.0f);
  DeviceMoe routed(backend, c, in);
  routed.run(backend);
  DeviceMoe shared(backend, c, in);
  shared.expert_offsets.write({0, static_cast<std::int32_t>(c.tokens)});
  shared.gate_up.row_tokens = nullptr;
  shared.gate_up.row_weights = nullptr;
  run_op(backend, shared.gate_up);
  run_op(backend, shared.down);
  EXPECT_SAME_BITS(shared.expert_out.values(), routed.expert_out.values());
}

}  // namespace
}  // namespace dsv4::testing
