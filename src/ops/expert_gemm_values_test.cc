// Unusual values in the expert GEMMs on every backend: block scales and global scales at the ends
// of their ranges, NaN and infinities and how far they reach, zeros, NVFP4 rows that saturate.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "testing/cases/expert_gemm_cases.h"
#include "testing/comparator.h"
#include "testing/expert_gemm_judge.h"

namespace dsv4::testing {
namespace {

// gate_up and down, in FP32 so that nothing is rounded away.
std::vector<ExpertGemmCase> both_gemms(const MatrixSpec& weight_spec) {
  ExpertGemmCase c;
  c.k = 288;
  c.n = 48;
  c.weight_spec = weight_spec;
  c.out_spec = f32_spec();
  ExpertGemmCase down = c;
  down.gate_up = false;
  return {c, down};
}

void for_each_matrix(ExpertGemmInputs& in, const std::function<void(HostMatrix&)>& change) {
  for (HostMatrix& m : in.weights) change(m);
  for (HostMatrix& m : in.up) change(m);
}

// Neuron n gets the block scale `scales`[n], over and over, so that small ones are not lost beside
// large ones.
void set_scales_by_neuron(HostMatrix& m, const std::vector<std::uint8_t>& scales) {
  for (std::size_t i = 0; i < m.block_scales.size(); ++i) {
    m.block_scales[i] = scales[i / static_cast<std::size_t>(m.scale_stride) % scales.size()];
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, E4m3ScalesOfEverySize) {
  // The smallest, the largest and the smallest subnormal number, 2^-6, 1, 448; zero under any
  // codes; the same with a sign.
  const std::vector<std::uint8_t> hard = {0x01, 0x07, 0x08, 0x09, 0x38, 0x7E, 0x81,
                                          0x87, 0x88, 0xB8, 0xFE, 0x00, 0x80};
  std::vector<std::uint8_t> all;
  for (int byte = 0; byte < 256; ++byte) {
    if ((byte & 0x7F) != 0x7F) all.push_back(static_cast<std::uint8_t>(byte));
  }
  for (const ExpertGemmCase& c : both_gemms(nvfp4_spec())) {
    ExpertGemmInputs in(c);
    for_each_matrix(in, [&](HostMatrix& m) { set_scales_by_neuron(m, hard); });
    EXPECT_EQ(first_difference(c, in, DeviceExpertGemm(backend, c, in).run()), "");
    for_each_matrix(
        in, [&](HostMatrix& m) { m = random_weights(c.weight_spec, c.n, c.k, 9, all, 0.01f); });
    EXPECT_EQ(first_difference(c, in, DeviceExpertGemm(backend, c, in).run()), "");
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, E8m0ScalesThatSpan100BinaryOrders) {
  std::vector<std::uint8_t> scales;
  for (int byte = 127 - 50; byte <= 127 + 50; ++byte) {
    scales.push_back(static_cast<std::uint8_t>(byte));
  }
  for (const ExpertGemmCase& c : both_gemms(mxfp4_spec())) {
    ExpertGemmInputs in(c);
    for_each_matrix(in, [&](HostMatrix& m) { set_scales_by_neuron(m, scales); });
    EXPECT_EQ(first_difference(c, in, DeviceExpertGemm(backend, c, in).run()), "");
    std::uint64_t seed = 30;
    for_each_matrix(
        in, [&](HostMatrix& m) { m = random_weights(c.weight_spec, c.n, c.k, seed++, scales, 1); });
    EXPECT_EQ(first_difference(c, in, DeviceExpertGemm(backend, c, in).run()), "");
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, GlobalScalesFarApart) {
  const ExpertGemmCase c = both_gemms(nvfp4_spec(true))[1];
  ExpertGemmInputs in(c);
  for (HostMatrix& m : in.weights) {
    for (std::size_t n = 0; n < m.global_scales.size(); ++n) {
      m.global_scales[n] = std::ldexp(1.7f, static_cast<int>(n * 29 % 161) - 80);
    }
    m.global_scales[3] = 0;
  }
  EXPECT_EQ(first_difference(c, in, DeviceExpertGemm(backend, c, in).run()), "");
}

// The outputs of `changed` are NaN at neuron `neuron` of all rows of `expert`, elsewhere those of
// `clean`.
void expect_nan_in_one_neuron(const ExpertGemmInputs& in, const HostMatrix& changed,
                              const HostMatrix& clean, int expert, std::int64_t neuron) {
  const std::vector<float> got = changed.values(), want = clean.values();
  for (std::int64_t i = 0; i < clean.rows * clean.cols; ++i) {
    const std::int64_t row = i / clean.cols;
    if (in.expert_of(row) == expert && i % clean.cols == neuron) {
      ASSERT_TRUE(std::isnan(got[i])) << "row " << row;
    } else {
      ASSERT_EQ(got[i], want[i]) << "row " << row << ", neuron " << i % clean.cols;
    }
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, ANanScaleReachesItsNeuronOnly) {
  const std::pair<MatrixSpec, std::uint8_t> nans[] = {
      {nvfp4_spec(), 0x7F}, {nvfp4_spec(), 0xFF}, {mxfp4_spec(), 0xFF}};
  for (const auto& [spec, nan] : nans) {
    for (const ExpertGemmCase& c : both_gemms(spec)) {
      const ExpertGemmInputs in(c);
      const HostMatrix clean = DeviceExpertGemm(backend, c, in).run();
      const std::int64_t last_block = c.k / spec.block_cols - 1;
      // Expert 1 has no rows.
      for (const int expert : {0, 1, 2, 3}) {
        for (const std::int64_t neuron : {std::int64_t{0}, std::int64_t{21}, c.n - 1}) {
          SCOPED_TRACE(fmt::format("{} {:x} {} expert {} neuron {}", spec.name, nan, c.gate_up,
                                   expert, neuron));
          for (const bool in_up : {false, true}) {
            if (in_up && !c.gate_up) continue;
            ExpertGemmInputs with_nan = in;
            HostMatrix& m = in_up ? with_nan.up[expert] : with_nan.weights[expert];
            m.block_scales[neuron * m.scale_stride + (neuron == 0 ? 0 : last_block)] = nan;
            expect_nan_in_one_neuron(in, DeviceExpertGemm(backend, c, with_nan).run(), clean,
                                     expert, neuron);
          }
        }
      }
    }
  }
}

void set_x(HostMatrix& x, std::int64_t row, std::int64_t col, float value) {
  reinterpret_cast<std::uint16_t*>(x.data.data())[row * x.row_stride + col] = encode_bf16(value);
}

TEST_EACH_BACKEND(ExpertGemmValues, NanAndInfinityOfATokenStayThere) {
  for (const MatrixSpec& spec : {nvfp4_spec(), mxfp4_spec()}) {
    for (const ExpertGemmCase& c : both_gemms(spec)) {
      const ExpertGemmInputs in(c);
      const std::vector<float> want = DeviceExpertGemm(backend, c, in).run().values();
      for (const float value : {std::nanf(""), std::numeric_limits<float>::infinity(),
                                -std::numeric_limits<float>::infinity()}) {
        for (const std::int64_t col : {std::int64_t{0}, std::int64_t{100}, c.k - 1}) {
          SCOPED_TRACE(fmt::format("{} {} {} in column {}", spec.name, c.gate_up, value, col));
          ExpertGemmInputs changed = in;
          const std::int64_t token = in.x_row(4);
          set_x(changed.x, token, col, value);
          const HostMatrix got = DeviceExpertGemm(backend, c, changed).run();
          EXPECT_EQ(first_difference(c, changed, got), "");  // NaN and infinities in their places
          const std::vector<float> values = got.values();
          for (std::int64_t i = 0; i < c.rows() * c.n; ++i) {
            if (in.x_row(i / c.n) == token) continue;
            ASSERT_EQ(values[i], want[i]) << "row " << i / c.n;
          }
        }
      }
    }
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, RowsOfZerosGiveZeros) {
  for (const MatrixSpec& out : {f32_spec(), nvfp4_spec(true)}) {
    ExpertGemmCase c;
    c.out_spec = out;
    ExpertGemmInputs in(c);
    const std::int64_t tokens[] = {in.x_row(0), in.x_row(5)};
    for (std::int64_t col = 0; col < c.k; ++col) {
      set_x(in.x, tokens[0], col, 0.0f);
      set_x(in.x, tokens[1], col, -0.0f);
    }
    const HostMatrix got = DeviceExpertGemm(backend, c, in).run();
    EXPECT_EQ(first_difference(c, in, got), "");
    for (const std::int64_t row : {0, 5}) {
      const HostMatrix zeros = got.row(row);
      const std::vector<float> values = zeros.values();
      EXPECT_EQ(values, std::vector<float>(values.size(), 0.0f));
      if (out.format != Format::kNvfp4) continue;
      // A block of zeros has no sign either.
      EXPECT_EQ(zeros.data, std::vector<std::uint8_t>(zeros.data.size(), 0));
      EXPECT_EQ(zeros.block_scales, std::vector<std::uint8_t>(zeros.block_scales.size(), 0));
    }
  }
}

TEST_EACH_BACKEND(ExpertGemmValues, Nvfp4RowsSaturateAndVanish) {
  ExpertGemmCase c;
  c.expert_rows = {5, 6, 7, 8, 9, 10};
  c.out_spec = nvfp4_spec(true);
  c.swiglu_limit = 0;
  ExpertGemmInputs in(c);
  // Every value saturates; some do; block scales are subnormal; most vanish; all do; g is 0.
  in.out_global_scales = {1e-9f, 1e-4f, 50.0f, 1000.0f, 1e9f, 0.0f};
  const HostMatrix got = DeviceExpertGemm(backend, c, in).run();
  EXPECT_EQ(first_difference(c, in, got), "");
  const auto scales = got.block_scales;
  EXPECT_EQ(std::count(scales.begin(), scales.begin() + 5 * got.scale_stride, 0x7E),
            5 * got.scale_stride);
  EXPECT_EQ(
      std::count(scales.begin() + 26 * got.scale_stride, scales.begin() + 35 * got.scale_stride, 0),
      9 * got.scale_stride);
}

}  // namespace
}  // namespace dsv4::testing
