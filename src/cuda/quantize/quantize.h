// quantize.h: the ops that quantise on Hopper, behind ops/quantize.h: which params they take, and
// their launches. Design and measurements: docs/kernels/quantize.md.
#pragma once

#include <cuda_runtime_api.h>

#include "ops/quantize.h"

namespace dsv4::cuda {

// Rows and row strides below 2^31, without four over six.
Support supports_quantize(const QuantizeParams& p);
void launch_quantize(const QuantizeParams& p, cudaStream_t stream);
Support supports_swiglu_quantize(const SwigluQuantizeParams& p);
void launch_swiglu_quantize(const SwigluQuantizeParams& p, cudaStream_t stream);

}  // namespace dsv4::cuda
