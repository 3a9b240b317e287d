// expert_epilogue.cuh: from a tile's sums to the rows of the output: SwiGLU of gate and up, routing
// weight, BF16, FP32 or NVFP4.
//
// A thread of a warpgroup holds sums of packed rows g and g + 8 of its warp's 16, for tokens 2c and
// 2c + 1 of every eight (device/wgmma.h).
#pragma once

#include "cuda/device/convert.h"
#include "cuda/device/matrix_load.h"
#include "cuda/device/warpgroup.h"
#include "cuda/moe/expert_tiles.cuh"
#include "numerics/nvfp4.h"

namespace dsv4::cuda {

// Where a thread writes: eight neighbouring columns `col` .. of eight rows at a time.
class RowWriter {
 public:
  __device__ __forceinline__ RowWriter(const MutableMatrixView& out, const ExpertTile& tile,
                                       std::int64_t col)
      : is_bf16_(out.format == Format::kBf16), rows_(tile.rows) {
    const int g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
    // Transposed, a thread has two neighbouring BF16 of row g, four of them 16 bytes. In FP32 it
    // keeps column g of rows 2c and 2c + 1.
    row_ = is_bf16_ ? g : 2 * c;
    const std::int64_t first = col + (is_bf16_ ? 2 * c : g);
    if (first >= out.cols) rows_ = 0;
    row_bytes_ = data_bytes(out.format, out.row_stride);
    at_ = static_cast<std::byte*>(out.data) + (tile.row + row_) * row_bytes_ +
          data_bytes(out.format, first);
  }

  // Rows 8 i .. 8 i + 7 of the tile; values are rows 8 i + 2c and the next of column g.
  __device__ __forceinline__ void store(int i, float first, float second) const {
    std::byte* const at = at_ + 8 * i * row_bytes_;
    if (is_bf16_) {
      const std::uint32_t pair = movmatrix_trans(cvt_bf16x2(first, second));
      if (8 * i + row_ < rows_) *reinterpret_cast<std::uint32_t*>(at) = pair;
    } else {
      if (8 * i + row_ < rows_) *reinterpret_cast<float*>(at) = first;
      if (8 * i + row_ + 1 < rows_) *reinterpret_cast<float*>(at + row_bytes_) = second;
    }
  }

 private:
  bool is_bf16_;
  int rows_;
  int row_;
  std::int64_t row_bytes_;
  std::byte* at_;
};

template <class Shape>
struct DownEpilogue {
  static constexpr bool kTakesRowWeights = false;
  static constexpr bool kRowsAreInOrder = true;  // of experts, in x as in the output
  struct Shared {};
  Shared& shared;

  __device__ __forceinline__ void store(const ExpertGemmArgs& args, const ExpertTile& tile,
                                        int slab, const float (&factors)[2], const float*,
                                        const float (&sums)[Shape::kMaxTile / 2]) const {
    const std::int64_t col =
        static_cast<std::int64_t>(slab) * kSlabRows + threadIdx.x % 128 / 32 * 16;
    const RowWriter lower(args.out, tile, col), upper(args.out, tile, col + 8);
#pragma unroll
    for (int i = 0; i < Shape::kMaxTile / 8; ++i) {
      if (8 * i >= tile.rows) break;
      lower.store(i, sums[4 * i] * factors[0], sums[4 * i + 1] * factors[0]);
      upper.store(i, sums[4 * i + 2] * factors[1], sums[4 * i + 3] * factors[1]);
    }
  }
};

template <class Shape>
struct GateUpEpilogue {
  static constexpr bool kTakesRowWeights = true;
  static constexpr bool kRowsAreInOrder = false;
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
    const RowWriter writer(args.out, tile, neuron);
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
        writer.store(i, values[0], values[1]);
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
