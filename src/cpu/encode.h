// encode.h: values to codes and to rounded values, for the ops that quantise rows (quantize.cc) and
// that write cache rows (kv_write.cc). The bits are those of numerics/ on every input.
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/e2m1.h"

namespace dsv4::cpu {

struct EncodeKernels {
  // As the functions of numerics/ with these names, where nothing else is said.
  float (*amax)(const float* x, std::int64_t n);
  std::uint8_t (*encode_e4m3_block)(const float* x, int n, std::uint8_t* codes);
  std::uint8_t (*encode_mxfp4_block)(const float* x, std::uint8_t* codes);
  // As encode_nvfp4_block on each 16 of x [n]: codes [n / 2], block_scales [n / 16].
  void (*encode_nvfp4_blocks)(const float* x, std::int64_t n, float global_scale,
                              std::uint8_t* codes, std::uint8_t* block_scales,
                              E2m1Rounding rounding);
  std::uint8_t (*encode_nvfp4_block_four_over_six)(const float* x, float global_scale,
                                                   std::uint8_t* codes, E2m1Rounding rounding);
  // codes[i] = encode_e4m3(x[i] / divisor); quotients must not be NaN.
  void (*encode_e4m3_values)(const float* x, std::int64_t n, float divisor, std::uint8_t* codes);
  void (*encode_bf16_values)(const float* x, std::int64_t n, std::byte* bits);  // of any alignment
  // x [n], or [32], becomes what decoding its block gives back.
  void (*round_e4m3_block)(float* x, int n);
  void (*round_mxfp4_block)(float* x);
  // x [n], n a power of two, becomes its Hadamard transform: stages of sums and differences in
  // FP64, neighbours first, rounded once. y [n] is scratch.
  void (*hadamard)(float* x, std::int64_t n, double* y);
};

// The best kernels among `targets` (cpu_backend.h).
const EncodeKernels& encode_kernels(std::int64_t targets);

}  // namespace dsv4::cpu
