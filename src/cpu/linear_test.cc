// Linear layers of the CPU backend bit by bit: every instruction set, number of threads, batch and
// tile against the reduction tree written out.
#include "ops/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/cpu_test_backends.h"
#include "testing/cases/linear_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

// The tree of docs/kernels/cpu.md over decoded operands.
float dot_by_tree(const float* x, const float* w, std::int64_t k) {
  float lanes[16] = {};
  for (std::int64_t i = 0; i < k; ++i) lanes[i % 16] = std::fma(w[i], x[i], lanes[i % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return std::isnan(lanes[0]) ? f32_from_bits(kF32QuietNanBits) : lanes[0];
}

HostMatrix linear_by_tree(const LinearCase& c, const LinearInputs& in) {
  const std::vector<float> x = in.x.values();
  const std::vector<float> w = in.w.values();
  std::vector<float> y;
  for (std::int64_t m = 0; m < c.m; ++m) {
    for (std::int64_t n = 0; n < c.num_parts * c.n; ++n) {
      y.push_back(
          dot_by_tree(x.data() + (m * c.num_parts + n / c.n) * c.k, w.data() + n * c.k, c.k));
    }
  }
  return HostMatrix(c.y, c.m, c.num_parts * c.n, y);
}

void expect_the_trees_bits(const std::vector<NamedBackend>& variants, const LinearCase& c,
                           const LinearInputs& in) {
  const HostMatrix want = linear_by_tree(c, in);
  for (const NamedBackend& variant : variants) {
    SCOPED_TRACE(c.name + " on " + variant.name);
    EXPECT_SAME_BITS(run_linear(*variant.backend, c, in).data, want.data);
  }
}

std::vector<MatrixSpec> all_weight_specs() {
  std::vector<MatrixSpec> specs = weight_specs();
  specs.push_back(nvfp4_spec(true));
  specs.push_back(fp8_spec(1, 128, DType::kF32));
  specs.push_back(fp8_spec(3, 48, DType::kE8M0));  // tiles of whole steps
  specs.push_back(fp8_spec(2, 40, DType::kE8M0));  // tiles that cut steps
  specs.push_back(fp8_spec(128, 200, DType::kF32));
  return specs;
}

TEST(CpuLinear, EverySharedCaseHasTheTreesBits) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const LinearCase& c : linear_cases()) expect_the_trees_bits(variants, c, make_inputs(c));
}

TEST(CpuLinear, EveryFormatAroundTheEdgesOfTilesAndPanels) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& w : all_weight_specs()) {
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 33}) {
      for (const std::int64_t n : {1, 3, 4, 5, 31, 32, 33, 70}) {
        const LinearCase c{w.name + " m " + std::to_string(m) + " n " + std::to_string(n),
                           m,
                           n,
                           160,
                           1,
                           bf16_spec(),
                           w};
        expect_the_trees_bits(variants, c, make_inputs(c));
      }
    }
  }
}

TEST(CpuLinear, EveryLengthOfKThatAStepASliceOrABlockCanEndIn) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& w : all_weight_specs()) {
    for (const std::int64_t k :
         {1, 2, 15, 16, 17, 31, 32, 33, 127, 128, 129, 144, 1023, 1024, 1025, 1040, 2048, 2880}) {
      if (is_packed(w.format) && k % w.block_cols != 0) continue;
      for (const std::int64_t m : {1, 8}) {
        const LinearCase c{w.name + " k " + std::to_string(k) + " m " + std::to_string(m),
                           m,
                           6,
                           k,
                           1,
                           f32_spec(),
                           w.padded(2)};
        expect_the_trees_bits(variants, c, make_inputs(c));
      }
    }
  }
}

TEST(CpuLinear, PartsOfEveryLengthAndEveryActivationFormat) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& x : activation_specs()) {
    for (const MatrixSpec& w : all_weight_specs()) {
      for (const std::int64_t k : {16, 17, 24, 32, 96}) {
        if (is_packed(w.format) && k % w.block_cols != 0) continue;
        if (is_packed(x.format) && 2 * k % x.block_cols != 0) continue;
        for (const std::int64_t m : {1, 9}) {
          const LinearCase c{
              x.name + " by " + w.name + " k " + std::to_string(k), m, 33, k, 2, x, w, bf16_spec()};
          expect_the_trees_bits(variants, c, make_inputs(c));
        }
      }
    }
  }
}

TEST(CpuLinear, MoreTokensThanAWave) {
  const std::vector<NamedBackend> variants = cpu_variants();
  const LinearCase c{"wave", 515, 5, 32, 1, bf16_spec(), mxfp4_spec()};
  expect_the_trees_bits(variants, c, make_inputs(c));
}

// E4M3 NaN codes, zeros of both signs, subnormals and every other code, under scales up to the ends
// of FP32; E2M1 under every block scale.
TEST(CpuLinear, EveryCodeUnderEveryScale) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (MatrixSpec w : all_weight_specs()) {
    if (!is_quantized(w.format)) continue;
    const bool f32_scales = w.scale_dtype == DType::kF32;
    if (is_packed(w.format)) w.block_rows = 1;
    const LinearCase c{w.name, 2, 256, 320, 1, f32_spec(), w};
    LinearInputs in = make_inputs(c);
    Random random(7);
    for (std::uint8_t& byte : in.w.data) byte = static_cast<std::uint8_t>(random.bits());
    for (std::size_t i = 0; i < in.w.block_scales.size(); i += f32_scales ? 4 : 1) {
      const float scale =
          static_cast<float>(std::ldexp(random.uniform(1, 2), random.index(250) - 125));
      if (f32_scales) {
        std::memcpy(&in.w.block_scales[i], &scale, 4);
      } else {
        in.w.block_scales[i] = static_cast<std::uint8_t>(i);
      }
    }
    for (const std::int64_t m : {1, 8}) {
      LinearCase sized = c;
      sized.m = m;
      in.x = HostMatrix(c.x, m, c.k, normal_values(3, m * c.k));
      expect_the_trees_bits(variants, sized, in);
    }
  }
}

TEST(CpuLinear, ANanWeightMakesItsOutputTheQuietNanAndLeavesTheOthers) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const std::int64_t idx : {0, 15, 16, 128, 143, 144, 146}) {
    for (const std::int64_t m : {1, 7}) {
      const LinearCase c{"nan " + std::to_string(idx),    m, 5, 147, 1, f32_spec(),
                         fp8_spec(128, 128, DType::kE8M0)};
      LinearInputs in = make_inputs(c);
      in.w.data[static_cast<std::size_t>(2 * 147 + idx)] = idx % 2 == 0 ? 0x7F : 0xFF;
      expect_the_trees_bits(variants, c, in);
    }
  }
}

TEST(CpuLinear, InfiniteAndNanScalesDoNotReachThePadding) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const float scale : {std::numeric_limits<float>::infinity(), std::nanf(""), 3e38f}) {
    for (const std::int64_t m : {1, 7}) {
      const LinearCase c{"scale", m, 3, 130, 1, f32_spec(), fp8_spec(1, 128, DType::kF32)};
      LinearInputs in = make_inputs(c);
      std::memcpy(&in.w.block_scales[4], &scale, 4);
      expect_the_trees_bits(variants, c, in);
    }
  }
}

TEST(CpuBackend, RefusesAnInstructionSetThatIsNotThereAndNamesTheOthers) {
  try {
    CpuBackend backend({1, "AVX9"});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupportedDevice);
    EXPECT_NE(std::string(error.what()).find("AVX9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find(cpu_instruction_sets().back()), std::string::npos);
  }
}

}  // namespace
}  // namespace dsv4::testing
