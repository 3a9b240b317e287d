// Rows to and from NVFP4, MXFP4 and FP8 for every instruction set: against numerics/ bit by bit,
// and large matrices, which are taken in another way than small ones, against the reference.
#include "ops/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cpu/cpu_test_backends.h"
#include "cpu/decode_rows.h"
#include "cpu/encode.h"
#include "cpu/encode_rows.h"
#include "cpu/quantize_test_rows.h"
#include "cpu/targets.h"
#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"
#include "testing/cases/dequantize_cases.h"
#include "testing/cases/quantize_cases.h"
#include "testing/comparator.h"
#include "testing/golden_codecs.h"

namespace dsv4::testing {
namespace {

// Blocks that start with the first BF16 of a block scale and hold all BF16 up to there, from zero
// on, so that every value meets every divisor that it can meet.
std::vector<std::uint16_t> every_value_under_every_scale(float g) {
  std::vector<std::uint16_t> x;
  int last_scale = -1;
  for (std::uint16_t largest = 0; largest < 0x7F80; ++largest) {
    const int scale = nvfp4_block_scale(decode_bf16(largest), g);
    if (scale == last_scale) continue;
    last_scale = scale;
    // Far below the divisor all codes are 0.
    const int first = std::max(0, largest - 9 * 128);
    for (int bits = first; bits <= largest; ++bits) {
      if (x.size() % 16 == 0) x.push_back(largest);
      x.push_back(static_cast<std::uint16_t>(bits | (bits % 2 == 0 ? 0x8000 : 0)));
    }
    while (x.size() % 16 != 0) x.push_back(0);
  }
  return x;
}

TEST(CpuQuantize, EveryBf16ValueUnderEveryBlockScale) {
  for (const float g : {1.0f, 3.1e-4f, 1e-38f, 3e-43f, 5e37f}) {
    SCOPED_TRACE(g);
    for (const E2m1Rounding rounding : kRoundings) {
      expect_numerics_bytes(every_value_under_every_scale(g), g, rounding);
    }
  }
}

// Values past the largest block scale, which saturate; blocks that vanish, signs among them.
TEST(CpuQuantize, EveryBf16ValueBesideItsNeighbours) {
  std::vector<std::uint16_t> x;
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    x.push_back((bits & 0x7F80) == 0x7F80 ? 0 : static_cast<std::uint16_t>(bits));
  }
  for (const float g : {1.0f, 1e-38f, 1.5e-45f, 5e37f}) {
    for (const E2m1Rounding rounding : kRoundings) expect_numerics_bytes(x, g, rounding);
  }
}

TEST(CpuQuantize, ManyBlocksWhoseBestScaleIsNotObvious) {
  std::vector<std::uint16_t> x;
  for (const float value : normal_values(41, 1 << 18)) x.push_back(encode_bf16(value));
  for (const float g : {0.003f, 0.02f}) {
    for (const E2m1Rounding rounding : kRoundings) expect_numerics_bytes(x, g, rounding);
  }
}

TEST(CpuQuantize, RowsOfAnyNumberOfBlocksWithNanAndInfinityAnywhere) {
  const std::vector<float> values = heavy_tailed_values(3, 35 * 16);
  for (std::size_t blocks = 0; blocks <= 35; ++blocks) {
    std::vector<std::uint16_t> x;
    for (std::size_t i = 0; i < 16 * blocks; ++i) x.push_back(encode_bf16(values[i]));
    expect_numerics_bytes(x, 0.002f, E2m1Rounding::kNearestEven);
    for (const std::uint16_t bad : {0x7F80, 0xFF80, 0x7F81, 0xFFC0}) {
      if (blocks == 0) break;
      std::vector<std::uint16_t> spoiled = x;
      spoiled[bad * blocks % spoiled.size()] = bad;
      expect_numerics_bytes(spoiled, 0.002f, E2m1Rounding::kNearestEven);
    }
  }
}

TEST(CpuQuantize, GoldenTensorsOnEveryInstructionSet) {
  const GoldenTensors golden(DSV4_SOURCE_DIR "/tests/data/golden/codecs/nvfp4.safetensors");
  for (const std::string name : {"normal", "heavy", "ties", "wide", "zeros_tiny_outliers"}) {
    SCOPED_TRACE(name);
    const auto x = golden.values<std::uint16_t>(name + ".x", "BF16");
    const float g = golden.values<float>(name + ".global_scale", "F32")[0];
    const auto codes = golden.values<std::uint8_t>(name + ".codes", "U8");
    const auto scales = golden.values<std::uint8_t>(name + ".block_scales", "F8_E4M3");
    const cpu::Nvfp4Boundaries boundaries(g, E2m1Rounding::kNearestEven);
    for (const std::int64_t target : all_targets()) {
      SCOPED_TRACE(hwy::TargetName(target));
      Nvfp4Row rows(x.size());
      cpu::encode_row_kernels(target).encode_nvfp4(x.data(), static_cast<std::int64_t>(x.size()),
                                                   boundaries, rows.codes.data(),
                                                   rows.block_scales.data());
      EXPECT_SAME_BITS(rows.codes, codes);
      EXPECT_SAME_BITS(rows.block_scales, scales);
      Nvfp4Row blocks(x.size());
      std::vector<float> values;
      for (const std::uint16_t bits : x) values.push_back(decode_bf16(bits));
      cpu::encode_kernels(target).encode_nvfp4_blocks(
          values.data(), static_cast<std::int64_t>(x.size()), g, blocks.codes.data(),
          blocks.block_scales.data(), E2m1Rounding::kNearestEven);
      EXPECT_SAME_BITS(blocks.codes, codes);
      EXPECT_SAME_BITS(blocks.block_scales, scales);
    }
  }
}

// Rows of one block to several tiles, with a block that is not finite in any place, under global
// scales at both ends of FP32.
TEST(CpuQuantize, Fp32BlocksOnEveryInstructionSet) {
  const std::vector<float> values = heavy_tailed_values(32, 1 << 14);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float g : {0.01f, 1e-38f, 1e-44f, 2e38f, 0.0f}) {
    for (const E2m1Rounding rounding : kRoundings) {
      std::vector<float> x = values;
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] *= static_cast<float>(g / 0.01) * (i / 16 % 9 == 0 ? 1e-5f : 1);
        if (i / 16 % 23 == 5) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
        if (i % 5003 == 5002) x[i] = -infinity;
      }
      Nvfp4Row want(x.size());
      for (std::size_t i = 0; i < x.size(); i += 16) {
        want.block_scales[i / 16] =
            encode_nvfp4_block(x.data() + i, g, want.codes.data() + i / 2, rounding);
      }
      for (const std::int64_t target : all_targets()) {
        SCOPED_TRACE(hwy::TargetName(target));
        std::size_t begin = 0;
        Nvfp4Row got(x.size());
        for (std::size_t blocks = 1; begin < x.size(); blocks = blocks % 37 + 1) {
          const std::size_t n = std::min(16 * blocks, x.size() - begin);
          cpu::encode_kernels(target).encode_nvfp4_blocks(
              x.data() + begin, static_cast<std::int64_t>(n), g, got.codes.data() + begin / 2,
              got.block_scales.data() + begin / 16, rounding);
          begin += n;
        }
        EXPECT_SAME_BITS(got.codes, want.codes);
        EXPECT_SAME_BITS(got.block_scales, want.block_scales);
      }
    }
  }
}

TEST(CpuQuantize, AmaxOfBf16AtEveryPlace) {
  for (const std::int64_t target : all_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const auto amax_of = cpu::encode_row_kernels(target).amax;
    EXPECT_EQ(amax_of(nullptr, 0), 0);
    for (std::size_t n = 1; n < 300; n += n < 70 ? 1 : 37) {
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<std::uint16_t> x(n, 0x8000);
        for (const std::uint16_t largest : {0x0001, 0x8001, 0xFF80, 0x7FC1}) {
          x[at] = largest;
          ASSERT_EQ(amax_of(x.data(), static_cast<std::int64_t>(n)), largest & 0x7FFF) << n << at;
        }
      }
    }
  }
}

std::uint16_t bf16_ref(float x) { return std::isnan(x) ? 0x7FC0 : encode_bf16(x); }

TEST(CpuDequantize, E2m1UnderEveryBlockScaleAndAnyNumberOfBlocks) {
  const std::vector<float> globals = {1.0f, 0.37f, 1e-41f, 3e38f, 0.0f, std::nanf("")};
  for (const Format format : {Format::kMxfp4, Format::kNvfp4}) {
    const int block = format == Format::kMxfp4 ? 32 : 16;
    for (const float g : globals) {
      const cpu::Bf16Table table(format, g);
      for (const std::size_t blocks : {1, 2, 3, 7, 256}) {
        std::vector<std::uint8_t> codes, scales;
        Random random(5);
        for (std::size_t i = 0; i < blocks * block / 2; ++i) {
          codes.push_back(static_cast<std::uint8_t>(random.bits()));
        }
        for (std::size_t i = 0; i < blocks; ++i)
          scales.push_back(static_cast<std::uint8_t>(i + 250));
        std::vector<std::uint16_t> want, got(2 * codes.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::uint8_t code = unpack_e2m1(codes.data(), static_cast<std::int64_t>(i));
          const std::uint8_t scale = scales[i / block];
          want.push_back(bf16_ref(format == Format::kMxfp4 ? decode_mxfp4(code, scale)
                                                           : decode_nvfp4(code, scale, g)));
        }
        for (const std::int64_t target : all_targets()) {
          SCOPED_TRACE(hwy::TargetName(target));
          cpu::decode_row_kernels(target).decode_e2m1(
              codes.data(), scales.data(), static_cast<std::int64_t>(got.size()),
              format == Format::kMxfp4 ? 1 : 0, table.data(), got.data());
          EXPECT_SAME_BITS(got, want);
        }
      }
    }
  }
}

TEST(CpuDequantize, EveryE4m3CodeUnderAnyScaleAndLength) {
  std::vector<std::uint8_t> codes;
  for (int i = 0; i < 256; ++i) {
    if ((i & 0x7F) != 0x7F) codes.push_back(static_cast<std::uint8_t>(i));
  }
  for (const std::int64_t target : all_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const cpu::DecodeRowKernels& kernels = cpu::decode_row_kernels(target);
    for (const float scale :
         {1.0f, -1.0f, 0.1f, 0x1p-117f, 0x1p-118f, 0x1p-127f, 1e-44f, 0x1p118f, 0x1.fp118f, 0.0f}) {
      for (std::size_t n = 0; n <= codes.size(); n += n < 40 ? 1 : 53) {
        std::vector<std::uint16_t> want, got(n);
        for (std::size_t i = 0; i < n; ++i) want.push_back(bf16_ref(decode_e4m3(codes[i]) * scale));
        kernels.decode_e4m3(codes.data(), static_cast<std::int64_t>(n), scale, got.data());
        ASSERT_TRUE(compare_bits(got, want)) << scale << " " << n;
      }
    }
    for (std::size_t n = 1; n < 200; n += 7) {
      for (std::size_t at = 0; at < n; ++at) {
        std::vector<std::uint8_t> with_nan(n, 0x7E);
        EXPECT_FALSE(kernels.has_e4m3_nan(with_nan.data(), static_cast<std::int64_t>(n)));
        with_nan[at] = at % 2 == 0 ? 0x7F : 0xFF;
        EXPECT_TRUE(kernels.has_e4m3_nan(with_nan.data(), static_cast<std::int64_t>(n)));
      }
    }
  }
}

TEST(CpuDequantize, EveryPlaceOfAnFp32ToBf16) {
  std::vector<float> x;
  std::vector<std::uint16_t> want;
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      x.push_back(f32_from_bits(upper << 16 | lower));
      want.push_back(bf16_ref(x.back()));
    }
  }
  for (const std::int64_t target : all_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    std::vector<std::uint16_t> got(x.size());
    cpu::decode_row_kernels(target).round_to_bf16(x.data(), static_cast<std::int64_t>(x.size() - 5),
                                                  got.data());
    cpu::decode_row_kernels(target).round_to_bf16(x.data() + x.size() - 5, 5,
                                                  got.data() + x.size() - 5);
    EXPECT_SAME_BITS(got, want);
  }
}

// Gathered rows of BF16, some inactive, one global scale that is copied to every row.
TEST(CpuQuantize, LargeMatricesAsTheReference) {
  QuantizeCase c{"large", 150, 2048 + 48, bf16_spec().padded(7), nvfp4_spec(true).padded(4)};
  c.static_global_scales = {0.002f};
  for (std::int32_t row = 0; row < 150; ++row) c.row_idx.push_back(149 - row / 2);
  c.row_count = 140;
  const HostMatrix x(c.x, c.rows, c.cols, quantize_values(c));
  for (const auto& [g, four_over_six] : {std::pair{0.002f, false}, {0.003f, true}, {0.0f, false}}) {
    c.four_over_six = four_over_six;
    c.static_global_scales = {g};
    const HostMatrix want = run_quantize(reference_backend(), c, x);
    for (const NamedBackend& variant : cpu_variants()) {
      SCOPED_TRACE(variant.name);
      const HostMatrix got = run_quantize(*variant.backend, c, x);
      EXPECT_SAME_BITS(got.data, want.data);
      EXPECT_SAME_BITS(got.block_scales, want.block_scales);
      EXPECT_SAME_BITS(got.global_scales, want.global_scales);
    }
  }
}

TEST(CpuDequantize, LargeMatricesAsTheReference) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& spec : {mxfp4_spec(), nvfp4_spec(), nvfp4_spec(true),
                                 fp8_spec(128, 128, DType::kE8M0), fp8_spec(2, 40, DType::kF32)}) {
    for (const bool any_bits : {false, true}) {
      const DequantizeCase c{spec.name, 260, 512, spec.padded(6), any_bits};
      const HostMatrix x = dequantize_input(c);
      for (const MatrixSpec& out : {f32_spec(), bf16_spec().padded(3)}) {
        const HostMatrix want = run_dequantize(reference_backend(), x, out);
        for (const NamedBackend& variant : variants) {
          SCOPED_TRACE(c.name + " to " + out.name + " on " + variant.name);
          EXPECT_SAME_BITS(run_dequantize(*variant.backend, x, out).data, want.data);
        }
      }
      const float amax = run_amax(reference_backend(), x);
      for (const NamedBackend& variant : variants) {
        EXPECT_SAME_BITS(std::vector{run_amax(*variant.backend, x)}, std::vector{amax});
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::testing
