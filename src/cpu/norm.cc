// The root-mean-square norm: squares summed in FP64 in sixteen lanes (row_math.h), each result
// rounded once.
#include "ops/norm.h"

#include "cpu/cpu_backend.h"
#include "cpu/row_math.h"

namespace dsv4 {
namespace {

struct NormScratch {
  std::int64_t bytes;
  std::int64_t row_floats;
  float* weight;
  float* rows;  // [threads, row_floats]

  NormScratch(std::byte* workspace, std::int64_t cols, int threads)
      : row_floats(cpu::padded(cols)) {
    cpu::Scratch scratch(workspace);
    weight = scratch.take<float>(row_floats);
    rows = scratch.take<float>(threads * row_floats);
    bytes = scratch.bytes();
  }
};

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const RmsNormParams& p) const {
  return NormScratch(nullptr, p.x.cols, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const RmsNormParams& p, const OpContext& context) {
  if (p.x.empty()) return;
  const NormScratch scratch(context.workspace, p.x.cols, pool_.num_threads());
  const float* const weight =
      p.weight.data == nullptr ? nullptr : cpu::float_row(p.weight, 0, scratch.weight);
  const std::int64_t rows = cpu::active_rows(p.row_count, p.x.rows);
  pool_.parallel_for(rows, cpu::row_grain(p.x.cols),
                     [&](std::int64_t begin, std::int64_t end, int thread_idx) {
                       float* const row = scratch.rows + thread_idx * scratch.row_floats;
                       for (std::int64_t r = begin; r < end; ++r) {
                         const float* const x = cpu::float_row(p.x, r, row);
                         float* const out = cpu::result_row(p.out, r, row);
                         cpu::rms_norm_row(rows_, x, weight, p.x.cols, p.eps, out);
                         cpu::finish_row(p.out, r, out);
                       }
                     });
}

}  // namespace dsv4
