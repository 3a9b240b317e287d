// expert_shapes.h: the shapes that the kernels of the expert GEMMs come in, and which of them takes
// how many rows. The kernel: expert_gemm.cuh.
#pragma once

#include <cstdint>

#include "cuda/moe/expert_layout.h"

namespace dsv4::cuda {

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
  static constexpr int kRingCols = kStages * kStageChunks * kChunkCols;  // that the ring holds
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

// Calls use(Shape()) with the shape for `rows` rows of `num_experts` experts, at least one.
template <class Use>
void with_shape_for(std::int64_t rows, int num_experts, const Use& use) {
  // Rows of an expert if all have the same number. docs/kernels/moe.md has the measurements.
  const std::int64_t expert_rows = rows / num_experts;
  // What SharedTokens' stages leave of shared memory has room for the offsets of 512 experts.
  const bool shared = rows >= 128 && num_experts <= 512;
  if (expert_rows <= 6 && !shared) {
    use(FewTokens());
  } else if (expert_rows <= 6) {
    use(SharedTokens());
  } else if (expert_rows <= 40) {
    use(SomeTokens());
  } else if (expert_rows <= 116 || expert_rows > 150) {
    use(ManyTokens());
  } else {
    use(WideTokens());
  }
}

}  // namespace dsv4::cuda
