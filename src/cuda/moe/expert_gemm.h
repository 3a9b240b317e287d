// expert_gemm.h: what the kernels of the expert GEMMs take, and the shapes they come in. The
// kernel: expert_gemm.cuh; choosing and launching one: expert_gate_up.cu, expert_down.cu.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device/nvfp4_decode.h"
#include "cuda/moe/expert_layout.h"
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

// One kernel: kWarpgroups consumers, each of which multiplies a slab of 64 packed rows by a tile of
// up to kMaxTile tokens, and kProducerWarps that fill a ring of kStages stages of kStageChunks
// chunks. A tile is as narrow as its tokens allow, in steps of 8; whatever its width, and whichever
// kernel, a token's products are summed in the order of k by the same instruction.
template <int kWarpgroups_, int kMaxTile_, int kStageChunks_, int kStages_, int kProducerWarps_,
          int kCtas_, int kGroupSteps_, int kPending_, int kConsumerRegisters_ = 0,
          int kProducerRegisters_ = 0>
struct ExpertGemmShape {
  static constexpr int kWarpgroups = kWarpgroups_;
  static constexpr int kMaxTile = kMaxTile_;
  static constexpr int kStageChunks = kStageChunks_;
  static constexpr int kStages = kStages_;
  static constexpr int kProducerWarps = kProducerWarps_;
  static constexpr int kCtas = kCtas_;  // on one SM
  // wgmma steps of a commit group, whose fragments of A are held at once.
  static constexpr int kGroupSteps = kGroupSteps_;
  static constexpr int kPending = kPending_;  // groups in flight while the next is decoded
  // Registers of a thread after the exchange between warps; 0: none is made.
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = kProducerRegisters_;

  static constexpr int kThreads = kWarpgroups * 128 + kProducerWarps * 32;
  static constexpr int kMaxTokenChunkBytes = kMaxTile * kChunkCols * 2;
  static_assert(kMaxTile % 8 == 0 && kMaxTile <= 160);
  static_assert(kChunkMultiple % kStageChunks == 0);
  // Fragments go round kPending + 1 buffers, and every stage starts with the first.
  static_assert(kStageChunks * 4 / kGroupSteps % (kPending + 1) == 0);
};

// The kernels, by the tokens that a tile can have:
//   few: one slab a CTA, three CTAs an SM: small units, since there are few
//   shared: four slabs a CTA share the tokens, the deepest pipeline: the weights' bytes bind
//   some: the same, with room for the sums of 48 tokens
//   many: the same, with room for the sums of 128 tokens
//   wide: three slabs, for experts of somewhat more than 128, which would be two narrow tiles
using FewTokens = ExpertGemmShape<1, 16, 4, 4, 1, 3, 4, 1>;
using SharedTokens = ExpertGemmShape<4, 16, 4, 5, 1, 1, 4, 1>;
using SomeTokens = ExpertGemmShape<4, 48, 4, 3, 4, 1, 4, 1>;
using ManyTokens = ExpertGemmShape<4, 128, 2, 4, 4, 1, 2, 0, 112, 32>;
using WideTokens = ExpertGemmShape<3, 160, 2, 3, 4, 1, 2, 0, 152, 40>;

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
