// expert_tile_producer.cuh: the one thread that fills the stages of an expert GEMM whose rows lie
// in the order of experts: weights by bulk copies, tokens by a tensor copy, which makes wgmma's
// swizzle. Gathered rows: expert_producer.cuh.
#pragma once

#include "cuda/moe/expert_producer.cuh"

namespace dsv4::cuda {

template <class Shape, int kQuantBlock>
class ExpertTileProducer {
 public:
  using Maps = TokenMaps<Shape, TokenCopies::kTiles>;

  __device__ ExpertTileProducer(const ExpertGemmArgs& args, const Maps& maps,
                                ExpertShared<Shape>& shared, std::byte* stages)
      : args_(args),
        maps_(maps),
        shared_(shared),
        stages_(stages),
        is_issuer_(threadIdx.x % 32 == 0) {}

  // A warp's.
  __device__ void run(const ExpertUnits& units) {
    for (int unit = blockIdx.x;; unit += gridDim.x) {
      const ExpertTile tile = locate_unit<Shape>(args_, units, unit);
      if (tile.expert < 0) break;
      fill(tile);
    }
    // A stage without data ends the consumers.
    mbarrier_wait_parity(&shared_.empty[ring_.stage], ring_.phase ^ 1);
    if (!is_issuer_) return;
    shared_.tiles[ring_.stage].expert = -1;
    ::cuda::ptx::mbarrier_arrive(&shared_.full[ring_.stage]);
  }

 private:
  static constexpr int kStageBytes = stage_bytes<Shape, kQuantBlock>();
  static constexpr int kTokensOffset =
      kStageBytes - Shape::kStageChunks * Shape::kMaxTokenChunkBytes;

  __device__ void fill(const ExpertTile& tile) {
    const ExpertWeights<Shape, kQuantBlock> weights(args_, tile);
    const int rows = Maps::box_rows(tile.rows);
    const CUtensorMap* const box = &maps_.boxes[rows / Maps::kStep - 1];
    const std::uint32_t bytes = rows * kChunkCols * 2 * Shape::kStageChunks;
    const int num_stages = args_.chunks / Shape::kStageChunks;
#pragma unroll 1
    for (int s = 0; s < num_stages; ++s) {
      mbarrier_wait_parity(&shared_.empty[ring_.stage], ring_.phase ^ 1);
      if (is_issuer_) {
        std::byte* const stage = stages_ + ring_.stage * kStageBytes;
        std::uint64_t* const full = &shared_.full[ring_.stage];
        if (s == 0) shared_.tiles[ring_.stage] = tile;
        weights.load(stage, s, bytes, full);
        // Columns and rows past x's are zeros; rows of the next expert go nowhere.
        const std::int32_t at[3] = {0, tile.row, s * Shape::kStageChunks};
        ::cuda::ptx::cp_async_bulk_tensor(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                          stage + kTokensOffset, box, at, full);
      }
      __syncwarp();
      ring_.template advance<Shape::kStages>();
    }
  }

  const ExpertGemmArgs& args_;
  const Maps& maps_;
  ExpertShared<Shape>& shared_;
  std::byte* stages_;
  bool is_issuer_;
  RingPosition ring_;
};

}  // namespace dsv4::cuda
