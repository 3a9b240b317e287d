// Repacking the experts' weights once at load: from rows of codes and block scales to the layout of
// expert_layout.h, an expert at a time.
#include <fmt/format.h>

#include "cuda/device/nvfp4_decode.h"
#include "cuda/errors.h"
#include "cuda/launch.h"
#include "cuda/moe/expert_layout.h"
#include "cuda/moe/moe.h"
#include "numerics/bits.h"

namespace dsv4::cuda {
namespace {

struct ExpertPackArgs {
  MatrixView matrices[2];  // gate and up, or down and nothing
  bool gate_and_up;
  ExpertLayout layout;
  std::byte* expert;
};

constexpr int kThreads = 128;  // of a warpgroup

// A row of the expert as published; rows that only fill up have no matrix.
struct SourceRow {
  const MatrixView* matrix;
  std::int64_t row;
};

__device__ SourceRow source_row(const ExpertPackArgs& args, std::int64_t packed_row) {
  SourceRow source{&args.matrices[0], packed_row};
  if (args.gate_and_up) {
    const GateUpRow row = gate_up_row(packed_row);
    source = {&args.matrices[row.is_up ? 1 : 0], row.neuron};
  }
  if (source.row >= source.matrix->rows) source.matrix = nullptr;
  return source;
}

__device__ std::uint32_t code_of(const SourceRow& row, std::int64_t col) {
  const std::int64_t idx = row.row * row.matrix->row_stride + col;
  return static_cast<const std::uint8_t*>(row.matrix->data)[idx / 2] >> (idx % 2 * 4) & 0xF;
}
__device__ std::uint32_t scale_of(const SourceRow& row, std::int64_t block) {
  const std::int64_t idx = row.row * row.matrix->scale_stride + block;
  return static_cast<const std::uint8_t*>(row.matrix->block_scales)[idx];
}

// The code as it is packed: E4M3 scales carry a sign here, and a zero that E5M3 lacks.
template <int kQuantBlock>
__device__ std::uint32_t packed_code(const SourceRow& row, std::int64_t col) {
  if (row.matrix == nullptr || col >= row.matrix->cols) return 0;
  std::uint32_t code = code_of(row, col);
  if constexpr (kQuantBlock == 16) {
    const std::uint32_t scale = scale_of(row, col / 16);
    if ((scale & 0x7F) == 0) return 0;
    code ^= scale >> 7 << 3;
  }
  return code;
}

// Largest E8M0 scale of a row, NaN apart: all are stored relative to it, so that the products of
// code and scale stay within BF16. The thread's own loop over the row.
__device__ std::uint32_t largest_e8m0(const SourceRow& row) {
  std::uint32_t largest = 0;
  for (std::int64_t block = 0; block < row.matrix->cols / 32; ++block) {
    const std::uint32_t scale = scale_of(row, block);
    if (scale != 0xFF) largest = max(largest, scale);
  }
  return largest;
}

// What the sums of a packed row are multiplied by; NaN for a row with a NaN scale, as all its
// products are then.
template <int kQuantBlock>
__device__ float row_factor(const SourceRow& row, std::uint32_t largest) {
  if (row.matrix == nullptr) return 0;
  for (std::int64_t block = 0; block < row.matrix->cols / kQuantBlock; ++block) {
    const std::uint32_t scale = scale_of(row, block);
    if (kQuantBlock == 16 ? (scale & 0x7F) == 0x7F : scale == 0xFF) {
      return f32_from_bits(kF32QuietNanBits);
    }
  }
  if constexpr (kQuantBlock == 16) {
    return row.matrix->global_scales[row.row * row.matrix->global_scale_stride] * 0x1p7f;
  }
  // 2^(largest - 127) x 2^126 / 2^127 (decode_fragments gives code x 2^-126 x 2^(254 - 127)).
  return ldexpf(1, static_cast<int>(largest) - 128);
}

// One CTA a slab: codes a thread and chunk, scales a row and chunk, a factor a row.
template <int kQuantBlock>
__global__ void __launch_bounds__(kThreads) pack_slab(const __grid_constant__ ExpertPackArgs args) {
  __shared__ std::uint32_t largest[kSlabRows];
  const std::int64_t slab = blockIdx.x, first_row = slab * kSlabRows;
  const int thread = threadIdx.x, g = thread % 32 / 4, c = thread % 4;
  std::byte* const out = args.expert + slab * args.layout.chunks * chunk_bytes(kQuantBlock);
  if (thread < kSlabRows) {
    const SourceRow row = source_row(args, first_row + thread);
    largest[thread] = kQuantBlock == 32 && row.matrix != nullptr ? largest_e8m0(row) : 0;
    reinterpret_cast<float*>(args.expert + args.layout.factors_offset())[first_row + thread] =
        row_factor<kQuantBlock>(row, largest[thread]);
  }
  __syncthreads();
  const SourceRow rows[2] = {source_row(args, first_row + thread / 32 * 16 + g),
                             source_row(args, first_row + thread / 32 * 16 + g + 8)};
  for (std::int64_t chunk = 0; chunk < args.layout.chunks; ++chunk) {
    std::byte* const packed = out + chunk * chunk_bytes(kQuantBlock);
    std::uint32_t words[4] = {};
    for (int step = 0; step < 4; ++step) {
      for (int pair = 0; pair < 4; ++pair) {
        const std::int64_t col = chunk * kChunkCols + step * 16 + pair / 2 * 8 + 2 * c;
        for (int h = 0; h < 2; ++h) {
          words[step] |= place_e2m1(packed_code<kQuantBlock>(rows[pair % 2], col + h), pair)
                         << 16 * h;
        }
      }
    }
    reinterpret_cast<uint4*>(packed)[thread] = {words[0], words[1], words[2], words[3]};
    if (thread >= kSlabRows / 2) continue;
    // Two rows a thread: g and g + 8 of warp thread / 8.
    std::uint32_t scales[2] = {};
    constexpr int kBlocks = kChunkCols / kQuantBlock;
    for (int i = 0; i < 2; ++i) {
      const int slab_row = thread / 8 * 16 + thread % 8 + 8 * i;
      const SourceRow row = source_row(args, first_row + slab_row);
      for (int b = 0; b < kBlocks; ++b) {
        const std::int64_t block = chunk * kBlocks + b;
        if (row.matrix == nullptr || block >= row.matrix->cols / kQuantBlock) continue;
        const std::uint32_t scale = scale_of(row, block);
        std::uint32_t stored;
        if constexpr (kQuantBlock == 16) {
          const bool is_number = (scale & 0x7F) != 0 && (scale & 0x7F) != 0x7F;
          stored = is_number ? e5m3_scale(scale & 0x7F) : 0;
        } else {
          // A scale 2^254 below the row's largest is no part of an FP32 sum any more.
          stored =
              scale == 0xFF
                  ? 0
                  : static_cast<std::uint32_t>(max(
                        0, static_cast<int>(scale) - static_cast<int>(largest[slab_row]) + 254));
        }
        scales[i] |= stored << 8 * b;
      }
    }
    auto* const to = reinterpret_cast<std::uint32_t*>(packed + kChunkCodeBytes);
    if constexpr (kQuantBlock == 16) {
      to[2 * thread] = rotate_left(scales[0], 4);
      to[2 * thread + 1] = rotate_left(scales[1], 4);
    } else {
      to[thread] = rotate_left(scales[0] | scales[1] << 16, 7);
    }
  }
}

}  // namespace

Support supports_expert_pack(const ExpertPackParams& p) {
  const Format format = p.weights[0].format;
  if (p.weights[0].cols == 0) return {false, "weights have no columns"};
  if (is_packed(format)) return {};
  return {false, fmt::format("weights are {}, must be {} or {}", to_string(format),
                             to_string(Format::kMxfp4), to_string(Format::kNvfp4))};
}

std::int64_t expert_packed_bytes(const ExpertPackParams& p) {
  const MatrixView& first = p.weights[0];
  if (!is_packed(first.format)) return 0;
  return p.num_experts *
         ExpertLayout::of(first.format, first.rows, first.cols, p.up_weights != nullptr)
             .expert_bytes();
}

void launch_expert_pack(const ExpertPackParams& p, cudaStream_t stream) {
  require(reinterpret_cast<std::uintptr_t>(p.out) % 16 == 0, ErrorCode::kBadRequest,
          "expert_pack: out must be aligned to 16 bytes, is {}", p.out);
  const MatrixView& first = p.weights[0];
  ExpertPackArgs args;
  args.gate_and_up = p.up_weights != nullptr;
  args.layout = ExpertLayout::of(first.format, first.rows, first.cols, args.gate_and_up);
  for (int e = 0; e < p.num_experts; ++e) {
    args.matrices[0] = p.weights[e];
    if (args.gate_and_up) args.matrices[1] = p.up_weights[e];
    args.expert = static_cast<std::byte*>(p.out) + e * args.layout.expert_bytes();
    launch("expert_pack", first.format == Format::kNvfp4 ? pack_slab<16> : pack_slab<32>,
           {.grid = static_cast<unsigned>(args.layout.slabs), .block = kThreads}, stream, args);
  }
}

}  // namespace dsv4::cuda
