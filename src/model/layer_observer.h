// layer_observer.h: what a forward pass shows to those who verify a model or calibrate it.
#pragma once

#include <cstdint>

#include "tensor/matrix_view.h"

namespace dsv4 {

// What enters a layer's routed experts, before any quantisation. R = tokens * experts_per_token.
struct ExpertInputs {
  MatrixView x;                        // [tokens, h]: enters gate and up
  MatrixView inter;                    // [R, expert_inter], expert-major: enters down
  const std::int32_t* expert_offsets;  // [num_experts + 1], the rows of `inter` of each expert
  const std::int32_t* row_tokens;      // [R], the row of `x` that each of them came from
  int num_experts = 0;
};

// Sees, and may replace, what flows between layers. Views and pointers are device memory, valid
// during the call. Layers are those of the trunk.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  // Residual copies [tokens, hc * h] before layer `layer_idx`; what it leaves there is computed on.
  virtual void before_layer(int /*layer_idx*/, const MutableMatrixView& /*residuals*/) {}
  // Sublayer outputs [tokens, h]: after the output projection; routed + shared experts.
  virtual void after_attention(int /*layer_idx*/, const MatrixView& /*out*/) {}
  virtual void expert_inputs(int /*layer_idx*/, const ExpertInputs& /*inputs*/) {}
  virtual void after_experts(int /*layer_idx*/, const MatrixView& /*out*/) {}
  virtual void after_layer(int /*layer_idx*/, const MatrixView& /*residuals*/) {}
};

}  // namespace dsv4
