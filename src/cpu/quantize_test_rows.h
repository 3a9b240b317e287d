// quantize_test_rows.h: rows to NVFP4 by numerics/ and by the kernels of every instruction set, for
// the tests of both ways to choose a block scale.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cpu/cpu_test_backends.h"
#include "cpu/encode_rows.h"
#include "cpu/targets.h"
#include "numerics/bf16.h"
#include "numerics/nvfp4.h"

namespace dsv4::testing {

inline constexpr E2m1Rounding kRoundings[] = {E2m1Rounding::kNearestEven, E2m1Rounding::kHalfStep};

inline std::vector<std::int64_t> all_targets() {
  std::vector<std::int64_t> all;
  const std::int64_t usable = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_BASELINE_SCALAR;
  for (std::int64_t rest = usable; rest != 0; rest &= rest - 1) all.push_back(rest & -rest);
  return all;
}

struct Nvfp4Row {
  explicit Nvfp4Row(std::size_t n) : codes(n / 2), block_scales(n / 16) {}
  std::vector<std::uint8_t> codes, block_scales;
};

template <auto kEncode>
Nvfp4Row encode_with_numerics(const std::vector<std::uint16_t>& x, float g, E2m1Rounding rounding) {
  Nvfp4Row row(x.size());
  for (std::size_t begin = 0; begin < x.size(); begin += 16) {
    float values[16];
    for (std::size_t i = 0; i < 16; ++i) values[i] = decode_bf16(x[begin + i]);
    row.block_scales[begin / 16] = kEncode(values, g, row.codes.data() + begin / 2, rounding);
  }
  return row;
}

// On every instruction set, as one row, both kernels.
inline void expect_numerics_bytes(const std::vector<std::uint16_t>& x, float g,
                                  E2m1Rounding rounding) {
  const Nvfp4Row plain = encode_with_numerics<&encode_nvfp4_block>(x, g, rounding);
  const Nvfp4Row better = encode_with_numerics<&encode_nvfp4_block_four_over_six>(x, g, rounding);
  const cpu::Nvfp4Boundaries boundaries(g, rounding);
  const cpu::Nvfp4Values values(g);
  const auto n = static_cast<std::int64_t>(x.size());
  for (const std::int64_t target : all_targets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    const cpu::EncodeRowKernels& kernels = cpu::encode_row_kernels(target);
    Nvfp4Row got(x.size());
    kernels.encode_nvfp4(x.data(), n, boundaries, got.codes.data(), got.block_scales.data());
    EXPECT_EQ(got.block_scales, plain.block_scales);
    EXPECT_EQ(got.codes, plain.codes);
    if (kernels.encode_nvfp4_four_over_six == nullptr) continue;
    kernels.encode_nvfp4_four_over_six(x.data(), n, boundaries, values, got.codes.data(),
                                       got.block_scales.data());
    EXPECT_EQ(got.block_scales, better.block_scales);
    EXPECT_EQ(got.codes, better.codes);
  }
}

}  // namespace dsv4::testing
