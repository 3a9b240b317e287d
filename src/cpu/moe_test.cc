// Experts and quantisation of the CPU backend: the same bits from every instruction set, number of
// threads and batch; what the contract leaves no room in, with the reference's bits.
#include "ops/moe.h"

#include <gtest/gtest.h>

#include "cpu/cpu_test_backends.h"
#include "testing/cases/quantize_cases.h"
#include "testing/comparator.h"

namespace dsv4::testing {
namespace {

// `rows_of_expert` rows for each expert, gate_up then down; returns both outputs.
std::vector<std::uint8_t> run_experts(Backend& backend, const MatrixSpec& w, const MatrixSpec& x,
                                      const std::vector<std::int32_t>& rows_of_expert,
                                      std::int64_t hidden, std::int64_t inter) {
  std::vector<std::int32_t> offsets = {0};
  std::vector<DeviceMatrix> gate, up, down;
  std::vector<MatrixView> gate_views, up_views, down_views;
  for (std::size_t e = 0; e < rows_of_expert.size(); ++e) {
    offsets.push_back(offsets.back() + rows_of_expert[e]);
    gate.emplace_back(backend,
                      HostMatrix(w, inter, hidden, normal_values(3 * e, inter * hidden, 0.1)));
    up.emplace_back(backend,
                    HostMatrix(w, inter, hidden, normal_values(3 * e + 1, inter * hidden, 0.1)));
    down.emplace_back(backend,
                      HostMatrix(w, hidden, inter, normal_values(3 * e + 2, hidden * inter, 0.1)));
    gate_views.push_back(gate.back().view());
    up_views.push_back(up.back().view());
    down_views.push_back(down.back().view());
  }
  const std::int64_t rows = offsets.back();
  const DeviceMatrix x_matrix(backend,
                              HostMatrix(x, rows, hidden, normal_values(7, rows * hidden)));
  const DeviceMatrix activated(backend, HostMatrix(f32_spec(), rows, inter));
  const DeviceMatrix out(backend, HostMatrix(bf16_spec(), rows, hidden));
  const DeviceArray<std::int32_t> device_offsets(backend, offsets);
  ExpertGateUpParams gate_up;
  gate_up.x = x_matrix.view();
  gate_up.gate_weights = gate_views.data();
  gate_up.up_weights = up_views.data();
  gate_up.num_experts = static_cast<int>(rows_of_expert.size());
  gate_up.expert_offsets = device_offsets.data();
  gate_up.swiglu_limit = 2;
  gate_up.out = activated.mutable_view();
  run_op(backend, gate_up);
  ExpertDownParams down_params;
  down_params.x = activated.view();
  down_params.down_weights = down_views.data();
  down_params.num_experts = gate_up.num_experts;
  down_params.expert_offsets = device_offsets.data();
  down_params.out = out.mutable_view();
  run_op(backend, down_params);
  std::vector<std::uint8_t> bytes = activated.read().data;
  const std::vector<std::uint8_t> out_bytes = out.read().data;
  bytes.insert(bytes.end(), out_bytes.begin(), out_bytes.end());
  return bytes;
}

TEST(CpuExperts, SameBitsFromEveryInstructionSetAndNumberOfThreads) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& w : weight_specs()) {
    for (const MatrixSpec& x : activation_specs()) {
      const auto run = [&](const NamedBackend& variant) {
        return run_experts(*variant.backend, w, x, {1, 0, 7, 3, 0, 25}, 96, 160);
      };
      const std::vector<std::uint8_t> first = run(variants.front());
      for (const NamedBackend& variant : variants) {
        SCOPED_TRACE(w.name + " by " + x.name + " on " + variant.name);
        EXPECT_SAME_BITS(run(variant), first);
      }
    }
  }
}

// An expert's first rows are the same when it has more of them, in the same wave or the next.
TEST(CpuExperts, ARowDoesNotDependOnTheRowsBehindIt) {
  const std::vector<NamedBackend> variants = cpu_variants();
  for (const MatrixSpec& w : {mxfp4_spec(), nvfp4_spec(), bf16_spec()}) {
    const std::int64_t inter_bytes = 64 * sizeof(float);
    for (const NamedBackend& variant : variants) {
      SCOPED_TRACE(w.name + " on " + variant.name);
      const auto rows_of = [&](std::int32_t rows) {
        std::vector<std::uint8_t> bytes =
            run_experts(*variant.backend, w, bf16_spec(), {rows}, 64, 64);
        bytes.resize(static_cast<std::size_t>(inter_bytes));
        return bytes;
      };
      const std::vector<std::uint8_t> alone = rows_of(1);
      for (const std::int32_t rows : {2, 6, 7, 60, 253, 600})
        EXPECT_SAME_BITS(rows_of(rows), alone);
    }
  }
}

// Bits at random: every exponent, subnormals, NaN and infinities in most rows.
TEST(CpuQuantize, ReferenceBytesForEveryInput) {
  const std::vector<NamedBackend> variants = cpu_variants();
  Random random(5);
  for (QuantizeCase c : quantize_cases()) {
    for (const int kind : {0, 1, 2}) {
      c.name += kind == 0 ? " cases" : (kind == 1 ? " bits" : " one block");
      HostMatrix x(c.x, c.rows, c.cols, quantize_values(c));
      if (kind > 0) {
        // Exponents within a few of each other per matrix, or any at all.
        std::vector<float> values(static_cast<std::size_t>(c.rows * c.cols));
        for (float& value : values) {
          const auto bits = static_cast<std::uint32_t>(random.bits());
          value = f32_from_bits(kind == 1 ? bits : (bits & 0x81FFFFFFu) | 0x3E000000u);
        }
        x = HostMatrix(c.x, c.rows, c.cols, values);
      }
      // The backend first: reference bytes left in recycled memory would pass.
      std::vector<HostMatrix> got;
      for (const NamedBackend& variant : variants) {
        got.push_back(run_quantize(*variant.backend, c, x));
      }
      const HostMatrix want = run_quantize(reference_backend(), c, x);
      for (std::size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(c.name + " on " + variants[i].name);
        EXPECT_SAME_BITS(got[i].data, want.data);
        EXPECT_SAME_BITS(got[i].block_scales, want.block_scales);
        EXPECT_SAME_BITS(got[i].global_scales, want.global_scales);
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::testing
