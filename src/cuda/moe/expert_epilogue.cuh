// expert_epilogue.cuh: from a tile's sums to the rows of the output: SwiGLU of gate and up, routing
// weight, BF16, FP32 or NVFP4.
//
// A thread of a warpgroup holds sums of packed rows g and g + 8 of its warp's 16, for tokens 2c and
// 2c + 1 of every eight (device/wgmma.h).
#pragma once

#include "cuda/device/convert.h"
#include "cuda/device/warpgroup.h"
#include "cuda/moe/expert_tiles.cuh"
#include "numerics/nvfp4.h"

namespace dsv4::cuda {

// An 8 x 8 matrix of 16-bit elements, rows and columns exchanged across the warp.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-movmatrix
__device__ __forceinline__ std::uint32_t movmatrix_trans(std::uint32_t fragment) {
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(fragment));
  return transposed;
}

// Writes element (row 8 i + 2c + h of the tile, column `col` + g) = values[h], as the thread with g
// and c holds it, if it is one of the tile's rows and of `cols` columns, all of them even.
__device__ __forceinline__ void store_eight(const MutableMatrixView& out, const ExpertTile& tile,
                                            int i, std::int64_t col, const float (&values)[2]) {
  const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  if (out.format == Format::kBf16) {
    // Transposed, a thread has two neighbouring columns of one row, and four of them 16 bytes.
    const std::uint32_t pair = movmatrix_trans(cvt_bf16x2(values[0], values[1]));
    if (8 * i + g >= tile.rows || col + 2 * c >= out.cols) return;
    auto* const row =
        static_cast<std::uint16_t*>(out.data) + (tile.row + 8 * i + g) * out.row_stride;
    *reinterpret_cast<std::uint32_t*>(row + col + 2 * c) = pair;
    return;
  }
  if (col + g >= out.cols) return;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = 8 * i + 2 * c + h;
    if (r >= tile.rows) return;
    static_cast<float*>(out.data)[(tile.row + r) * out.row_stride + col + g] = values[h];
  }
}

template <class Shape>
struct DownEpilogue {
  struct Shared {};
  Shared& shared;

  __device__ __forceinline__ void store(const ExpertGemmArgs& args, const ExpertTile& tile,
                                        int slab, const float (&factors)[2], const float*,
                                        const float (&sums)[Shape::kMaxTile / 2]) const {
    const std::int64_t col =
        static_cast<std::int64_t>(slab) * kSlabRows + threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int i = 0; i < Shape::kMaxTile / 8; ++i) {
      if (8 * i >= tile.rows) break;
      store_eight(args.out, tile, i, col, {sums[4 * i] * factors[0], sums[4 * i + 1] * factors[0]});
      store_eight(args.out, tile, i, col + 8,
                  {sums[4 * i + 2] * factors[1], sums[4 * i + 3] * factors[1]});
    }
  }
};

template <class Shape>
struct GateUpEpilogue {
  struct Shared {
    float amax[Shape::kWarpgroups][4][Shape::kMaxTile];  // of a warp's 8 neurons, for each token
  };
  Shared& shared;

  __device__ __forceinline__ void store(const ExpertGemmArgs& args, const ExpertTile& tile,
                                        int slab, const float (&factors)[2],
                                        const float* row_weights,
                                        float (&sums)[Shape::kMaxTile / 2]) const {
    const std::int64_t neuron = slab * (kSlabRows / 2) + threadIdx.x % 128 / 32 * 8;
    const bool to_nvfp4 = args.out.format == Format::kNvfp4;
#pragma unroll
    for (int i = 0; i < Shape::kMaxTile / 8; ++i) {
      if (8 * i >= tile.rows) break;
      // Past the tile's rows there is no weight; those values go nowhere.
      const auto weights =
          *reinterpret_cast<const float2*>(row_weights + 8 * i + threadIdx.x % 4 * 2);
      const float values[2] = {
          swiglu(sums[4 * i] * factors[0], sums[4 * i + 2] * factors[1], args.swiglu_limit) *
              weights.x,
          swiglu(sums[4 * i + 1] * factors[0], sums[4 * i + 3] * factors[1], args.swiglu_limit) *
              weights.y};
      if (to_nvfp4) {
        sums[4 * i] = values[0];
        sums[4 * i + 1] = values[1];
      } else {
        store_eight(args.out, tile, i, neuron, values);
      }
    }
    if (to_nvfp4) store_nvfp4(args, tile, neuron, sums);
  }

 private:
  // silu(min(gate, limit)) * clamp(up, -limit, limit); NaN stays NaN. exp and the quotient are the
  // fast ones: silu's error is below 4 ulp of a gate that itself carries the GEMM's.
  static __device__ __forceinline__ float swiglu(float gate, float up, float limit) {
    if (limit > 0) {
      gate = gate > limit ? limit : gate;
      up = up > limit ? limit : up < -limit ? -limit : up;
    }
    return __fdividef(gate, 1.0f + __expf(-gate)) * up;
  }

  // A block of 16 neurons lies in two warps, which tell each other their largest values.
  __device__ __forceinline__ void store_nvfp4(const ExpertGemmArgs& args, const ExpertTile& tile,
                                              std::int64_t neuron,
                                              const float (&values)[Shape::kMaxTile / 2]) const {
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32;
    const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    float(*const amax)[Shape::kMaxTile] = shared.amax[warpgroup];
#pragma unroll
    for (int i = 0; i < Shape::kMaxTile / 8; ++i) {
      if (8 * i >= tile.rows) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float largest = fabsf(values[4 * i + h]);
        for (int lanes = 4; lanes < 32; lanes *= 2) {
          largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
        }
        if (g == 0) amax[warp][8 * i + 2 * c + h] = largest;
      }
    }
    bar_sync(2 + warpgroup, 128);
    if (neuron < args.out.cols) {
      const float global_scale = args.out_global_scales[tile.expert];
#pragma unroll
      for (int i = 0; i < Shape::kMaxTile / 8; ++i) {
        if (8 * i >= tile.rows) break;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = 8 * i + 2 * c + h;
          const std::uint8_t scale =
              nvfp4_block_scale(fmaxf(amax[warp][r], amax[warp ^ 1][r]), global_scale);
          const float divisor = nvfp4_divisor(scale, global_scale);
          std::uint32_t codes = encode_nvfp4(values[4 * i + h], divisor) << 4 * g;
          for (int lanes = 4; lanes < 32; lanes *= 2) codes |= __shfl_xor_sync(~0u, codes, lanes);
          if (g == 0 && r < tile.rows)
            store_codes(args.out, tile.row + r, neuron, codes, scale, global_scale);
        }
      }
    }
    bar_sync(2 + warpgroup, 128);  // the next tile's values may be written
  }

  static __device__ __forceinline__ void store_codes(const MutableMatrixView& out, std::int64_t row,
                                                     std::int64_t neuron, std::uint32_t codes,
                                                     std::uint8_t scale, float global_scale) {
    auto* const bytes = static_cast<std::uint8_t*>(out.data) + row * (out.row_stride / 2);
    *reinterpret_cast<std::uint32_t*>(bytes + neuron / 2) = codes;
    if (neuron % kNvfp4QuantBlock == 0) {
      static_cast<std::uint8_t*>(
          out.block_scales)[row * out.scale_stride + neuron / kNvfp4QuantBlock] = scale;
    }
    if (neuron == 0) out.global_scales[row] = global_scale;
  }
};

}  // namespace dsv4::cuda
