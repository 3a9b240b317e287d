// expert_producer.cuh: the warps that fill the stages of an expert GEMM: weights by bulk copies,
// the tile's tokens by 16-byte copies into wgmma's swizzle, gathered by row_tokens.
#pragma once

#include <cuda/ptx>

#include "cuda/device/async_copy.h"
#include "cuda/device/matrix_load.h"
#include "cuda/device/warpgroup.h"
#include "cuda/moe/expert_tiles.cuh"

namespace dsv4::cuda {

template <class Shape>
struct ExpertShared {
  std::uint64_t full[Shape::kStages];   // arrivals: every producer thread's copies, the weights
  std::uint64_t empty[Shape::kStages];  // arrivals: every consumer warp
  ExpertTile tiles[Shape::kStages];     // written with a tile's first stage
  alignas(16) float row_weights[Shape::kStages][Shape::kMaxTile];  // written with its last
  std::uint32_t row_offsets[Shape::kMaxTile];  // bytes from x; the producers' own
};

struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;

  template <int kStages>
  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    phase ^= 1;
  }
};

// The bulk copies of a unit's weights into stages. Of the last slabs' group there may be fewer than
// a CTA takes: what its other warpgroups then multiply is never stored.
template <class Shape, int kQuantBlock>
struct ExpertWeights {
  static constexpr int kChunkBytes = chunk_bytes(kQuantBlock);

  const std::byte* from;
  std::int64_t slab_bytes;
  int slabs;

  __device__ ExpertWeights(const ExpertGemmArgs& args, const ExpertTile& tile)
      : slab_bytes(static_cast<std::int64_t>(args.chunks) * kChunkBytes),
        slabs(min(Shape::kWarpgroups, args.slabs - tile.slab)) {
    from = args.packed + tile.expert * args.expert_bytes + tile.slab * slab_bytes;
  }
  // Stage s of the unit; announces its bytes, and `other_bytes`, to `full`. One thread's.
  __device__ __forceinline__ void load(std::byte* stage, int s, std::uint32_t other_bytes,
                                       std::uint64_t* full) const {
    constexpr std::uint32_t kSlabBytes = Shape::kStageChunks * kChunkBytes;  // of a stage
    ::cuda::ptx::mbarrier_arrive_expect_tx(::cuda::ptx::sem_release, ::cuda::ptx::scope_cta,
                                           ::cuda::ptx::space_shared, full,
                                           slabs * kSlabBytes + other_bytes);
#pragma unroll
    for (int i = 0; i < Shape::kWarpgroups; ++i) {
      if (i >= slabs) break;
      ::cuda::ptx::cp_async_bulk(::cuda::ptx::space_cluster, ::cuda::ptx::space_global,
                                 stage + i * kSlabBytes, from + i * slab_bytes + s * kSlabBytes,
                                 kSlabBytes, full);
    }
  }
};

template <class Shape, int kQuantBlock>
class ExpertProducer {
 public:
  // `warp`: of the producers, 0 ..
  __device__ ExpertProducer(const ExpertGemmArgs& args, ExpertShared<Shape>& shared,
                            std::byte* stages, int warp)
      : args_(args), shared_(shared), stages_(stages), warp_(warp), lane_(threadIdx.x % 32) {}

  __device__ void run(const ExpertUnits& units) {
    for (int unit = blockIdx.x;; unit += gridDim.x) {
      const ExpertTile tile = locate_unit<Shape>(args_, units, unit);
      if (tile.expert < 0) break;
      find_rows(tile);
      fill(tile);
    }
    // A stage without data ends the consumers.
    mbarrier_wait_parity(&shared_.empty[ring_.stage], ring_.phase ^ 1);
    if (warp_ == 0 && lane_ == 0) {
      shared_.tiles[ring_.stage].expert = -1;
      ::cuda::ptx::mbarrier_arrive(&shared_.full[ring_.stage]);
    }
    cp_async_mbarrier_arrive(&shared_.full[ring_.stage]);
    cp_async_wait_all();
  }

 private:
  static constexpr int kStageBytes = stage_bytes<Shape, kQuantBlock>();
  static constexpr int kTokensOffset =
      kStageBytes - Shape::kStageChunks * Shape::kMaxTokenChunkBytes;
  // A warp copies kPieces pieces of 16 bytes of each of kRowsAtOnce rows, kRounds times. A lane
  // keeps the offsets of its rows, kRowStep apart, in registers.
  static constexpr int kStagePieces = Shape::kStageChunks * 8;
  static constexpr int kPieces = Shape::kProducerWarps > 1 ? 16 : kStagePieces;
  static constexpr int kRounds = kStagePieces / kPieces;
  static constexpr int kRowsAtOnce = 32 / kPieces;
  static constexpr int kRowStep = Shape::kProducerWarps * kRowsAtOnce;
  static constexpr int kLaneRows = Shape::kMaxTile / kRowStep;
  static_assert(kStagePieces % kPieces == 0 && kPieces <= 32);
  static_assert(Shape::kMaxTile % kRowStep == 0 && (kRowStep & (kRowStep - 1)) == 0);

  __device__ void find_rows(const ExpertTile& tile) {
    sync_producers();  // nobody reads the last tile's offsets any more
    const int rows = (tile.rows + 7) / 8 * 8;
    for (int r = warp_ * 32 + lane_; r < rows; r += Shape::kProducerWarps * 32) {
      const int row = tile.row + min(r, tile.rows - 1);  // the last again fills up to eight
      const int x_row = args_.row_tokens == nullptr ? row : args_.row_tokens[row];
      shared_.row_offsets[r] = static_cast<std::uint32_t>(x_row) * args_.x_row_bytes;
    }
    sync_producers();
  }

  __device__ void fill(const ExpertTile& tile) {
    const int piece = lane_ % kPieces;
    const int first_row = warp_ * kRowsAtOnce + lane_ / kPieces;  // below kRowStep
    std::uint32_t offsets[kLaneRows];
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      if (i * kRowStep < tile.rows) {
        offsets[i] = shared_.row_offsets[first_row + i * kRowStep] + piece * 16;
      }
    }
    const ExpertWeights<Shape, kQuantBlock> weights(args_, tile);
    const int num_stages = args_.chunks / Shape::kStageChunks;
#pragma unroll 1
    for (int s = 0; s < num_stages; ++s) {
      std::uint64_t* const full = &shared_.full[ring_.stage];
      mbarrier_wait_parity(&shared_.empty[ring_.stage], ring_.phase ^ 1);
      std::byte* const stage = stages_ + ring_.stage * kStageBytes;
      if (warp_ == 0) {
        if (lane_ == 0) {
          if (s == 0) shared_.tiles[ring_.stage] = tile;
          weights.load(stage, s, 0, full);
        }
        if (s == num_stages - 1) load_row_weights(tile);
      }
      // Columns past the last are zeros: whatever x holds there, a NaN too, must not meet a weight.
      const int col = s * Shape::kStageChunks * kChunkCols + piece * 8;
      std::uint32_t bytes[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) bytes[i] = col + i * kPieces * 8 < args_.x_cols ? 16 : 0;
      const std::byte* const x = args_.x + s * (Shape::kStageChunks * kChunkCols * 2);
      const std::uint32_t to = shared_address(stage) + kTokensOffset + place(first_row, piece);
#pragma unroll
      for (int i = 0; i < kLaneRows; ++i) {
        if (i * kRowStep >= tile.rows) break;
        // place() of row first_row + i kRowStep, whose bits do not overlap.
        copy_row((to ^ i * kRowStep % 8 * 16) + i * kRowStep * 128, x + offsets[i], bytes);
      }
      cp_async_mbarrier_arrive(full);
      ring_.template advance<Shape::kStages>();
    }
  }

  // Offset of 16-byte piece `piece` of row `row` of a stage's tokens.
  static __device__ std::uint32_t place(int row, int piece) {
    return piece / 8 * Shape::kMaxTokenChunkBytes + row * 128 + ((piece ^ row) % 8) * 16;
  }
  static __device__ void copy_row(std::uint32_t to, const std::byte* from,
                                  const std::uint32_t (&bytes)[kRounds]) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      cp_async_16(to + i * (kPieces / 8) * Shape::kMaxTokenChunkBytes, from + i * kPieces * 16,
                  bytes[i]);
    }
  }

  __device__ void load_row_weights(const ExpertTile& tile) {
    for (int r = lane_; r < tile.rows; r += 32) {
      shared_.row_weights[ring_.stage][r] =
          args_.row_weights == nullptr ? 1.0f : args_.row_weights[tile.row + r];
    }
    __threadfence_block();  // the arrival of copies orders no plain store
  }

  static __device__ void sync_producers() {
    if constexpr (Shape::kProducerWarps == 1) {
      __syncwarp();
    } else {
      bar_sync(1, Shape::kProducerWarps * 32);
    }
  }

  const ExpertGemmArgs& args_;
  ExpertShared<Shape>& shared_;
  std::byte* stages_;
  int warp_;
  int lane_;
  RingPosition ring_;
};

}  // namespace dsv4::cuda
