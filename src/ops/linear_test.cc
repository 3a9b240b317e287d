// Linear layers and the embedding: every backend against sums written out in long double.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "testing/cases/linear_cases.h"
#include "testing/comparator.h"
#include "testing/refusals.h"
#include "testing/tolerances.h"

namespace dsv4::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Sums {
  std::vector<double> values;      // [m, num_parts * n]
  std::vector<double> magnitudes;  // sum of |x||w| of each
};

// Per part, token and output, K descending, so that the order of the reference cannot hide.
Sums linear_ref(const LinearCase& c, const LinearInputs& in) {
  const std::vector<float> x = in.x.values();
  const std::vector<float> w = in.w.values();
  Sums sums;
  for (std::int64_t m = 0; m < c.m; ++m) {
    for (std::int64_t part = 0; part < c.num_parts; ++part) {
      for (std::int64_t n = 0; n < c.n; ++n) {
        long double sum = 0;
        long double magnitude = 0;
        for (std::int64_t k = c.k - 1; k >= 0; --k) {
          const auto x_idx = static_cast<std::size_t>((m * c.num_parts + part) * c.k + k);
          const auto w_idx = static_cast<std::size_t>((part * c.n + n) * c.k + k);
          const long double product = static_cast<long double>(x[x_idx]) * w[w_idx];
          sum += product;
          magnitude += std::fabs(product);
        }
        sums.values.push_back(static_cast<double>(sum));
        sums.magnitudes.push_back(static_cast<double>(magnitude));
      }
    }
  }
  return sums;
}

TEST_EACH_BACKEND(Linear, MatchesTheSums) {
  for (const LinearCase& c : linear_cases()) {
    SCOPED_TRACE(c.name);
    const LinearInputs in = make_inputs(c);
    const std::vector<float> got = run_linear(backend, c, in).values();
    const Sums want = linear_ref(c, in);
    EXPECT_CLOSE(got, want.values, sum_tolerance(c.k, want.magnitudes, c.y.format));
  }
}

TEST_EACH_BACKEND(Linear, SmallIntegersAreExact) {
  const LinearCase c{"by_hand", 2, 2, 3};
  const LinearInputs in{HostMatrix(f32_spec(), 2, 3, {1, 2, 3, -1, 0, 1}),
                        HostMatrix(f32_spec(), 2, 3, {4, 5, 6, 7, 8, 9})};
  EXPECT_SAME_BITS(run_linear(backend, c, in).values(), (std::vector<float>{32, 50, 2, 2}));
}

TEST_EACH_BACKEND(Linear, EachPartTakesItsOwnColumns) {
  const LinearCase c{"by_hand", 1, 2, 2, 2};
  const LinearInputs in{HostMatrix(f32_spec(), 1, 4, {1, 2, 30, 40}),
                        HostMatrix(f32_spec(), 4, 2, {1, 0, 0, 1, 1, 0, 0, 1})};
  EXPECT_SAME_BITS(run_linear(backend, c, in).values(), (std::vector<float>{1, 2, 30, 40}));
}

TEST(LinearReference, SumsInFp64AndRoundsOnce) {
  const LinearCase c{"cancellation", 1, 1, 3};
  const LinearInputs in{HostMatrix(f32_spec(), 1, 3, {1e8f, 1, -1e8f}),
                        HostMatrix(f32_spec(), 1, 3, {1, 1, 1})};
  EXPECT_SAME_BITS(run_linear(reference_backend(), c, in).values(), std::vector<float>{1});
}

// The worst input for sums in sixteen lanes: in one of them every addition to 1 rounds up by half a
// unit, so the error is all that the bound allows for K / 16 links.
TEST_EACH_BACKEND(Linear, RoundingsAllOfOneSignStayWithinTheBound) {
  for (const std::int64_t k : {4096, 7168, 16384}) {
    SCOPED_TRACE(k);
    const LinearCase c{"one_sign", 1, 1, k};
    std::vector<float> x(static_cast<std::size_t>(k), 0.0f);
    double sum = 1;
    for (std::size_t i = kLaneSums; i < x.size(); i += kLaneSums) {
      x[i] = 0x1.000002p-24f;
      sum += x[i];
    }
    x[0] = 1;
    const LinearInputs in{HostMatrix(f32_spec(), 1, k, x),
                          HostMatrix(f32_spec(), 1, k, std::vector<float>(x.size(), 1.0f))};
    EXPECT_CLOSE(run_linear(backend, c, in).values(), std::vector<double>{sum},
                 sum_tolerance(k, {sum}, Format::kF32));
  }
}

TEST_EACH_BACKEND(Linear, ARowAloneHasTheBitsItHasInABatch) {
  for (const MatrixSpec& x_spec : activation_specs()) {
    for (const MatrixSpec& w_spec : weight_specs()) {
      SCOPED_TRACE(x_spec.name + " by " + w_spec.name);
      LinearCase c{"batch", 9, 17, 288, 1, x_spec, w_spec};
      const LinearInputs in = make_inputs(c);
      const HostMatrix batch = run_linear(backend, c, in);
      for (const std::int64_t row : {0, 4, 8}) {
        c.m = 1;
        const HostMatrix alone = run_linear(backend, c, {in.x.row(row), in.w});
        EXPECT_SAME_BITS(alone.values(), batch.row(row).values());
      }
    }
  }
}

TEST_EACH_BACKEND(Linear, SameBitsOnEveryRun) {
  const LinearCase c{"repeat", 33, 40, 1600, 1, bf16_spec(), nvfp4_spec()};
  const LinearInputs in = make_inputs(c);
  const std::vector<float> first = run_linear(backend, c, in).values();
  for (int i = 0; i < 10; ++i) EXPECT_SAME_BITS(run_linear(backend, c, in).values(), first);
}

TEST_EACH_BACKEND(Linear, InactiveRowsAreNeitherReadNorWritten) {
  for (const std::int32_t active : {-1, 0, 1, 2, 3, 4}) {
    SCOPED_TRACE(active);
    LinearCase c{"inactive", 3, 4, 32};
    c.row_count = active;
    LinearInputs in = make_inputs(c);
    const std::vector<double> all = linear_ref(c, in).values;
    const std::size_t written = static_cast<std::size_t>(std::clamp(active, 0, 3)) * 4;
    std::fill(in.x.data.begin() + static_cast<std::ptrdiff_t>(written / 4 * 32 * sizeof(float)),
              in.x.data.end(), kPoisonByte);
    const HostMatrix got = run_linear(backend, c, in);
    EXPECT_SAME_BITS(std::vector<std::uint8_t>(
                         got.data.begin() + static_cast<std::ptrdiff_t>(written * sizeof(float)),
                         got.data.end()),
                     std::vector<std::uint8_t>((12 - written) * sizeof(float), kPoisonByte));
    Tolerance tolerance;  // sums of 32 terms of magnitude below 6 * 0.3
    tolerance.absolute = accumulation_bound(32) * 32 * 6 * 0.3;
    std::vector<float> got_values = got.values();
    got_values.resize(written);
    EXPECT_CLOSE(
        got_values,
        std::vector<double>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(written)),
        tolerance);
  }
}

TEST_EACH_BACKEND(Linear, ANanStaysInItsRow) {
  const LinearCase c{"nan", 3, 20, 64};
  LinearInputs in = make_inputs(c);
  const HostMatrix clean = run_linear(backend, c, in);
  std::vector<float> x = in.x.values();
  x[64 + 9] = kNan;
  in.x = HostMatrix(c.x, 3, 64, x);
  const HostMatrix got = run_linear(backend, c, in);
  EXPECT_SAME_BITS(got.row(0).values(), clean.row(0).values());
  EXPECT_SAME_BITS(got.row(2).values(), clean.row(2).values());
  for (const float value : got.row(1).values()) EXPECT_TRUE(std::isnan(value));
}

TEST_EACH_BACKEND(Linear, EmptyExtents) {
  for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 0}, {0, 0}}) {
    const LinearCase c{"empty", m, n, 16};
    EXPECT_TRUE(run_linear(backend, c, make_inputs(c)).data.empty());
  }
  // An empty sum is zero, not what was there.
  const LinearCase c{"k_0", 2, 3, 0};
  EXPECT_SAME_BITS(run_linear(backend, c, make_inputs(c)).values(), std::vector<float>(6));
}

TEST_EACH_BACKEND(Linear, TinyScalesOfDeadWeightsGiveNoNan) {
  // All weights around 1e-38: FP8 scales clamp, NVFP4 global scales are subnormal.
  for (const MatrixSpec& w : weight_specs()) {
    SCOPED_TRACE(w.name);
    const LinearCase c{"dead", 1, 4, 256, 1, f32_spec(), w};
    LinearInputs in = make_inputs(c);
    in.w = HostMatrix(w, 4, 256, normal_values(3, 4 * 256, 1e-38));
    for (const float value : run_linear(backend, c, in).values()) {
      EXPECT_TRUE(std::isfinite(value));
      EXPECT_LE(std::fabs(value), 1e-3f);
    }
  }
}

HostMatrix run_embedding(Backend& backend, const std::vector<std::int32_t>& token_ids,
                         const HostMatrix& table, int num_copies, const MatrixSpec& out_spec) {
  const DeviceArray<std::int32_t> ids(backend, token_ids);
  const DeviceMatrix table_on_device(backend, table);
  const DeviceMatrix out(backend, HostMatrix(out_spec, ids.size(), num_copies * table.cols));
  EmbeddingParams params;
  params.token_ids = ids.data();
  params.table = table_on_device.view();
  params.num_copies = num_copies;
  params.out = out.mutable_view();
  run_op(backend, params);
  return out.read();
}

TEST_EACH_BACKEND(Embedding, CopiesRowsSideBySide) {
  const HostMatrix table(bf16_spec().padded(2), 3, 2, {1, 2, 3, 4, 5, 6});
  for (const MatrixSpec& out : {f32_spec().padded(1), bf16_spec()}) {
    EXPECT_SAME_BITS(run_embedding(backend, {2, 0, 2}, table, 2, out).values(),
                     (std::vector<float>{5, 6, 5, 6, 1, 2, 1, 2, 5, 6, 5, 6}));
  }
}

TEST_EACH_BACKEND(Embedding, InactiveRowsAreNotWritten) {
  const HostMatrix table(f32_spec(), 2, 2, {1, 2, 3, 4});
  const std::vector<float> got = run_embedding(backend, {1, -1, 0}, table, 1, f32_spec()).values();
  EXPECT_SAME_BITS(got, (std::vector<float>{3, 4, f32_from_bits(0xFFFFFFFFu),
                                            f32_from_bits(0xFFFFFFFFu), 1, 2}));
}

TEST_EACH_BACKEND(Embedding, EveryFormatIsDecoded) {
  for (const MatrixSpec& spec : weight_specs()) {
    SCOPED_TRACE(spec.name);
    const HostMatrix table(spec.padded(4), 130, 160, normal_values(5, 130 * 160));
    const std::vector<float> all = table.values();
    EXPECT_SAME_BITS(run_embedding(backend, {129}, table, 1, f32_spec()).values(),
                     std::vector<float>(all.end() - 160, all.end()));
  }
}

TEST_EACH_BACKEND(Embedding, NoTokens) {
  const HostMatrix table(f32_spec(), 2, 2, {1, 2, 3, 4});
  EXPECT_TRUE(run_embedding(backend, {}, table, 4, f32_spec()).data.empty());
}

// A valid call over host memory that nothing reads.
struct LinearCall {
  HostMatrix x{f32_spec(), 3, 128};
  HostMatrix w{nvfp4_spec(), 8, 64};
  HostMatrix y{bf16_spec(), 3, 8};
  LinearParams params;
  LinearCall() {
    params.x = x.view();
    params.w = w.view();
    params.y = y.mutable_view();
    params.num_parts = 2;
    check(params);
  }
};

TEST(LinearRefuses, ShapesThatDoNotMatch) {
  LinearCall call;
  call.params.x.cols = 64;
  expect_refused(call.params, {"LinearParams.x.cols", "64", "num_parts * w.cols = 128"});
  call = {};
  call.params.y.rows = 2;
  expect_refused(call.params, {"LinearParams.y.rows", "2", "x.rows = 3"});
  call = {};
  call.params.y.cols = 7;
  expect_refused(call.params, {"LinearParams.y.cols", "7", "w.rows = 8"});
  call = {};
  call.params.w.rows = 7;
  expect_refused(call.params, {"LinearParams.w.rows", "7", "multiple of num_parts = 2"});
  call = {};
  call.params.num_parts = 0;
  expect_refused(call.params, {"LinearParams.num_parts", "0", "at least 1"});
}

TEST(LinearRefuses, StridesThatCutRows) {
  LinearCall call;
  call.params.w.row_stride = 62;
  expect_refused(call.params, {"LinearParams.w.row_stride", "62", "at least cols = 64"});
  call = {};
  call.params.w.row_stride = 65;
  expect_refused(call.params, {"LinearParams.w.row_stride", "65", "even"});
  call = {};
  call.params.w.scale_stride = 3;
  expect_refused(call.params, {"LinearParams.w.scale_stride", "3", "4 scales"});
  call = {};
  call.params.w.global_scale_stride = 2;
  expect_refused(call.params, {"LinearParams.w.global_scale_stride", "2", "0", "1"});
}

TEST(LinearRefuses, ExtentsBeyondAddressableMemory) {
  LinearCall call;
  call.params.x.rows = std::int64_t{1} << 55;
  call.params.y.rows = call.params.x.rows;
  expect_refused(call.params, {"LinearParams.x", "2^61"});
  call = {};
  call.params.w.cols = std::int64_t{1} << 62;
  call.params.w.row_stride = call.params.w.cols;
  expect_refused(call.params, {"LinearParams.w"});
}

TEST(LinearRefuses, FormatsAndMissingData) {
  LinearCall call;
  call.params.y.format = Format::kNvfp4;
  expect_refused(call.params, {"LinearParams.y.format", "NVFP4", "F32, BF16"});
  call = {};
  call.params.x.format = Format::kMxfp4;
  expect_refused(call.params, {"LinearParams.x.format", "MXFP4", "F32, BF16, FP8, NVFP4"});
  call = {};
  call.params.x.data = nullptr;
  expect_refused(call.params, {"LinearParams.x.data", "null"});
  call = {};
  call.params.w.global_scales = nullptr;
  expect_refused(call.params, {"LinearParams.w.global_scales", "null"});
  call = {};
  HostMatrix tiles(fp8_spec(128, 128, DType::kE8M0), 3, 128);
  call.params.x = tiles.view();
  expect_refused(call.params, {"LinearParams.x.block_rows", "128", "must be 1"});
}

TEST(LinearCost, CountsOneMultiplyAddAProductAndEachByteOnce) {
  const LinearCall call;
  EXPECT_EQ(cost(call.params).flops, 2.0 * 3 * 8 * 64);
  EXPECT_EQ(cost(call.params).bytes_read, 3 * 128 * 4 + 8 * (32 + 4) + 4);
  EXPECT_EQ(cost(call.params).bytes_written, 3 * 8 * 2);
}

TEST(EmbeddingRefuses, ShapesThatDoNotMatch) {
  HostMatrix table(bf16_spec(), 5, 8);
  HostMatrix out(f32_spec(), 2, 32);
  const std::int32_t ids[] = {0, 1};
  EmbeddingParams params;
  params.table = table.view();
  params.out = out.mutable_view();
  params.token_ids = ids;
  params.num_copies = 4;
  check(params);
  params.num_copies = 3;
  expect_refused(params, {"EmbeddingParams.out.cols", "32", "num_copies * table.cols = 24"});
  params.num_copies = 0;
  expect_refused(params, {"EmbeddingParams.num_copies", "0", "at least 1"});
  params.num_copies = 4;
  params.token_ids = nullptr;
  expect_refused(params, {"EmbeddingParams.token_ids", "null"});
}

}  // namespace
}  // namespace dsv4::testing
