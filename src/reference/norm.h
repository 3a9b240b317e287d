// norm.h: the root-mean-square norm of one row, for the ops that contain one.
#pragma once

#include <cstdint>

namespace dsv4 {

// rsqrt(mean(x^2) + eps) of x [n], n > 0: the mean in FP64, rounded once to FP32 at the end.
float inverse_rms(const float* x, std::int64_t n, float eps);

// x[k] <- x[k] * inverse_rms(x) * weight[k], each product rounded to FP32; weight null: none.
void rms_norm_row(float* x, const float* weight, std::int64_t n, float eps);

}  // namespace dsv4
