// The routed experts of a layer at Flash's shape: six experts for one token, or a few rows each.
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "bench/weights.h"
#include "ops/moe.h"
#include "testing/generators.h"

namespace dsv4::bench {
namespace {

constexpr std::int64_t kHidden = 4096, kInter = 2048;
constexpr int kExpertsPerToken = 6;

// `tokens` tokens, all with the same six experts of the set; call i takes the next six.
void bench_down_and_gate_up(Bench& bench, const testing::MatrixSpec& spec, std::int64_t tokens) {
  const std::string format(to_string(spec.format));
  Benchmark gate_up{"gate_up", "6x4096x4096", format, tokens};
  Benchmark down{"down", "6x4096x2048", format, tokens};
  if (!bench.wants(gate_up) && !bench.wants(down)) return;
  const double expert_bytes = RandomWeights::bytes(spec, kInter, kHidden);
  const auto sets = static_cast<std::int64_t>(static_cast<double>(bench.options().bytes) /
                                              (3 * kExpertsPerToken * expert_bytes)) +
                    1;
  const RandomWeights gate(spec, kInter, kHidden, sets * kExpertsPerToken);
  const RandomWeights up(spec, kInter, kHidden, sets * kExpertsPerToken);
  const RandomWeights down_weights(spec, kHidden, kInter, sets * kExpertsPerToken);
  const std::int64_t rows = tokens * kExpertsPerToken;
  // Small, so that gates are of size one: silu of -90 is subnormal, and those are slow to multiply.
  const std::vector<float> x = testing::normal_values(6, tokens * kHidden, 0.01);
  std::vector<float> activated(static_cast<std::size_t>(rows * kInter));
  std::vector<float> out(static_cast<std::size_t>(rows * kHidden));
  std::vector<std::int32_t> offsets, row_tokens;
  for (int e = 0; e <= kExpertsPerToken; ++e)
    offsets.push_back(static_cast<std::int32_t>(e * tokens));
  for (std::int64_t r = 0; r < rows; ++r)
    row_tokens.push_back(static_cast<std::int32_t>(r % tokens));
  std::vector<MatrixView> gates(kExpertsPerToken), ups(kExpertsPerToken), downs(kExpertsPerToken);
  const auto choose = [&](std::int64_t call_idx) {
    for (int e = 0; e < kExpertsPerToken; ++e) {
      const std::int64_t idx = call_idx % sets * kExpertsPerToken + e;
      gates[e] = gate.view(idx);
      ups[e] = up.view(idx);
      downs[e] = down_weights.view(idx);
    }
  };
  choose(0);

  CpuBackend& backend = bench.backend();
  ExpertGateUpParams gate_up_params;
  gate_up_params.x = f32_matrix(x.data(), tokens, kHidden);
  gate_up_params.row_tokens = row_tokens.data();
  gate_up_params.gate_weights = gates.data();
  gate_up_params.up_weights = ups.data();
  gate_up_params.num_experts = kExpertsPerToken;
  gate_up_params.expert_offsets = offsets.data();
  gate_up_params.out = f32_matrix(activated.data(), rows, kInter);
  ExpertDownParams down_params;
  down_params.x = f32_matrix(static_cast<const float*>(activated.data()), rows, kInter);
  down_params.down_weights = downs.data();
  down_params.num_experts = kExpertsPerToken;
  down_params.expert_offsets = offsets.data();
  down_params.out = f32_matrix(out.data(), rows, kHidden);
  const DeviceBuffer workspace = backend.allocate(
      std::max(backend.workspace_bytes(gate_up_params), backend.workspace_bytes(down_params)));
  const OpContext context{{}, workspace.data(), workspace.size_bytes()};

  gate_up.bytes = 2 * kExpertsPerToken * expert_bytes;
  gate_up.flops = 4.0 * static_cast<double>(rows) * kHidden * kInter;
  gate_up.call = [&](std::int64_t call_idx) {
    choose(call_idx);
    backend.run(gate_up_params, context);
  };
  down.bytes = kExpertsPerToken * expert_bytes;
  down.flops = 2.0 * static_cast<double>(rows) * kHidden * kInter;
  down.call = [&](std::int64_t call_idx) {
    choose(call_idx);
    backend.run(down_params, context);
  };
  gate_up.check = [&]() -> std::string {
    gate_up.call(0);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t row = i * 5 % rows;
      const std::int64_t n = i * 331 % kInter;
      const int e = static_cast<int>(row / tokens);
      const std::string wrong =
          compare_swiglu(x.data() + row % tokens * kHidden, gates[e], ups[e], n,
                         activated[static_cast<std::size_t>(row * kInter + n)]);
      if (!wrong.empty()) return wrong;
    }
    return {};
  };
  down.check = [&]() -> std::string {
    gate_up.call(0);
    down.call(0);
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t row = i * 5 % rows;
      const std::int64_t n = i * 613 % kHidden;
      const std::string wrong = compare_dot(activated.data() + row * kInter, downs[row / tokens], n,
                                            out[static_cast<std::size_t>(row * kHidden + n)]);
      if (!wrong.empty()) return wrong;
    }
    return {};
  };
  bench.run(gate_up);
  bench.run(down);
}

}  // namespace

void bench_moe(Bench& bench) {
  for (const testing::MatrixSpec& spec : {testing::mxfp4_spec(), testing::nvfp4_spec()}) {
    for (const std::int64_t tokens : {1, 4, 32}) bench_down_and_gate_up(bench, spec, tokens);
  }
}

}  // namespace dsv4::bench
