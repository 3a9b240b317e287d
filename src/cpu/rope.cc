// Rotary position embedding: FP64 sines and cosines of the FP32 angle, once a token for all of its
// heads; each rotated value is rounded once.
#include "ops/rope.h"

#include <cmath>

#include "cpu/cpu_backend.h"
#include "cpu/row_math.h"

namespace dsv4 {
namespace {

// The rotations of one token: cosine and sine of each pair.
void fill_rotations(const RopeParams& p, std::int64_t token, double* rotations) {
  const auto position = static_cast<float>(p.positions[token]);
  for (int i = 0; i < p.rope_dim / 2; ++i) {
    const float angle = position * p.frequencies[i];  // the FP32 product, see the contract
    rotations[2 * i] = std::cos(static_cast<double>(angle));
    rotations[2 * i + 1] = std::sin(static_cast<double>(p.inverse ? -angle : angle));
  }
}

void rotate(const double* rotations, int rope_dim, float* x) {
  for (int i = 0; i < rope_dim; i += 2) {
    const double re = x[i];
    const double im = x[i + 1];
    x[i] = static_cast<float>(re * rotations[i] - im * rotations[i + 1]);
    x[i + 1] = static_cast<float>(re * rotations[i + 1] + im * rotations[i]);
  }
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const RopeParams& p) const {
  cpu::Scratch scratch(nullptr);
  scratch.take<double>(pool_.num_threads() * p.rope_dim);
  scratch.take<float>(pool_.num_threads() * p.rope_dim);
  return scratch.bytes();
}

void CpuBackend::compute(const RopeParams& p, const OpContext& context) {
  if (p.rope_dim == 0) return;
  cpu::Scratch scratch(context.workspace);
  double* const all_rotations = scratch.take<double>(pool_.num_threads() * p.rope_dim);
  float* const all_values = scratch.take<float>(pool_.num_threads() * p.rope_dim);
  const std::int64_t head_dim = p.x.cols / p.num_heads;
  // The sines of a token take as long as rotating some 2000 values.
  const std::int64_t grain = cpu::row_grain(2048 + std::int64_t{p.num_heads} * p.rope_dim);
  pool_.parallel_for(p.x.rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    double* const rotations = all_rotations + thread_idx * p.rope_dim;
    for (std::int64_t token = begin; token < end; ++token) {
      if (p.positions[token] == -1) continue;
      fill_rotations(p, token, rotations);
      for (int head = 0; head < p.num_heads; ++head) {
        MutableMatrixView part = p.x;
        part.data = static_cast<std::byte*>(p.x.data) +
                    data_bytes(p.x.format, (head + 1) * head_dim - p.rope_dim);
        part.cols = p.rope_dim;
        float* const scratch_row = all_values + thread_idx * p.rope_dim;
        cpu::float_row(part, token, scratch_row);
        float* const x = cpu::result_row(part, token, scratch_row);
        rotate(rotations, p.rope_dim, x);
        cpu::finish_row(part, token, x);
      }
    }
  });
}

}  // namespace dsv4
