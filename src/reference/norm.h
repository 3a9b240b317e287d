// norm.h: the root-mean-square norm of one row, for the ops that contain one.
#pragma once

#include <cstdint>

namespace dsv4 {

// rsqrt(mean(x^2) + eps) of x [n], n > 0.
double inverse_rms(const float* x, std::int64_t n, float eps);

// x[k] <- x[k] * inverse_rms(x) * weight[k], rounded to FP32 once; weight null: none. Rounding
// every product adds an ulp, enough to push a cache value over a near-tie of its FP8 code.
void rms_norm_row(float* x, const float* weight, std::int64_t n, float eps);

}  // namespace dsv4
