// attend.h: the kernels of attention over decoded rows: softmax of scores, and the weighted sum of
// values. Which rows, and the scores themselves: attention.cc.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensor/kv_rows.h"

namespace dsv4::cpu {

// Of one head's scores: their maximum (-inf without rows) and the sum of exp(score - maximum).
struct SoftmaxSums {
  float max;
  float sum;
};

// 1 / (sum of exp(score - maximum) + exp(sink - maximum)); 0 if the sink takes all the weight. The
// sink is -inf for none.
inline double inverse_denominator(const SoftmaxSums& sums, float sink) {
  return 1 / (sums.sum + std::exp(static_cast<double>(sink) - sums.max));
}
inline float lse_of(const SoftmaxSums& sums) {
  return static_cast<float>(sums.max + std::log(static_cast<double>(sums.sum)));
}

// acc[h][i] += weights[h][r] * values[r][i] by fused multiply-adds, rows ascending, for h <
// num_heads, r < num_rows, i < width. Strides are in elements.
struct ValueCall {
  const float* weights = nullptr;
  std::int64_t weight_stride = 0;
  const float* values = nullptr;
  std::int64_t value_stride = 0;
  float* acc = nullptr;
  std::int64_t acc_stride = 0;
  int num_heads = 0;
  std::int64_t num_rows = 0;
  std::int64_t width = 0;  // a multiple of 16
  bool first = false;      // acc starts as 0 instead
};

struct AttendKernels {
  // A cache row of any kind into out [padded(width)], zeros behind width. As decode_kv_row.
  void (*decode_row)(const RowLayout& layout, const std::byte* data, const std::byte* scales,
                     float* out);
  // scores [n], padded to whole lanes, become exp(score * softmax_scale - maximum). The sum has
  // sixteen lanes, score r in lane r mod 16, then the halving tree of lanes-inl.h.
  SoftmaxSums (*softmax)(float* scores, std::int64_t n, float softmax_scale);
  void (*accumulate)(const ValueCall& call);
};
const AttendKernels& attend_kernels(std::int64_t targets);

}  // namespace dsv4::cpu
