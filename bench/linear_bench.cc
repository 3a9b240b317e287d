// Linear layers: one token (bound by the weights' bytes), a few, and a prompt (bound by FMAs).
#include <fmt/format.h>

#include <algorithm>

#include "bench/bench.h"
#include "bench/weights.h"
#include "ops/linear.h"
#include "testing/generators.h"

namespace dsv4::bench {
namespace {

using testing::MatrixSpec;

struct LinearBench {
  LinearBench(Bench& bench, const MatrixSpec& spec, std::int64_t n, std::int64_t k,
              const std::vector<std::int64_t>& token_counts)
      : backend(bench.backend()),
        weights(spec, n, k,
                std::max<std::int64_t>(
                    1, static_cast<std::int64_t>(static_cast<double>(bench.options().bytes) /
                                                 RandomWeights::bytes(spec, n, k)))) {
    for (const std::int64_t m : token_counts) run(bench, spec, n, k, m);
  }

  void run(Bench& bench, const MatrixSpec& spec, std::int64_t n, std::int64_t k, std::int64_t m) {
    const std::vector<float> x = testing::normal_values(5, m * k);
    std::vector<float> y(static_cast<std::size_t>(m * n));
    LinearParams params;
    params.x = f32_matrix(x.data(), m, k);
    params.y = f32_matrix(y.data(), m, n);
    params.w = weights.view(0);
    const DeviceBuffer workspace = backend.allocate(backend.workspace_bytes(params));
    const OpContext context{{}, workspace.data(), workspace.size_bytes()};

    Benchmark b{"linear", fmt::format("{}x{}", n, k), label(spec), m};
    b.bytes = RandomWeights::bytes(spec, n, k) + 4.0 * static_cast<double>(m * (n + k));
    b.flops = 2.0 * static_cast<double>(m * n) * static_cast<double>(k);
    b.call = [&](std::int64_t call_idx) {
      params.w = weights.view(call_idx % weights.count());
      backend.run(params, context);
    };
    b.check = [&]() -> std::string {
      b.call(weights.count() - 1);
      for (std::int64_t i = 0; i < 40; ++i) {
        const std::int64_t token = i * 7 % m;
        const std::int64_t row = i == 0 ? n - 1 : i * 997 % n;
        const std::string wrong = compare_dot(x.data() + token * k, params.w, row,
                                              y[static_cast<std::size_t>(token * n + row)]);
        if (!wrong.empty()) return wrong;
      }
      return {};
    };
    bench.run(b);
  }

  static std::string label(const MatrixSpec& spec) { return std::string(to_string(spec.format)); }

  CpuBackend& backend;
  RandomWeights weights;
};

}  // namespace

void bench_linear(Bench& bench) {
  for (const MatrixSpec& spec : testing::weight_specs()) {
    const std::string name = fmt::format("linear 4096x4096 {} M=", to_string(spec.format));
    // Whether any row is wanted, before a gigabyte is made.
    std::vector<std::int64_t> token_counts;
    for (const std::int64_t m : {1, 4, 6, 16, 64, 256}) {
      if (bench.options().rows.wants("linear", name + std::to_string(m))) {
        token_counts.push_back(m);
      }
    }
    if (spec.scale_dtype == DType::kF32 || token_counts.empty()) continue;
    LinearBench(bench, spec, 4096, 4096, token_counts);
  }
}

}  // namespace dsv4::bench
