// Hyper-connections: the mixes' dot products by the backend's tree, so that a step's tokens share
// one reading of the weight; the mean square in FP64 in sixteen lanes (row_math.h); sums over
// copies ascending, FP32 with fused multiply-adds.
#include "ops/mhc.h"

#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/products.h"
#include "cpu/row_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/mhc.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lane_math-inl.h"

#ifndef DSV4_CPU_MHC_ONCE
#define DSV4_CPU_MHC_ONCE
namespace dsv4::cpu {

struct MhcKernels {
  // out [dim] = sum over j of pre[j] * x[j * dim ..].
  void (*sum_copies)(const float* x, const float* pre, int copies, std::int64_t dim, float* out);
  // out[j * dim ..] = post[j] * y + sum over i of comb[i][j] * x[i * dim ..]. out may be x; block
  // is scratch [copies, 16].
  void (*mix_copies)(const float* x, const float* y, const float* post, const float* comb,
                     int copies, std::int64_t dim, float* block, float* out);
};

}  // namespace dsv4::cpu
#endif  // DSV4_CPU_MHC_ONCE

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

void sum_copies(const float* x, const float* pre, int copies, std::int64_t dim, float* out) {
  for (std::int64_t k = 0; k < dim; k += kLanes) {
    Lanes sum = multiply(broadcast(pre[0]), load_n(x + k, dim - k));
    for (int j = 1; j < copies; ++j) {
      sum = fma(broadcast(pre[j]), load_n(x + j * dim + k, dim - k), sum);
    }
    store_n(sum, dim - k, out + k);
  }
}

void mix_copies(const float* x, const float* y, const float* post, const float* comb, int copies,
                std::int64_t dim, float* block, float* out) {
  for (std::int64_t k = 0; k < dim; k += kLanes) {
    for (int i = 0; i < copies; ++i) store(load_n(x + i * dim + k, dim - k), block + i * kLanes);
    const Lanes layer_out = load_n(y + k, dim - k);
    for (int j = 0; j < copies; ++j) {
      Lanes sum = multiply(broadcast(post[j]), layer_out);
      for (int i = 0; i < copies; ++i) {
        sum = fma(broadcast(comb[i * copies + j]), load(block + i * kLanes), sum);
      }
      store_n(sum, dim - k, out + j * dim + k);
    }
  }
}

const MhcKernels& mhc_kernels() {
  static constexpr MhcKernels kKernels = {&sum_copies, &mix_copies};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace cpu {
HWY_EXPORT(mhc_kernels);
}  // namespace cpu

namespace {

using cpu::padded;

float sigmoid(float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); }

// A small square matrix, row-major, as the doubly stochastic comb is made of.
struct Square {
  float* values;
  int n;
  float& at(int row, int col) const { return values[row * n + col]; }
};

void softmax_rows(const Square& m) {
  for (int i = 0; i < m.n; ++i) {
    float largest = m.at(i, 0);
    for (int j = 1; j < m.n; ++j) largest = std::max(largest, m.at(i, j));
    float sum = 0;
    for (int j = 0; j < m.n; ++j) {
      m.at(i, j) = static_cast<float>(std::exp(static_cast<double>(m.at(i, j) - largest)));
      sum += m.at(i, j);
    }
    for (int j = 0; j < m.n; ++j) m.at(i, j) /= sum;
  }
}

void divide_by_row_sums(const Square& m, float eps) {
  for (int i = 0; i < m.n; ++i) {
    float sum = 0;
    for (int j = 0; j < m.n; ++j) sum += m.at(i, j);
    for (int j = 0; j < m.n; ++j) m.at(i, j) /= sum + eps;
  }
}

void divide_by_column_sums(const Square& m, float eps) {
  for (int j = 0; j < m.n; ++j) {
    float sum = 0;
    for (int i = 0; i < m.n; ++i) sum += m.at(i, j);
    for (int i = 0; i < m.n; ++i) m.at(i, j) /= sum + eps;
  }
}

// Sinkhorn's iteration as the model runs it: eps enters after the softmax and in every division.
void normalise_comb(const Square& comb, int sinkhorn_iters, float eps) {
  softmax_rows(comb);
  for (int i = 0; i < comb.n * comb.n; ++i) comb.values[i] += eps;
  divide_by_column_sums(comb, eps);
  for (int iter = 1; iter < sinkhorn_iters; ++iter) {
    divide_by_row_sums(comb, eps);
    divide_by_column_sums(comb, eps);
  }
}

// What pre and head have in common: tokens mixed down to one row each.
struct MixDown {
  MatrixView x;
  MatrixView mix_weight;
  MatrixView norm_weight;
  float norm_eps;
  int copies;
  MutableMatrixView out;
  const std::int32_t* row_count;
};

struct MixScratch {
  std::int64_t bytes;
  std::int64_t wave;   // tokens
  std::int64_t width;  // of a row of x
  bool in_place;       // x is FP32 in whole lanes: nothing to prepare
  float* x;            // [wave, width], unless in place
  float* mixes;        // [wave, mix_weight.rows]
  float* panels;       // [threads, panel_floats]
  float* norm_weight;  // [dim]
  float* rows;         // [threads, dim]

  MixScratch(std::byte* workspace, const MixDown& m, int threads) {
    cpu::Scratch scratch(workspace);
    width = padded(m.x.cols);
    in_place = m.x.format == Format::kF32 && width == m.x.cols;
    // Rows in place take no memory: waves so large that every thread has tiles to take.
    wave = in_place ? std::min<std::int64_t>(m.x.rows, 4096) : cpu::wave_tokens(width, m.x.rows);
    x = scratch.take<float>(in_place ? 0 : wave * width);
    mixes = scratch.take<float>(wave * m.mix_weight.rows);
    panels = scratch.take<float>(threads * cpu::panel_floats(m.x.cols));
    norm_weight = scratch.take<float>(m.out.cols);
    rows = scratch.take<float>(threads * m.out.cols);
    bytes = scratch.bytes();
  }
};

MixDown mix_down(const HcPreParams& p) {
  return {p.x, p.mix_weight, p.norm_weight, p.norm_eps, p.copies, p.out, p.row_count};
}
MixDown mix_down(const HcHeadParams& p) {
  return {p.x, p.mix_weight, p.norm_weight, p.norm_eps, p.copies, p.out, p.row_count};
}

// Everything that the mixing of one step needs of the backend.
struct MixTools {
  ThreadPool& pool;
  const cpu::DotKernels& dot;
  const cpu::RowKernels& rows;
  const cpu::MhcKernels& mhc;
  const cpu::E2m1Tables& tables;
};

// Forms each token's mixes, hands them to make_pre(token, mixes), which leaves the pre mixes in
// their first `copies` places, and stores RMSNorm(sum over j of pre[j] X_j).
template <class MakePre>
void run_mix_down(const MixTools& tools, const MixDown& m, std::byte* workspace,
                  const MakePre& make_pre) {
  if (m.x.cols == 0) return;
  const MixScratch scratch(workspace, m, tools.pool.num_threads());
  const cpu::Source w = cpu::make_source(m.mix_weight, tools.tables);
  const cpu::Source x_source = cpu::make_source(m.x, tools.tables);
  const float* const norm_weight = m.norm_weight.data == nullptr
                                       ? nullptr
                                       : cpu::float_row(m.norm_weight, 0, scratch.norm_weight);
  const std::int64_t tokens = cpu::active_rows(m.row_count, m.x.rows);
  const std::int64_t num_mixes = m.mix_weight.rows;
  const std::int64_t dim = m.out.cols;
  for (std::int64_t begin = 0; begin < tokens; begin += scratch.wave) {
    const std::int64_t wave = std::min(scratch.wave, tokens - begin);
    const float* x = scratch.x;
    std::int64_t x_stride = scratch.width;
    if (scratch.in_place) {
      x = static_cast<const float*>(m.x.data) + begin * m.x.row_stride;
      x_stride = m.x.row_stride;
    } else {
      for (std::int64_t t = 0; t < wave; ++t) {
        tools.dot.decode_row(x_source, begin + t, scratch.x + t * scratch.width);
      }
    }
    cpu::multiply(tools.pool, tools.dot, {&w, x, x_stride, wave, scratch.mixes, scratch.panels});
    tools.pool.parallel_for(
        wave, cpu::row_grain(m.x.cols), [&](std::int64_t first, std::int64_t end, int thread_idx) {
          float* const scratch_row = scratch.rows + thread_idx * dim;
          for (std::int64_t t = first; t < end; ++t) {
            const float* const flat = x + t * x_stride;
            float* const mixes = scratch.mixes + t * num_mixes;
            const double mean =
                tools.rows.square_sum(flat, m.x.cols) / static_cast<double>(m.x.cols);
            const double r = 1 / std::sqrt(mean + static_cast<double>(m.norm_eps));
            for (std::int64_t i = 0; i < num_mixes; ++i) {
              mixes[i] = static_cast<float>(mixes[i] * r);
            }
            make_pre(begin + t, mixes);
            float* const out = cpu::result_row(m.out, begin + t, scratch_row);
            tools.mhc.sum_copies(flat, mixes, m.copies, dim, out);
            if (norm_weight != nullptr) {
              cpu::rms_norm_row(tools.rows, out, norm_weight, dim, m.norm_eps, out);
            }
            cpu::finish_row(m.out, begin + t, out);
          }
        });
  }
}

struct HcPostScratch {
  std::int64_t bytes;
  std::int64_t row_floats;
  float* x;       // [threads, row_floats], also the row before it is rounded
  float* y;       // [threads, row_floats]
  float* blocks;  // [threads, copies * 16]

  HcPostScratch(std::byte* workspace, const HcPostParams& p, int threads)
      : row_floats(padded(p.x.cols)) {
    cpu::Scratch scratch(workspace);
    x = scratch.take<float>(threads * row_floats);
    y = scratch.take<float>(threads * row_floats);
    blocks = scratch.take<float>(threads * std::int64_t{p.copies} * cpu::kLanes);
    bytes = scratch.bytes();
  }
};

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const HcPreParams& p) const {
  return MixScratch(nullptr, mix_down(p), pool_.num_threads()).bytes;
}

std::int64_t CpuBackend::workspace_bytes(const HcPostParams& p) const {
  return HcPostScratch(nullptr, p, pool_.num_threads()).bytes;
}

std::int64_t CpuBackend::workspace_bytes(const HcHeadParams& p) const {
  return MixScratch(nullptr, mix_down(p), pool_.num_threads()).bytes;
}

void CpuBackend::compute(const HcPreParams& p, const OpContext& context) {
  const cpu::MhcKernels& mhc = DSV4_CPU_KERNEL(cpu::mhc_kernels, targets_)();
  const std::int64_t copies = p.copies;
  run_mix_down({pool_, dot_, rows_, mhc, *tables_}, mix_down(p), context.workspace,
               [&](std::int64_t token, float* mixes) {
                 float* const comb = p.comb + token * copies * copies;
                 for (std::int64_t i = 0; i < copies * copies; ++i) {
                   const std::int64_t idx = 2 * copies + i;
                   comb[i] = mixes[idx] * p.scales[2] + p.base[idx];
                 }
                 normalise_comb({comb, p.copies}, p.sinkhorn_iters, p.hc_eps);
                 for (std::int64_t j = 0; j < copies; ++j) {
                   const float post = mixes[copies + j] * p.scales[1] + p.base[copies + j];
                   p.post[token * copies + j] = 2 * sigmoid(post);
                   mixes[j] = sigmoid(mixes[j] * p.scales[0] + p.base[j]) + p.hc_eps;
                 }
               });
}

void CpuBackend::compute(const HcHeadParams& p, const OpContext& context) {
  const cpu::MhcKernels& mhc = DSV4_CPU_KERNEL(cpu::mhc_kernels, targets_)();
  run_mix_down({pool_, dot_, rows_, mhc, *tables_}, mix_down(p), context.workspace,
               [&](std::int64_t, float* mixes) {
                 for (int j = 0; j < p.copies; ++j) {
                   mixes[j] = sigmoid(mixes[j] * *p.scale + p.base[j]) + p.hc_eps;
                 }
               });
}

void CpuBackend::compute(const HcPostParams& p, const OpContext& context) {
  if (p.x.cols == 0) return;
  const cpu::MhcKernels& mhc = DSV4_CPU_KERNEL(cpu::mhc_kernels, targets_)();
  const HcPostScratch scratch(context.workspace, p, pool_.num_threads());
  const std::int64_t tokens = cpu::active_rows(p.row_count, p.x.rows);
  const std::int64_t copies = p.copies;
  pool_.parallel_for(
      tokens, cpu::row_grain(p.x.cols), [&](std::int64_t begin, std::int64_t end, int thread_idx) {
        float* const x_scratch = scratch.x + thread_idx * scratch.row_floats;
        float* const y_scratch = scratch.y + thread_idx * scratch.row_floats;
        for (std::int64_t t = begin; t < end; ++t) {
          const float* const x = cpu::float_row(p.x, t, x_scratch);
          const float* const y = cpu::float_row(p.y, t, y_scratch);
          float* const out = cpu::result_row(p.out, t, x_scratch);
          mhc.mix_copies(x, y, p.post + t * copies, p.comb + t * copies * copies, p.copies,
                         p.y.cols, scratch.blocks + thread_idx * copies * cpu::kLanes, out);
          cpu::finish_row(p.out, t, out);
        }
      });
}

}  // namespace dsv4
#endif  // HWY_ONCE
