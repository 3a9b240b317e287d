// The experts of a layer: a stable counting sort, two GEMMs over the experts that have rows, a sum.
#include "ops/moe.h"

#include <algorithm>
#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/matmul.h"
#include "cpu/quantize.h"
#include "numerics/bf16.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

using cpu::Activations;
using cpu::DotCall;
using cpu::kUnitRows;
using cpu::padded;
using cpu::Scratch;
using cpu::Source;

// Rows of one expert within a wave.
struct Segment {
  std::int64_t begin;  // rows of the op
  std::int64_t end;
  Source w[2];  // gate and up, or down
};

// The workspace of an expert GEMM with num_matrices weight matrices an expert.
struct ExpertScratch {
  std::int64_t bytes;
  std::int64_t wave;  // rows, and at most as many segments
  std::int64_t width;
  std::int64_t panel_stride;
  Segment* segments;             // [wave]
  float* x;                      // [wave, width]
  float* tables;                 // [threads, num_matrices, kE2m1TableSize]
  std::int64_t* table_segments;  // [threads], whose tables those are: -1 none
  float* panel;                  // [threads, panel_stride]
  float* sums;                   // [threads, num_matrices, wave, kUnitRows]

  ExpertScratch(std::byte* workspace, std::int64_t rows, std::int64_t k, int num_matrices,
                int threads) {
    Scratch scratch(workspace);
    width = padded(k);
    wave = cpu::wave_tokens(width, rows);
    panel_stride = cpu::panel_rows(k) * width;
    segments = scratch.take<Segment>(wave);
    x = scratch.take<float>(wave * width);
    tables = scratch.take<float>(threads * num_matrices * cpu::kE2m1TableSize);
    table_segments = scratch.take<std::int64_t>(threads);
    panel = scratch.take<float>(threads * panel_stride);
    sums = scratch.take<float>(threads * num_matrices * wave * kUnitRows);
    bytes = scratch.bytes();
  }
};

// What differs between gate_up and down.
struct ExpertGemm {
  MatrixView x;
  const std::int32_t* row_tokens;
  const MatrixView* weights[2];
  int num_matrices;
  int num_experts;
  const std::int32_t* expert_offsets;
  MutableMatrixView out;
};

// silu(min(gate, limit)) * clamp(up, -limit, limit) * row_weight; a NaN stays NaN.
float swiglu(float gate, float up, float limit, float row_weight) {
  if (limit > 0) {
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
  }
  const double silu = gate / (1 + std::exp(-static_cast<double>(gate)));
  return static_cast<float>(silu * up * row_weight);
}

// Computes all products of `gemm` and hands them over as store(first_row, num_rows, first_col,
// num_cols, sums of each matrix [num_rows, kUnitRows]), from any thread.
template <class Store>
void run_experts(ThreadPool& pool, const cpu::DotKernels& dot, const cpu::E2m1Tables& tables,
                 const ExpertGemm& gemm, const ExpertScratch& scratch, const Store& store) {
  const std::int64_t rows = gemm.num_experts == 0 ? 0 : gemm.expert_offsets[gemm.num_experts];
  if (rows == 0 || gemm.out.cols == 0) return;
  DSV4_CHECK(rows > 0 && rows <= gemm.out.rows, "{} rows of {}", rows, gemm.out.rows);
  const std::int64_t units = ceil_div(gemm.out.cols, kUnitRows);
  const Source x_source = cpu::make_source(gemm.x, tables);

  int expert = 0;
  for (std::int64_t begin = 0; begin < rows; begin += scratch.wave) {
    const std::int64_t end = std::min(begin + scratch.wave, rows);
    std::int64_t num_segments = 0;
    for (std::int64_t row = begin; row < end;) {
      while (gemm.expert_offsets[expert + 1] <= row) ++expert;  // weights without rows stay unread
      DSV4_CHECK(gemm.expert_offsets[expert] <= row, "expert_offsets[{}] descends", expert);
      Segment& segment = *new (scratch.segments + num_segments++) Segment;
      segment.begin = row;
      segment.end = std::min<std::int64_t>(end, gemm.expert_offsets[expert + 1]);
      for (int i = 0; i < gemm.num_matrices; ++i) {
        segment.w[i] = cpu::make_source(gemm.weights[i][expert], tables);
      }
      row = segment.end;
    }
    pool.parallel_for(end - begin, 8, [&](std::int64_t first, std::int64_t last) {
      std::int64_t s = 0;
      for (std::int64_t row = begin + first; row < begin + last; ++row) {
        while (scratch.segments[s].end <= row) ++s;
        const std::int64_t source = gemm.row_tokens == nullptr ? row : gemm.row_tokens[row];
        DSV4_CHECK(source >= 0 && source < gemm.x.rows, "row {} reads row {} of {}", row, source,
                   gemm.x.rows);
        const Activations x{x_source, gemm.x.cols, 1, scratch.segments[s].w[0].interleaved()};
        cpu::prepare_row(dot, x, source, nullptr, scratch.x + (row - begin) * scratch.width);
      }
    });
    std::fill_n(scratch.table_segments, pool.num_threads(), -1);
    pool.parallel_for(
        num_segments * units, 1, [&](std::int64_t unit, std::int64_t, int thread_idx) {
          const Segment& segment = scratch.segments[unit / units];
          const bool has_tables = scratch.table_segments[thread_idx] == unit / units;
          scratch.table_segments[thread_idx] = unit / units;
          const std::int64_t col = unit % units * kUnitRows;
          float* const sums =
              scratch.sums + thread_idx * gemm.num_matrices * scratch.wave * kUnitRows;
          DotCall call;
          call.row_begin = col;
          call.row_end = std::min(col + kUnitRows, gemm.out.cols);
          call.x = scratch.x + (segment.begin - begin) * scratch.width;
          call.x_stride = scratch.width;
          call.tokens = segment.end - segment.begin;
          call.panel = scratch.panel + thread_idx * scratch.panel_stride;
          call.sums_stride = kUnitRows;
          for (int i = 0; i < gemm.num_matrices; ++i) {
            Source w = segment.w[i];
            if (w.wants_table()) {
              float* const table =
                  scratch.tables + (thread_idx * gemm.num_matrices + i) * cpu::kE2m1TableSize;
              if (!has_tables) cpu::fill_table(w, table);
              cpu::use_table(w, table);
            }
            call.w = &w;
            call.sums = sums + i * scratch.wave * kUnitRows;
            dot.dot_rows(call);
          }
          store(segment.begin, call.tokens, col, call.row_end - col, sums,
                sums + scratch.wave * kUnitRows);
        });
  }
}

// Writes columns [col, col + cols) of row `row` of p.out, for NVFP4 whole blocks.
void store_activated(const cpu::EncodeKernels& kernels, const ExpertGateUpParams& p,
                     std::int64_t row, std::int64_t col, const float* values, std::int64_t cols) {
  static_assert(kUnitRows % kNvfp4QuantBlock == 0);
  const MutableMatrixView& out = p.out;
  if (out.format != Format::kNvfp4) return cpu::store_values(out, row, col, values, cols);
  const auto* const next =
      std::upper_bound(p.expert_offsets, p.expert_offsets + p.num_experts, row);
  const float global_scale = p.out_global_scales[next - p.expert_offsets - 1];
  if (col == 0) out.global_scales[row] = global_scale;
  cpu::encode_columns(kernels, out, row, col, values, cols, global_scale,
                      E2m1Rounding::kNearestEven);
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const MoeDispatchParams& p) const {
  Scratch scratch(nullptr);
  scratch.take<std::int32_t>(p.num_experts);
  return scratch.bytes();
}

void CpuBackend::compute(const MoeDispatchParams& p, const OpContext& context) {
  const std::int64_t pairs = p.tokens * p.experts_per_token;
  auto* const next_row = Scratch(context.workspace).take<std::int32_t>(p.num_experts);
  std::fill_n(p.expert_offsets, p.num_experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i) {
    DSV4_CHECK(p.expert_idx[i] < p.num_experts, "expert {} of {}", p.expert_idx[i], p.num_experts);
    if (p.expert_idx[i] >= 0) ++p.expert_offsets[p.expert_idx[i] + 1];
  }
  for (int e = 0; e < p.num_experts; ++e) {
    p.expert_offsets[e + 1] += p.expert_offsets[e];
    next_row[e] = p.expert_offsets[e];
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int32_t expert = p.expert_idx[i];
    p.token_rows[i] = expert < 0 ? -1 : next_row[expert]++;
    if (expert < 0) continue;
    const std::int32_t row = p.token_rows[i];
    p.row_tokens[row] = static_cast<std::int32_t>(i / p.experts_per_token);
    p.row_experts[row] = expert;
    p.row_weights[row] = p.expert_weights[i];
  }
}

std::int64_t CpuBackend::workspace_bytes(const ExpertGateUpParams& p) const {
  return ExpertScratch(nullptr, p.out.rows, p.x.cols, 2, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const ExpertGateUpParams& p, const OpContext& context) {
  const ExpertGemm gemm{
      p.x, p.row_tokens, {p.gate_weights, p.up_weights}, 2, p.num_experts, p.expert_offsets, p.out};
  const ExpertScratch scratch(context.workspace, p.out.rows, p.x.cols, 2, pool_.num_threads());
  const cpu::EncodeKernels& kernels = cpu::encode_kernels(targets_);
  run_experts(pool_, dot_, *tables_, gemm, scratch,
              [&](std::int64_t first_row, std::int64_t rows, std::int64_t col, std::int64_t cols,
                  float* gate, const float* up) {
                for (std::int64_t r = 0; r < rows; ++r) {
                  const float row_weight =
                      p.row_weights == nullptr ? 1.0f : p.row_weights[first_row + r];
                  for (std::int64_t i = r * kUnitRows; i < r * kUnitRows + cols; ++i) {
                    gate[i] = swiglu(gate[i], up[i], p.swiglu_limit, row_weight);
                  }
                  store_activated(kernels, p, first_row + r, col, gate + r * kUnitRows, cols);
                }
              });
}

std::int64_t CpuBackend::workspace_bytes(const ExpertDownParams& p) const {
  return ExpertScratch(nullptr, p.out.rows, p.x.cols, 1, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const ExpertDownParams& p, const OpContext& context) {
  const ExpertGemm gemm{
      p.x, nullptr, {p.down_weights, nullptr}, 1, p.num_experts, p.expert_offsets, p.out};
  const ExpertScratch scratch(context.workspace, p.out.rows, p.x.cols, 1, pool_.num_threads());
  run_experts(pool_, dot_, *tables_, gemm, scratch,
              [&p](std::int64_t first_row, std::int64_t rows, std::int64_t col, std::int64_t cols,
                   const float* sums, const float*) {
                for (std::int64_t r = 0; r < rows; ++r) {
                  cpu::store_values(p.out, first_row + r, col, sums + r * kUnitRows, cols);
                }
              });
}

std::int64_t CpuBackend::workspace_bytes(const MoeCombineParams&) const { return 0; }

namespace {

// Adds columns [begin, begin + n) of row `row` of a plain matrix.
void add_columns(const MatrixView& m, std::int64_t row, std::int64_t begin, std::int64_t n,
                 float* sum) {
  const std::int64_t offset = row * m.row_stride + begin;
  if (m.format == Format::kF32) {
    const auto* const x = static_cast<const float*>(m.data) + offset;
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
    return;
  }
  const auto* const x = static_cast<const std::uint16_t*>(m.data) + offset;
  for (std::int64_t i = 0; i < n; ++i) sum[i] += decode_bf16(x[i]);
}

}  // namespace

void CpuBackend::compute(const MoeCombineParams& p, const OpContext&) {
  constexpr std::int64_t kColumns = 512;
  if (p.out.empty()) return;
  const std::int64_t pieces = ceil_div(p.out.cols, kColumns);
  pool_.parallel_for(p.out.rows * pieces, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t token = piece / pieces;
      const std::int64_t col = piece % pieces * kColumns;
      const std::int64_t cols = std::min(kColumns, p.out.cols - col);
      float sum[kColumns] = {};
      for (std::int64_t i = 0; i < p.experts_per_token; ++i) {
        const std::int64_t row = p.token_rows[token * p.experts_per_token + i];
        if (row < 0) continue;
        DSV4_CHECK(row < p.expert_out.rows, "row {} of {}", row, p.expert_out.rows);
        add_columns(p.expert_out, row, col, cols, sum);
      }
      if (p.shared_out.data != nullptr) add_columns(p.shared_out, token, col, cols, sum);
      cpu::store_values(p.out, token, col, sum, cols);
    }
  });
}

}  // namespace dsv4
