// The two expert GEMMs on every backend, each alone and with packed weights where the backend packs
// them, against the formula in FP64: shapes, formats, row counts. Unusual values:
// expert_gemm_values_test.cc; the same bits again: expert_gemm_bits_test.cc.
#include <gtest/gtest.h>

#include <algorithm>

#include "numerics/bf16.h"
#include "testing/cases/expert_gemm_cases.h"
#include "testing/expert_gemm_judge.h"

namespace dsv4::testing {
namespace {

TEST_EACH_BACKEND(ExpertGemm, GateUpFollowsTheFormula) {
  for (const ExpertGemmCase& c : expert_gemm_cases()) {
    SCOPED_TRACE(c.name);
    const ExpertGemmInputs in(c);
    expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run());
  }
}

TEST_EACH_BACKEND(ExpertGemm, DownFollowsTheFormula) {
  for (const ExpertGemmCase& c : down_gemm_cases()) {
    SCOPED_TRACE(c.name);
    const ExpertGemmInputs in(c);
    expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run());
  }
}

// Over more columns than any ring of stages holds at once.
TEST_EACH_BACKEND(ExpertGemm, ManyExpertsOfFewRows) {
  for (const MatrixSpec& weights : {nvfp4_spec(), mxfp4_spec()}) {
    for (const MatrixSpec& out : {bf16_spec(), f32_spec(), nvfp4_spec(true)}) {
      for (const std::int64_t k : {1568, 1600}) {  // in whole chunks of 64, and not
        for (const bool gate_up : {true, false}) {
          if (!gate_up && out.format == Format::kNvfp4) continue;
          ExpertGemmCase c;
          c.gate_up = gate_up;
          c.k = k;
          c.n = 272;
          c.weight_spec = weights;
          c.out_spec = out;
          c.expert_rows = few_rows_each(backend.uses_host_memory() ? 8 : 32);
          SCOPED_TRACE(weights.name + (gate_up ? " gate_up " : " down ") + out.name);
          const ExpertGemmInputs in(c);
          expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run());
        }
      }
    }
  }
}

// The released models' sizes, few experts; on sampled outputs, the first and the last row of every
// expert and the first and the last neurons among them.
void expect_follows_at(Backend& backend, std::int64_t hidden, std::int64_t inter,
                       const MatrixSpec& weight_spec) {
  for (const bool gate_up : {true, false}) {
    ExpertGemmCase c;
    SCOPED_TRACE(gate_up ? "gate_up" : "down");
    c.gate_up = gate_up;
    c.k = gate_up ? hidden : inter;
    c.n = gate_up ? inter : hidden;
    c.weight_spec = weight_spec;
    c.swiglu_limit = 10;
    c.expert_rows = {1, 0, 2};
    if (!backend.uses_host_memory()) c.expert_rows = {1, 0, 130, 7, 257};
    for (const MatrixSpec& out : {bf16_spec(), nvfp4_spec(true)}) {
      if (!gate_up && out.format == Format::kNvfp4) continue;
      SCOPED_TRACE(out.name);
      c.out_spec = out;
      const ExpertGemmInputs in(c);
      expect_follows_formula(c, in, DeviceExpertGemm(backend, c, in).run(), {8, 7});
    }
  }
}

TEST_EACH_BACKEND(ExpertGemm, FlashInNvfp4) {
  expect_follows_at(backend, 4096, 2048, nvfp4_spec());
}
TEST_EACH_BACKEND(ExpertGemm, FlashInMxfp4) {
  expect_follows_at(backend, 4096, 2048, mxfp4_spec());
}
TEST_EACH_BACKEND(ExpertGemm, ProInNvfp4) { expect_follows_at(backend, 7168, 3072, nvfp4_spec()); }
TEST_EACH_BACKEND(ExpertGemm, ProInMxfp4) { expect_follows_at(backend, 7168, 3072, mxfp4_spec()); }

// The judge itself: what a wrong kernel would give is refused.
TEST(ExpertGemmJudge, RefusesWrongOutputs) {
  ExpertGemmCase c;
  c.spare_rows = 2;
  for (const bool gate_up : {true, false}) {
    for (const MatrixSpec& out : {f32_spec(), bf16_spec(), nvfp4_spec(true)}) {
      if (!gate_up && out.format == Format::kNvfp4) continue;
      SCOPED_TRACE(out.name);
      c.gate_up = gate_up;
      c.out_spec = out;
      const ExpertGemmInputs in(c);
      const HostMatrix right = DeviceExpertGemm(reference_backend(), c, in).run();
      EXPECT_EQ(first_difference(c, in, right), "");
      const auto wrong = [&](auto change) {
        HostMatrix m = right;
        change(m);
        return first_difference(c, in, m);
      };
      const std::int64_t row_bytes = data_bytes(out.format, c.n);
      // Two rows of one expert in each other's place.
      EXPECT_NE(wrong([&](HostMatrix& m) {
                  std::swap_ranges(m.data.begin(), m.data.begin() + row_bytes,
                                   m.data.begin() + row_bytes);
                }),
                "");
      EXPECT_NE(wrong([&](HostMatrix& m) { m.data[5 * row_bytes + 17] ^= 0x20; }), "");
      EXPECT_NE(wrong([&](HostMatrix& m) { m.data.back() = 0; }), "") << "a spare row";
      if (out.format != Format::kNvfp4) continue;
      EXPECT_NE(wrong([&](HostMatrix& m) { m.block_scales[c.n / 16 * 3 + 1] += 1; }), "");
      EXPECT_NE(wrong([&](HostMatrix& m) { m.global_scales[4] *= 1.0000001f; }), "");
    }
  }
}

// The output is rounded once, not also before its row weight.
TEST(ExpertGemmJudge, RefusesRowWeightsThatComeAfterRounding) {
  ExpertGemmCase c;
  const ExpertGemmInputs in(c);
  c.weighted = false;
  HostMatrix got = DeviceExpertGemm(reference_backend(), c, in).run();
  auto* const values = reinterpret_cast<std::uint16_t*>(got.data.data());
  for (std::int64_t i = 0; i < c.rows() * c.n; ++i) {
    values[i] = encode_bf16(decode_bf16(values[i]) * in.row_weights[i / c.n]);
  }
  EXPECT_NE(first_difference(c, in, got), "");
}

}  // namespace
}  // namespace dsv4::testing
