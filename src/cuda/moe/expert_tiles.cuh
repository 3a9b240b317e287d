// expert_tiles.cuh: which work there is, from the expert offsets on the device: units of a tile of
// an expert's rows by a CTA's slabs, in the order of experts, slabs, tiles. Tiles of the same slabs
// lie next to each other, so that their weights are read from memory once.
#pragma once

#include "cuda/moe/expert_gemm.h"

namespace dsv4::cuda {

struct ExpertTile {
  int expert;  // -1: there is no more
  int slab;    // the first of the CTA's
  int row;     // the first
  int rows;    // 1 ..
  int width;   // the tile's columns, a multiple of 8: rows, filled up
};

// For each expert its first row and where its units end, in shared memory.
struct ExpertUnits {
  int* ends;     // [experts]
  int* offsets;  // [experts + 1]
};

// All threads of the CTA take part; ends with a barrier.
template <class Shape>
__device__ void count_units(const ExpertGemmArgs& args, const ExpertUnits& units) {
  for (int e = threadIdx.x; e <= args.num_experts; e += Shape::kThreads) {
    units.offsets[e] = args.expert_offsets[e];
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    const int slab_groups = (args.slabs + Shape::kWarpgroups - 1) / Shape::kWarpgroups;
    const int share = (args.num_experts + 31) / 32;
    const int first = min(lane * share, args.num_experts);
    const int last = min(first + share, args.num_experts);
    const auto units_of = [&](int e) {
      const int rows = units.offsets[e + 1] - units.offsets[e];
      return (rows + Shape::kMaxTile - 1) / Shape::kMaxTile * slab_groups;
    };
    int sum = 0;
    for (int e = first; e < last; ++e) sum += units_of(e);
    int end = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(~0u, end, distance);
      if (lane >= distance) end += before;
    }
    end -= sum;
    for (int e = first; e < last; ++e) units.ends[e] = end += units_of(e);
  }
  __syncthreads();
}

// The whole warp takes part, with the same unit.
template <class Shape>
__device__ ExpertTile locate_unit(const ExpertGemmArgs& args, const ExpertUnits& units, int unit) {
  if (unit >= units.ends[args.num_experts - 1]) return {-1, 0, 0, 0, 0};
  int before = 0;  // experts whose units all come before
  for (int e = threadIdx.x % 32; e < args.num_experts; e += 32) before += units.ends[e] <= unit;
  ExpertTile tile;
  tile.expert = __reduce_add_sync(~0u, before);
  const int idx = unit - (tile.expert == 0 ? 0 : units.ends[tile.expert - 1]);
  const int row = units.offsets[tile.expert];
  const int rows = units.offsets[tile.expert + 1] - row;
  const int tiles = (rows + Shape::kMaxTile - 1) / Shape::kMaxTile;
  // Tiles as equal as multiples of 8 allow.
  tile.width = ((rows + tiles - 1) / tiles + 7) / 8 * 8;
  const int tile_idx = idx % tiles;
  tile.slab = idx / tiles * Shape::kWarpgroups;
  tile.row = row + tile_idx * tile.width;
  tile.rows = min(tile.width, rows - tile_idx * tile.width);
  return tile;
}

}  // namespace dsv4::cuda
