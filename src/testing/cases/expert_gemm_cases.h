// expert_gemm_cases.h: shapes, formats and row counts of the two expert GEMMs, each alone: rows and
// offsets are made here, not by a dispatch. Their inputs, and one GEMM on a device.
//
// With dispatch and combine around them, on small layers: moe_cases.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/math.h"
#include "ops/moe.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

using RowCounts = std::vector<std::int64_t>;

struct ExpertGemmCase {
  std::string name;
  RowCounts expert_rows = {3, 0, 5, 1};
  std::int64_t k = 176;     // hidden of gate_up, inter of down
  std::int64_t n = 144;     // inter of gate_up, hidden of down
  bool gate_up = true;      // false: down, which has neither row_tokens, row weights nor a limit
  bool by_token = true;     // row_tokens
  std::int64_t tokens = 0;  // that rows are of, by token; 0: half as many as there are rows
  bool weighted = true;     // row_weights
  float swiglu_limit = 1;   // gates and ups have deviation 1 and 1.5
  std::int64_t spare_rows = 0;  // behind expert_offsets[num_experts]
  MatrixSpec weight_spec = nvfp4_spec();
  MatrixSpec x_spec = bf16_spec().padded(8);  // rows 16-byte aligned
  MatrixSpec out_spec = bf16_spec();

  int num_experts() const { return static_cast<int>(expert_rows.size()); }
  std::int64_t active_rows() const {
    return std::accumulate(expert_rows.begin(), expert_rows.end(), std::int64_t{0});
  }
  std::int64_t rows() const { return active_rows() + spare_rows; }
};

// About five rows each, as in decoding: none, one, the width of a narrow tile and more. 32 experts
// have 160 rows.
inline RowCounts few_rows_each(int num_experts) {
  constexpr std::int64_t kRows[] = {0, 1, 2, 3, 8, 9, 17, 0};
  RowCounts rows;
  for (int e = 0; e < num_experts; ++e) rows.push_back(kRows[e % 8]);
  return rows;
}

inline std::vector<ExpertGemmCase> expert_gemm_cases() {
  std::vector<ExpertGemmCase> cases;
  const auto add = [&](const std::string& name, auto change) {
    ExpertGemmCase c;
    c.name = name;
    change(c);
    cases.push_back(c);
  };
  const MatrixSpec nvfp4_rows = nvfp4_spec(true);
  const std::vector<MatrixSpec> outs = {bf16_spec(), f32_spec().padded(8), nvfp4_rows.padded(32),
                                        bf16_spec().padded(8)};
  // Multiples of the quant block and of no tile; a tile and more; longer than any ring of stages.
  for (const std::int64_t n : {16, 48, 144, 272}) {
    for (const std::int64_t k : {16, 48, 176, 272, 1040}) {
      const std::string shape = std::to_string(k) + "_to_" + std::to_string(n);
      add("nvfp4_" + shape, [&](auto& c) { c.k = k, c.n = n; });
      add("mxfp4_" + shape, [&](auto& c) {
        c.k = (k + 31) / 32 * 32;
        c.n = n;
        c.weight_spec = mxfp4_spec();
      });
    }
  }
  for (const MatrixSpec& weights :
       {nvfp4_spec(), nvfp4_rows, nvfp4_spec().padded(32), mxfp4_spec(), mxfp4_spec().padded(32)}) {
    for (const MatrixSpec& out : outs) {
      for (const float limit : {0.0f, 1.0f}) {
        add(weights.name + "_out_" + out.name + (limit > 0 ? "_clamped" : ""), [&](auto& c) {
          c.weight_spec = weights;
          c.out_spec = out;
          c.swiglu_limit = limit;
          c.k = 288;
        });
      }
    }
  }
  for (const MatrixSpec& out : {bf16_spec(), nvfp4_rows}) {
    const auto add_rows = [&](const std::string& name, const RowCounts& rows) {
      add(name + "_out_" + out.name, [&](auto& c) {
        c.expert_rows = rows;
        c.k = 48;
        c.n = 48;
        c.out_spec = out;
      });
    };
    for (const bool by_token : {false, true}) {
      for (const bool weighted : {false, true}) {
        add(std::string(by_token ? "by_token" : "expert_major") + (weighted ? "_weighted" : "") +
                "_out_" + out.name,
            [&](auto& c) {
              c.by_token = by_token;
              c.weighted = weighted;
              c.spare_rows = 7;
              c.out_spec = out;
            });
      }
    }
    RowCounts ascending(33);
    std::iota(ascending.begin(), ascending.end(), 1);
    add_rows("experts_of_1_to_33_rows", ascending);
    add_rows("experts_of_64_to_257_rows", {64, 65, 127, 128, 129, 130, 257});
    for (const std::int64_t rows : {1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 127, 128, 129, 130, 257}) {
      add_rows(std::to_string(rows) + "_rows", {rows});
    }
    add_rows("all_on_one", {0, 0, 129, 0});
    add_rows("first_empty", {0, 3, 9});
    add_rows("middle_empty", {3, 0, 0, 9});
    add_rows("last_empty", {3, 9, 0});
    add_rows("all_empty", {0, 0, 0});
    add_rows("one_empty_expert", {0});
    add_rows("two_experts", {5, 2});
    for (const int experts : {257, 384, 512, 513, 600}) {
      RowCounts rows(static_cast<std::size_t>(experts));
      for (int e = 0; e < experts; ++e) rows[e] = e * 7 % 5 == 0 ? 0 : e % 4;
      add_rows(std::to_string(experts) + "_experts", rows);
    }
  }
  add("no_rows_expert_major", [](auto& c) { c.expert_rows = {0, 0}, c.by_token = false; });
  add("no_experts", [](auto& c) { c.expert_rows = {}, c.spare_rows = 7; });
  add("all_rows_spare", [](auto& c) { c.expert_rows = {0, 0}, c.spare_rows = 300; });
  add("far_more_rows_than_active", [](auto& c) { c.expert_rows = {1, 2}, c.spare_rows = 2000; });
  return cases;
}

// The same for down: what it does not have is left out. Each once more with inputs that are whole
// chunks of 64 columns, which may come another way.
inline std::vector<ExpertGemmCase> down_gemm_cases() {
  std::vector<ExpertGemmCase> cases;
  for (ExpertGemmCase c : expert_gemm_cases()) {
    c.gate_up = false;
    if (c.out_spec.format == Format::kNvfp4) continue;
    cases.push_back(c);
    c.name += "_whole_chunks";
    c.k = round_up(c.k, 64);
    cases.push_back(c);
  }
  return cases;
}

// Weights of random codes, of all sixteen, with block scales drawn from `scales`. Global scales are
// `global_scale`, or with one a row, up to twice as much.
inline HostMatrix random_weights(const MatrixSpec& spec, std::int64_t rows, std::int64_t cols,
                                 std::uint64_t seed, const std::vector<std::uint8_t>& scales,
                                 float global_scale) {
  HostMatrix m(spec, rows, cols);
  Random random(seed);
  const std::int64_t code_stride = data_bytes(spec.format, m.row_stride);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < data_bytes(spec.format, cols); i += 8) {
      std::uint64_t bits = random.bits();
      for (std::int64_t j = i; j < std::min(i + 8, data_bytes(spec.format, cols));
           ++j, bits >>= 8) {
        m.data[r * code_stride + j] = static_cast<std::uint8_t>(bits);
      }
    }
    for (std::int64_t i = 0; i < cols / spec.block_cols; ++i) {
      m.block_scales[r * m.scale_stride + i] =
          scales[static_cast<std::size_t>(random.index(static_cast<std::int64_t>(scales.size())))];
    }
  }
  for (std::size_t r = 0; r < m.global_scales.size(); ++r) {
    m.global_scales[r] = global_scale * (1 + static_cast<float>(r * 37 % 64) / 64);
  }
  return m;
}

// Random weights under which a row of normal values gives a product of about this deviation.
inline HostMatrix random_weights(const MatrixSpec& spec, std::int64_t rows, std::int64_t cols,
                                 std::uint64_t seed, double deviation) {
  constexpr double kCodeDeviation = 2.93;  // of the sixteen values of E2M1
  const double size = deviation / (kCodeDeviation * std::sqrt(static_cast<double>(cols)));
  if (spec.format == Format::kNvfp4) {  // block scales 0.5 to 1.875
    return random_weights(spec, rows, cols, seed,
                          {0x30, 0x31, 0x33, 0x35, 0x36, 0x38, 0x39, 0x3B, 0x3C, 0x3F},
                          static_cast<float>(size));
  }
  const auto exponent = static_cast<std::uint8_t>(127 + std::lround(std::log2(size)));
  const auto beside = [&](int step) { return static_cast<std::uint8_t>(exponent + step); };
  return random_weights(spec, rows, cols, seed, {beside(-1), exponent, beside(1)}, 1);
}

struct ExpertGemmInputs {
  explicit ExpertGemmInputs(const ExpertGemmCase& c) : x(c.x_spec, 0, c.k), expert_offsets(1) {
    Random random(5);
    for (const std::int64_t rows : c.expert_rows) {
      expert_offsets.push_back(expert_offsets.back() + static_cast<std::int32_t>(rows));
    }
    const bool by_token = c.gate_up && c.by_token;
    // Behind the tokens comes one that is nobody's.
    const std::int64_t tokens = c.tokens > 0 ? c.tokens : c.active_rows() / 2 + 1;
    const std::int64_t sources = by_token ? tokens + 1 : c.rows();
    const std::int64_t used = by_token ? tokens : c.active_rows();
    std::vector<float> values = normal_values(6, used * c.k);
    values.resize(static_cast<std::size_t>(sources * c.k), std::nanf(""));
    x = HostMatrix(c.x_spec, sources, c.k, values);
    for (std::int64_t r = 0; r < c.rows() && by_token; ++r) {
      row_tokens.push_back(r < c.active_rows() ? static_cast<std::int32_t>(random.index(used))
                                               : -1);
    }
    for (std::int64_t r = 0; r < c.rows() && c.gate_up && c.weighted; ++r) {
      row_weights.push_back(r < c.active_rows() ? static_cast<float>(random.uniform(0.1, 1))
                                                : std::nanf(""));
    }
    for (int e = 0; e < c.num_experts(); ++e) {
      const auto seed = static_cast<std::uint64_t>(e);
      weights.push_back(random_weights(c.weight_spec, c.n, c.k, 100 + seed, 1));
      if (c.gate_up) up.push_back(random_weights(c.weight_spec, c.n, c.k, 1000 + seed, 1.5));
      // Largest outputs of about 4, in units of which the largest block scale is 448; then smaller
      // ones, in another global scale.
      out_global_scales.push_back(4.0f / 2688 * static_cast<float>(1 + e % 3));
    }
  }
  std::int64_t x_row(std::int64_t row) const { return row_tokens.empty() ? row : row_tokens[row]; }
  int expert_of(std::int64_t row) const {
    int e = 0;
    while (expert_offsets[e + 1] <= row) ++e;
    return e;
  }

  HostMatrix x;
  std::vector<std::int32_t> expert_offsets;
  std::vector<std::int32_t> row_tokens;  // empty: x is expert-major
  std::vector<float> row_weights;        // empty: none
  std::vector<HostMatrix> weights, up;   // gate and up; or down and none
  std::vector<float> out_global_scales;
};

// The weights of one expert GEMM as a backend's kernels read them. Where they are packed, the
// matrices are poison afterwards: nothing may need them any more.
class DeviceExperts {
 public:
  DeviceExperts(Backend& backend, const std::vector<HostMatrix>& weights,
                const std::vector<HostMatrix>& up) {
    add(backend, weights, weight_views);
    add(backend, up, up_views);
    if (weights.empty()) return;
    ExpertPackParams pack;
    pack.weights = weight_views.data();
    pack.up_weights = up_views.empty() ? nullptr : up_views.data();
    pack.num_experts = static_cast<int>(weights.size());
    const std::int64_t bytes = backend.packed_bytes(pack);
    if (bytes == 0) return;
    memory_ = std::make_unique<DeviceArray<std::uint8_t>>(backend, bytes);
    pack.out = memory_->data();
    run_op(backend, pack);
    for (const auto& matrix : matrices_) matrix->poison();
    packed = {memory_->data(), weights[0].spec.format, weights[0].rows, weights[0].cols};
  }

  PackedExperts packed;  // data null: not packed
  std::vector<MatrixView> weight_views, up_views;

 private:
  void add(Backend& backend, const std::vector<HostMatrix>& from, std::vector<MatrixView>& views) {
    for (const HostMatrix& matrix : from) {
      matrices_.push_back(std::make_unique<DeviceMatrix>(backend, matrix));
      views.push_back(matrices_.back()->view());
    }
  }

  std::vector<std::unique_ptr<DeviceMatrix>> matrices_;
  std::unique_ptr<DeviceArray<std::uint8_t>> memory_;
};

// One GEMM on a device. Weights may be shared by several, in `experts`.
class DeviceExpertGemm {
 public:
  DeviceExpertGemm(Backend& backend, const ExpertGemmCase& c, const ExpertGemmInputs& in)
      : DeviceExpertGemm(backend, c, in,
                         std::make_shared<DeviceExperts>(backend, in.weights, in.up)) {}
  DeviceExpertGemm(Backend& backend, const ExpertGemmCase& c, const ExpertGemmInputs& in,
                   std::shared_ptr<DeviceExperts> experts)
      : out(backend, HostMatrix(c.out_spec, c.rows(), c.n)),
        backend_(&backend),
        gate_up_(c.gate_up),
        experts_(std::move(experts)),
        x_(backend, in.x),
        expert_offsets_(backend, in.expert_offsets),
        row_tokens_(backend, in.row_tokens),
        row_weights_(backend, in.row_weights),
        out_global_scales_(backend, in.out_global_scales) {
    const auto wire = [&](auto& p) {
      p.x = x_.view();
      p.packed = experts_->packed;
      p.num_experts = c.num_experts();
      p.expert_offsets = expert_offsets_.data();
      p.out = out.mutable_view();
    };
    wire(gate_up);
    wire(down);
    if (c.by_token) gate_up.row_tokens = row_tokens_.data();
    if (c.weighted) gate_up.row_weights = row_weights_.data();
    gate_up.swiglu_limit = c.swiglu_limit;
    if (c.out_spec.format == Format::kNvfp4) {
      gate_up.out_global_scales = out_global_scales_.data();
    }
    if (experts_->packed.data != nullptr) return;
    gate_up.gate_weights = down.down_weights = experts_->weight_views.data();
    gate_up.up_weights = experts_->up_views.data();
  }

  // Into an output of poison.
  HostMatrix run() {
    out.poison();
    if (gate_up_) {
      run_op(*backend_, gate_up);
    } else {
      run_op(*backend_, down);
    }
    return out.read();
  }

  ExpertGateUpParams gate_up;
  ExpertDownParams down;
  DeviceMatrix out;

 private:
  Backend* backend_;
  bool gate_up_;
  std::shared_ptr<DeviceExperts> experts_;
  DeviceMatrix x_;
  DeviceArray<std::int32_t> expert_offsets_, row_tokens_;
  DeviceArray<float> row_weights_, out_global_scales_;
};

}  // namespace dsv4::testing
