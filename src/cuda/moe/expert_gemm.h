// expert_gemm.h: what the kernels of the expert GEMMs take. The kernel: expert_gemm.cuh; the shapes
// it comes in: expert_shapes.h; launching one: expert_gate_up.cu, expert_down.cu.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/nvfp4_decode.h"
#include "cuda/moe/expert_layout.h"
#include "cuda/moe/expert_shapes.h"
#include "tensor/matrix_view.h"

namespace dsv4::cuda {

struct ExpertGemmArgs {
  const std::byte* packed = nullptr;  // experts of expert_bytes each, as expert_layout.h says
  std::int64_t expert_bytes = 0;
  std::int64_t factors_offset = 0;
  int slabs = 0;   // of an expert
  int chunks = 0;  // of a slab

  const std::byte* x = nullptr;  // BF16
  std::uint32_t x_row_bytes = 0;
  int x_cols = 0;
  const std::int32_t* row_tokens = nullptr;
  const std::int32_t* expert_offsets = nullptr;
  int num_experts = 0;

  const float* row_weights = nullptr;  // gate_up; null: 1
  float swiglu_limit = 0;              // gate_up; 0: none
  const float* out_global_scales = nullptr;
  MutableMatrixView out;
  E2m1Multipliers multipliers;
};

// How x comes into the stages: each row by itself, by a thread's copies (row_tokens, any columns),
// or a tile's rows, neighbours in x, by one tensor copy a stage.
enum class TokenCopies { kRows, kTiles };

// For kTiles the descriptions of x in boxes of kStep, 2 kStep, ..., kMaxTile rows by the columns of
// a stage; for kRows nothing.
template <class Shape, TokenCopies kCopies>
struct TokenMaps {};
template <class Shape>
struct TokenMaps<Shape, TokenCopies::kTiles> {
  static constexpr int kStep = Shape::kMaxTile > 48 ? 16 : 8;
  static constexpr int kCount = Shape::kMaxTile / kStep;
  static_assert(Shape::kMaxTile % kStep == 0);
  CUtensorMap boxes[kCount];
  // Rows of the smallest box for a tile.
  static DSV4_HOST_DEVICE int box_rows(int rows) { return (rows + kStep - 1) / kStep * kStep; }
};

// Bytes of shared memory of a CTA.
template <class Shape, int kQuantBlock>
constexpr int stage_bytes() {
  const int weights = Shape::kWarpgroups * Shape::kStageChunks * chunk_bytes(kQuantBlock);
  // wgmma's swizzle wants the tokens on a multiple of 1,024.
  return (weights + 1023) / 1024 * 1024 + Shape::kStageChunks * Shape::kMaxTokenChunkBytes;
}

}  // namespace dsv4::cuda
