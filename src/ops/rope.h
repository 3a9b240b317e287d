// rope.h: rotary position embedding of the last rope_dim values of every head, and its table.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// How a layer's frequencies are made. factor 1: plain; otherwise YaRN without magnitude factor.
struct RopeScaling {
  double base = 10000;
  double factor = 1;
  std::int64_t original_length = 0;  // L0, positions the model was first trained on
  double beta_fast = 32;
  double beta_slow = 1;
};
// f_i, i < rope_dim / 2, in radians a position: base^(-2i/R), and with YaRN
// f_i / s * ramp_i + f_i * (1 - ramp_i) where ramp runs over [floor c(beta_fast), ceil
// c(beta_slow)], c(b) = R ln(L0 / (2 pi b)) / (2 ln base).
std::vector<float> rope_frequencies(const RopeScaling& scaling, int rope_dim);

// Rotates pairs (2i, 2i+1) of the last rope_dim values of each head by the angle
// position * frequencies[i], an FP32 product whose sine and cosine are accurate for any size (at a
// million tokens an FP64 product differs by 0.04 rad from what the model was trained with).
struct RopeParams {
  static constexpr std::string_view kOpName = "rope";
  MutableMatrixView x;  // [tokens, num_heads * head_dim], kF32 or kBf16, rotated in place
  int num_heads = 1;
  int rope_dim = 0;
  const float* frequencies = nullptr;       // [rope_dim / 2]
  const std::int32_t* positions = nullptr;  // [tokens], -1: inactive
  bool inverse = false;                     // the conjugate rotation
};
void check(const RopeParams& p);
Cost cost(const RopeParams& p);

}  // namespace dsv4
