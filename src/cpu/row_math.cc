// Arithmetic on whole rows. Loops over fixed blocks of sixteen, which compilers turn into vectors;
// nothing is contracted, so the bits are those of the plain loop.
#include "cpu/row_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/row_math.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lane_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

double square_sum(const float* x, std::int64_t n) {
  double lanes[kLanes] = {};
  std::int64_t k = 0;
  for (; k + kLanes <= n; k += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const double value = x[k + l];
      lanes[l] += value * value;
    }
  }
  for (int l = 0; k + l < n; ++l) {
    const double value = x[k + l];
    lanes[l] += value * value;
  }
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  }
  return lanes[0];
}

void scale_row(const float* x, double factor, const float* weight, std::int64_t n, float* out) {
  if (weight == nullptr) {
    for (std::int64_t k = 0; k < n; ++k) out[k] = static_cast<float>(x[k] * factor);
  } else {
    for (std::int64_t k = 0; k < n; ++k) out[k] = static_cast<float>(x[k] * factor * weight[k]);
  }
}

void exp_nonpositive_row(const float* x, std::int64_t n, float* out) {
  for (std::int64_t k = 0; k < n; k += kLanes) {
    store_n(exp_nonpositive(load_n(x + k, n - k)), n - k, out + k);
  }
}

const RowKernels& row_math_kernels() {
  static constexpr RowKernels kKernels = {&square_sum, &scale_row, &exp_nonpositive_row};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(row_math_kernels);

const RowKernels& row_kernels(std::int64_t targets) {
  return DSV4_CPU_KERNEL(row_math_kernels, targets)();
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
