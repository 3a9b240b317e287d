// expert_consumer.cuh: the warpgroups of an expert GEMM: weights from shared memory to BF16
// fragments, times the tile's tokens.
#pragma once

#include <type_traits>
#include <utility>

#include "cuda/device/wgmma.h"
#include "cuda/moe/expert_producer.cuh"

namespace dsv4::cuda {

// f(integral_constant 0), ..., f(kCount - 1): loops whose buffers must be known to the compiler.
template <class Function, int... kIdx>
__device__ __forceinline__ void unrolled(const Function& f, std::integer_sequence<int, kIdx...>) {
  (f(std::integral_constant<int, kIdx>{}), ...);
}
template <int kCount, class Function>
__device__ __forceinline__ void unrolled(const Function& f) {
  unrolled(f, std::make_integer_sequence<int, kCount>{});
}

template <class Shape, int kQuantBlock, class Epilogue, TokenCopies kCopies>
class ExpertConsumer {
 public:
  __device__ ExpertConsumer(const ExpertGemmArgs& args, ExpertShared<Shape>& shared,
                            std::byte* stages)
      : args_(args),
        shared_(shared),
        stages_(shared_address(stages)),
        warpgroup_(__shfl_sync(~0u, threadIdx.x / 128, 0)),
        thread_(threadIdx.x % 128) {}

  __device__ void run(const Epilogue& epilogue) {
    while (true) {
      mbarrier_wait_parity(&shared_.full[ring_.stage], ring_.phase);
      const ExpertTile tile = shared_.tiles[ring_.stage];
      if (tile.expert < 0) return;
      const int slab = tile.slab + warpgroup_;
      // Asked for now, needed at the end. A slab past the last has no factors.
      const int row = min(slab, args_.slabs - 1) * kSlabRows + thread_ / 32 * 16 + thread_ % 32 / 4;
      const float* const factors = reinterpret_cast<const float*>(
          args_.packed + tile.expert * args_.expert_bytes + args_.factors_offset);
      const float row_factors[2] = {__ldg(factors + row), __ldg(factors + row + 8)};
      float sums[Shape::kMaxTile / 2];
#pragma unroll
      for (float& sum : sums) sum = 0;
      const int last_stage = multiply(tile, sums);
      if constexpr (!Epilogue::kTakesRowWeights) release(last_stage);
      if (slab < args_.slabs) {
        epilogue.store(args_, tile, slab, row_factors, shared_.row_weights[last_stage], sums);
      }
      if constexpr (Epilogue::kTakesRowWeights) {  // only now are they read
        __syncwarp();
        release(last_stage);
      }
    }
  }

 private:
  static constexpr int kChunkBytes = chunk_bytes(kQuantBlock);
  static constexpr int kStageBytes = stage_bytes<Shape, kQuantBlock>();
  static constexpr int kTokensOffset =
      kStageBytes - Shape::kStageChunks * Shape::kMaxTokenChunkBytes;
  static constexpr int kGroups = 4 / Shape::kGroupSteps;  // of a chunk
  static constexpr int kBuffers = Shape::kPending + 1;    // of fragments

  struct PackedChunk {
    std::uint32_t words[4];
    FragmentScales<kQuantBlock> scales;
  };

  __device__ void release(int stage) {
    if (thread_ % 32 == 0) ::cuda::ptx::mbarrier_arrive(&shared_.empty[stage]);
  }

  __device__ __forceinline__ PackedChunk load_chunk(std::uint32_t address) const {
    PackedChunk chunk;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(chunk.words[0]), "=r"(chunk.words[1]), "=r"(chunk.words[2]),
                   "=r"(chunk.words[3])
                 : "r"(address + thread_ * 16));
    // Rows g and g + 8 of the warp are neighbours.
    chunk.scales.load(address + kChunkCodeBytes + thread_ / 4 * (128 / kQuantBlock));
    return chunk;
  }

  // Adds all products of the tile to the sums; gives back its last stage, not yet released.
  __device__ __forceinline__ int multiply(const ExpertTile& tile,
                                          float (&sums)[Shape::kMaxTile / 2]) {
    std::uint32_t fragments[kBuffers][Shape::kGroupSteps][4];
    int last_stage = 0;
    const int num_stages = args_.chunks / Shape::kStageChunks;
    // From a chunk's tokens to the next one's, in the descriptor's units of 16 bytes.
    std::uint32_t chunk_step = Shape::kMaxTokenChunkBytes / 16;
    if constexpr (kCopies == TokenCopies::kTiles) {
      const int rows = TokenMaps<Shape, kCopies>::box_rows(tile.rows);
      chunk_step = __shfl_sync(~0u, rows * (kChunkCols * 2 / 16), 0);
    }
#pragma unroll 1
    for (int s = 0; s < num_stages; ++s) {
      if (s > 0) mbarrier_wait_parity(&shared_.full[ring_.stage], ring_.phase);
      // Rows copied by threads were written by the generic proxy, wgmma reads through the async
      // one.
      if constexpr (kCopies == TokenCopies::kRows) {
        ::cuda::ptx::fence_proxy_async(::cuda::ptx::space_shared);
      }
      const std::uint32_t stage = stages_ + ring_.stage * kStageBytes;
      const std::uint32_t weights = stage + warpgroup_ * Shape::kStageChunks * kChunkBytes;
      const std::uint32_t tokens =
          __shfl_sync(~0u, wgmma_descriptor(stage + kTokensOffset), 0);  // a uniform register
      PackedChunk chunks[2];
      chunks[0] = load_chunk(weights);
      unrolled<Shape::kStageChunks>([&](auto chunk_idx) {
        constexpr int c = decltype(chunk_idx)::value;
        if constexpr (c + 1 < Shape::kStageChunks) {
          chunks[(c + 1) % 2] = load_chunk(weights + (c + 1) * kChunkBytes);
        }
        unrolled<kGroups>([&](auto group_idx) {
          constexpr int kGroup = decltype(group_idx)::value;
          auto& a = fragments[(c * kGroups + kGroup) % kBuffers];
          unrolled<Shape::kGroupSteps>([&](auto step) {
            constexpr int i = decltype(step)::value, kStep = kGroup * Shape::kGroupSteps + i;
            decode_fragments(chunks[c % 2].words[kStep],
                             chunks[c % 2].scales.template bf16x2<kStep>(), args_.multipliers,
                             a[i]);
          });
          multiply_group<8, Shape::kMaxTile>(
              sums, a, tokens + c * chunk_step + 2 * kGroup * Shape::kGroupSteps, tile.width);
          // At most this group is in flight: the stage before is read.
          if (c == 0 && kGroup == 0 && s > 0) release(last_stage);
        });
      });
      last_stage = ring_.stage;
      ring_.template advance<Shape::kStages>();
    }
    wgmma_wait_group<0>();
    return last_stage;
  }

  // One commit group, of the instructions of the tile's width, one of kNarrowest, + 8, ...,
  // kWidest. Only these branch: with the loop inside of the branches, or a commit behind them, the
  // compiler serialises every wgmma.
  template <int kNarrowest, int kWidest>
  __device__ __forceinline__ void multiply_group(float (&sums)[Shape::kMaxTile / 2],
                                                 const std::uint32_t (&a)[Shape::kGroupSteps][4],
                                                 std::uint32_t tokens, int width) {
    if constexpr (kNarrowest == kWidest) {
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < Shape::kGroupSteps; ++i) {
        Wgmma<kWidest>::run(reinterpret_cast<float(&)[kWidest / 2]>(sums), a[i], tokens + 2 * i);
      }
      wgmma_commit_group();
      wgmma_wait_group<Shape::kPending>();
    } else {
      constexpr int kMiddle = (kNarrowest + kWidest) / 16 * 8;
      if (width <= kMiddle) {
        multiply_group<kNarrowest, kMiddle>(sums, a, tokens, width);
      } else {
        multiply_group<kMiddle + 8, kWidest>(sums, a, tokens, width);
      }
    }
  }

  const ExpertGemmArgs& args_;
  ExpertShared<Shape>& shared_;
  std::uint32_t stages_;
  int warpgroup_;
  int thread_;
  RingPosition ring_;
};

}  // namespace dsv4::cuda
