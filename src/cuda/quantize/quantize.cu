// Quantisation of rows, or of their SwiGLU: a CTA a row, chunks of sixteen values in a thread's
// registers, where they stay between the row's amax and the codes. Encoding: encode.cuh.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/math.h"
#include "cuda/device/dependent_launch.h"
#include "cuda/launch.h"
#include "cuda/quantize/encode.cuh"
#include "cuda/quantize/quantize.h"
#include "cuda/quantize/sources.cuh"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"

namespace dsv4::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kMaxWarps = 16;
constexpr int kChunksOfMxfp4Block = kMxfp4QuantBlock / kChunk;
constexpr int kChunksOfE4m3Block = kActivationQuantBlock / kChunk;
static_assert(kNvfp4QuantBlock == kChunk && kWarp % kChunksOfE4m3Block == 0,
              "a quant block lies within a warp");

// A row of codes and scales in device memory.
struct OutputRow {
  std::uint8_t* codes;
  std::uint8_t* block_scales;
  std::int64_t code_bytes;  // without padding

  // Codes of chunk `chunk_idx`, sizeof(Word) bytes of them but for a short last one.
  template <bool kRegular, class Word>
  __device__ __forceinline__ void store(unsigned chunk_idx, const Word& word) const {
    const std::int64_t begin = static_cast<std::int64_t>(chunk_idx) * sizeof(Word);
    if constexpr (kRegular) {
      *reinterpret_cast<Word*>(codes + begin) = word;
    } else {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(&word);
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Word)); ++i) {
        if (begin + i >= code_bytes) continue;
        codes[begin + i] = static_cast<std::uint8_t>(words[i / 4] >> (8 * (i % 4)));
      }
    }
  }
};

// What the ops have in common; pointers to device memory. Strides and counts fit 32 bits.
struct Output {
  std::uint8_t* codes;
  std::uint8_t* block_scales;
  float* global_scales;  // one a row, or null
  const float* static_global_scales;
  const std::int32_t* global_scale_idx;
  const std::int32_t* row_count;
  std::int64_t code_bytes;  // of a row, without padding
  unsigned code_row_bytes;
  unsigned scale_stride;
  unsigned rows;
  unsigned chunks;  // of a row
  // The kernel behind may start as soon as CTAs of this one leave room: hides its launch. Where
  // there are few CTAs or threads in each, those that wait are in the way.
  bool lets_next_start;
  E2m1Rounding rounding;

  // Whether the codes of a chunk, chunk_bytes of them, can be stored at once.
  bool is_aligned(unsigned chunk_bytes) const {
    return code_row_bytes % chunk_bytes == 0 &&
           reinterpret_cast<std::uintptr_t>(codes) % chunk_bytes == 0;
  }
  __device__ __forceinline__ bool is_active(unsigned row_idx) const {
    return row_count == nullptr || static_cast<int>(row_idx) < *row_count;
  }
  __device__ __forceinline__ OutputRow row(unsigned row_idx) const {
    return {codes + static_cast<std::uint64_t>(row_idx) * code_row_bytes,
            block_scales + static_cast<std::uint64_t>(row_idx) * scale_stride, code_bytes};
  }
};

// The largest over `kLanes` neighbouring lanes, in each of them.
template <int kLanes>
__device__ __forceinline__ float lanes_amax(float amax) {
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, distance));
  }
  return amax;
}

// The largest of all threads' `amax`, in each of them. Called once.
__device__ __forceinline__ float cta_amax(float amax) {
  __shared__ std::uint32_t warp_amax[kMaxWarps];
  const unsigned lane = threadIdx.x % kWarp;
  // Magnitudes compare as their bits do.
  const std::uint32_t of_warp = __reduce_max_sync(0xFFFFFFFFu, f32_bits(amax));
  if (lane == 0) warp_amax[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  const std::uint32_t of_lane = lane < blockDim.x / kWarp ? warp_amax[lane] : 0;
  return f32_from_bits(__reduce_max_sync(0xFFFFFFFFu, of_lane));
}

// How a kernel goes over a row. kRegular: one pass takes the row, whose chunks are whole and
// aligned; kFull: and every thread has all its chunks. A thread holds kChunks chunks, to share what
// is computed once a row. Registers are fitted to CTAs of kMaxThreads, kMinCtas of them on an SM
// (0: as many as the compiler likes, which are more than with 1).
template <bool kRegular_, int kChunks_, int kMaxThreads_, bool kFull_ = false, int kMinCtas_ = 0>
struct QuantizeConfig {
  static constexpr bool kRegular = kRegular_;
  static constexpr bool kFull = kFull_;
  static constexpr int kMinCtas = kMinCtas_;
  static constexpr int kChunks = kChunks_;
  static constexpr int kMaxThreads = kMaxThreads_;
  static_assert(kMaxThreads <= kMaxWarps * kWarp);
};

// A thread's chunks in one pass over a row: number i is first + i * blockDim.x.
template <class C, class Source>
struct ThreadChunks {
  typename Source::Chunk chunks[C::kChunks];
  float amaxes[C::kChunks];  // kept: the compiler would compute them twice

  static __device__ __forceinline__ unsigned idx(unsigned first, int i) {
    return first + i * blockDim.x;
  }
  template <class Row>
  __device__ __forceinline__ void load(const Row& row, unsigned first, unsigned num_chunks) {
#pragma unroll
    for (int i = 0; i < C::kChunks; ++i) {
      if constexpr (C::kFull) {
        chunks[i] = row.template load<true>(idx(first, i));
      } else {
        chunks[i] = {};
        if (idx(first, i) < num_chunks) chunks[i] = row.template load<C::kRegular>(idx(first, i));
      }
    }
#pragma unroll
    for (int i = 0; i < C::kChunks; ++i) amaxes[i] = chunks[i].amax();
  }
  __device__ __forceinline__ float amax() const {
    float largest = amaxes[0];
#pragma unroll
    for (int i = 1; i < C::kChunks; ++i) largest = fmaxf(largest, amaxes[i]);
    return largest;
  }
};

// An NVFP4 quant block through numerics/: of an extreme scale, or in half-step rounding. Reads the
// values again, one by one, to leave the registers to the fast way.
template <class Row>
__device__ __forceinline__ void encode_plainly(const Row& row, const OutputRow& out,
                                               unsigned chunk_idx, float global_scale,
                                               E2m1Rounding rounding) {
  const std::int64_t begin = static_cast<std::int64_t>(chunk_idx) * kChunk;
  float block_amax = 0;
#pragma unroll 1
  for (int i = 0; i < kChunk; ++i) block_amax = fmaxf(block_amax, fabsf(row.value(begin + i)));
  const std::uint8_t block_scale = nvfp4_block_scale(block_amax, global_scale);
  const float divisor = nvfp4_divisor(block_scale, global_scale);
  std::uint8_t low = 0;
#pragma unroll 1
  for (int i = 0; i < kChunk; ++i) {
    const std::uint8_t code = encode_nvfp4(row.value(begin + i), divisor, rounding);
    if (i % 2 == 0) {
      low = code;
    } else {
      out.codes[(begin + i) / 2] = pack_e2m1(low, code);
    }
  }
  out.block_scales[chunk_idx] = block_scale;
}

template <class C, class Source, class Row>
__device__ __forceinline__ void encode_nvfp4(const ThreadChunks<C, Source>& held, const Row& row,
                                             const Output& out, const OutputRow& out_row,
                                             unsigned first, const Nvfp4Row& nvfp4_row) {
  unsigned left = 0;  // bit i: chunk i is not the fast way's
#pragma unroll
  for (int i = 0; i < C::kChunks; ++i) {
    const unsigned chunk_idx = held.idx(first, i);
    if (!C::kFull && chunk_idx >= out.chunks) continue;
    const Nvfp4Block block = fast_nvfp4_block(held.chunks[i], held.amaxes[i], nvfp4_row);
    if (!block.is_encoded) {
      left |= 1u << i;
      continue;
    }
    out_row.block_scales[chunk_idx] = block.block_scale;
    out_row.template store<C::kRegular>(chunk_idx, block.codes);
  }
#pragma unroll 1
  for (int i = 0; left != 0; ++i, left >>= 1) {
    if ((left & 1) == 0) continue;
    encode_plainly(row, out_row, held.idx(first, i), nvfp4_row.global_scale, out.rounding);
  }
}

// NVFP4 with a global scale for each row from the row itself. An irregular row is read twice.
template <class C, class Source>
__global__ void __launch_bounds__(C::kMaxThreads, C::kMinCtas)
    quantize_dynamic_nvfp4(const __grid_constant__ Source source,
                           const __grid_constant__ Output out) {
  if (out.lets_next_start) griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const unsigned row_idx = blockIdx.x;
  if (!out.is_active(row_idx)) return;
  const auto row = source.row(row_idx);
  const unsigned step = C::kChunks * blockDim.x;
  ThreadChunks<C, Source> held;
  float amax = 0;
  for (unsigned first = threadIdx.x; C::kRegular || first < out.chunks; first += step) {
    held.load(row, first, out.chunks);
    amax = fmaxf(amax, held.amax());
    if (C::kRegular) break;
  }
  const Nvfp4Row nvfp4_row(fast_global_scale(cta_amax(amax)), out.rounding);
  if (threadIdx.x == 0) out.global_scales[row_idx] = nvfp4_row.global_scale;
  const OutputRow out_row = out.row(row_idx);
  for (unsigned first = threadIdx.x; C::kRegular || first < out.chunks; first += step) {
    if (!C::kRegular) held.load(row, first, out.chunks);
    encode_nvfp4(held, row, out, out_row, first, nvfp4_row);
    if (C::kRegular) break;
  }
}

template <class C, class Source>
__global__ void __launch_bounds__(C::kMaxThreads)
    quantize_static_nvfp4(const __grid_constant__ Source source,
                          const __grid_constant__ Output out) {
  if (out.lets_next_start) griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const unsigned row_idx = blockIdx.x;
  if (!out.is_active(row_idx)) return;
  const auto row = source.row(row_idx);
  const OutputRow out_row = out.row(row_idx);
  const float* const global_scale =
      out.static_global_scales +
      (out.global_scale_idx == nullptr ? 0 : out.global_scale_idx[row_idx]);
  const unsigned step = C::kChunks * blockDim.x;
  ThreadChunks<C, Source> held;
  for (unsigned first = threadIdx.x; C::kRegular || first < out.chunks; first += step) {
    held.load(row, first, out.chunks);
    encode_nvfp4(held, row, out, out_row, first, Nvfp4Row(*global_scale, out.rounding));
    if (C::kRegular) break;
  }
  if (threadIdx.x == 0 && out.global_scales != nullptr) out.global_scales[row_idx] = *global_scale;
}

// FP8 and MXFP4, whose only scales are powers of two.
template <class C, class Source, Format kFormat>
__global__ void __launch_bounds__(C::kMaxThreads)
    quantize_blocks(const __grid_constant__ Source source, const __grid_constant__ Output out) {
  constexpr bool kE4m3 = kFormat == Format::kE4m3;
  constexpr unsigned kChunksOfBlock = kE4m3 ? kChunksOfE4m3Block : kChunksOfMxfp4Block;
  if (out.lets_next_start) griddepcontrol_launch_dependents();
  griddepcontrol_wait();
  const unsigned row_idx = blockIdx.x;
  if (!out.is_active(row_idx)) return;
  const auto row = source.row(row_idx);
  const OutputRow out_row = out.row(row_idx);
  const unsigned step = C::kChunks * blockDim.x;
  // All lanes take part in each pass, also those past the row's end.
  for (unsigned pass = 0; C::kRegular || pass < out.chunks; pass += step) {
    const unsigned first = pass + threadIdx.x;
    ThreadChunks<C, Source> held;
    held.load(row, first, out.chunks);
#pragma unroll
    for (int i = 0; i < C::kChunks; ++i) {
      const unsigned chunk_idx = held.idx(first, i);
      const float amax = lanes_amax<kChunksOfBlock>(held.amaxes[i]);
      if (chunk_idx >= out.chunks) continue;
      const std::uint8_t block_scale =
          kE4m3 ? e4m3_block_exponent(amax) : mxfp4_block_exponent(amax);
      if (chunk_idx % kChunksOfBlock == 0) {
        out_row.block_scales[chunk_idx / kChunksOfBlock] = block_scale;
      }
      if constexpr (kE4m3) {
        out_row.template store<C::kRegular>(chunk_idx, e4m3_codes(held.chunks[i], block_scale));
      } else {
        out_row.template store<C::kRegular>(chunk_idx, mxfp4_codes(held.chunks[i], block_scale));
      }
    }
    if (C::kRegular) break;
  }
}

template <class Params>
Output make_output(const Params& p) {
  const MutableMatrixView& m = p.out;
  Output out = {};
  out.codes = static_cast<std::uint8_t*>(m.data);
  out.block_scales = static_cast<std::uint8_t*>(m.block_scales);
  out.global_scales = m.global_scale_stride == 1 ? m.global_scales : nullptr;
  out.static_global_scales = p.static_global_scales;
  out.global_scale_idx = p.global_scale_idx;
  out.row_count = p.row_count;
  out.code_bytes = data_bytes(m.format, m.cols);
  out.code_row_bytes = static_cast<unsigned>(data_bytes(m.format, m.row_stride));
  out.scale_stride = static_cast<unsigned>(m.scale_stride);
  out.rows = static_cast<unsigned>(m.rows);
  out.chunks = static_cast<unsigned>(ceil_div(m.cols, kChunk));
  out.lets_next_start = out.rows >= 1024 && out.chunks >= 256;
  out.rounding = p.rounding;
  return out;
}

template <class C, class Source>
void launch_rows(const Source& source, const Output& out, Format format, cudaStream_t stream) {
  const unsigned threads = static_cast<unsigned>(
      std::min<std::int64_t>(round_up(ceil_div(out.chunks, C::kChunks), kWarp), C::kMaxThreads));
  const LaunchShape shape = {.grid = out.rows, .block = threads, .overlaps = true};
  if constexpr (C::kFull) {  // chosen for dynamic NVFP4 alone
    launch("quantize_dynamic_nvfp4", quantize_dynamic_nvfp4<C, Source>, shape, stream, source, out);
  } else if (format == Format::kE4m3) {
    launch("quantize_blocks", quantize_blocks<C, Source, Format::kE4m3>, shape, stream, source,
           out);
  } else if (format == Format::kMxfp4) {
    launch("quantize_blocks", quantize_blocks<C, Source, Format::kMxfp4>, shape, stream, source,
           out);
  } else if (out.static_global_scales != nullptr) {
    launch("quantize_static_nvfp4", quantize_static_nvfp4<C, Source>, shape, stream, source, out);
  } else {
    launch("quantize_dynamic_nvfp4", quantize_dynamic_nvfp4<C, Source>, shape, stream, source, out);
  }
}

// Bits do not depend on the choice.
template <class Source>
void launch_rows(const Source& source, const Output& out, Format format, cudaStream_t stream) {
  using General = QuantizeConfig<false, 1, 512>;
  const bool whole =
      source.is_whole() && out.is_aligned(static_cast<unsigned>(data_bytes(format, kChunk)));
  if constexpr (std::is_same_v<Source, PlainSource<Bf16>>) {
    // Few threads a row where the rows fill the GPU, many where one row's time is what counts. FP8
    // and MXFP4 compute less a row and gain nothing from few.
    using Few = QuantizeConfig<true, 4, 512>;
    using Many = QuantizeConfig<true, 2, 256>;
    // Without bounds, in 56 registers: while a row waits for its amax, others of the SM go on.
    using Full = QuantizeConfig<true, 4, 128, true, 9>;
    const bool few = format == Format::kNvfp4 && out.rows >= 1024 && out.chunks >= 128;
    if (whole && !few && out.chunks <= Many::kChunks * Many::kMaxThreads) {
      return launch_rows<Many>(source, out, format, stream);
    }
    const bool dynamic = out.static_global_scales == nullptr;
    if (whole && few && dynamic && out.chunks % (Full::kChunks * kWarp) == 0 &&
        out.chunks <= Full::kChunks * Full::kMaxThreads) {
      return launch_rows<Full>(source, out, format, stream);
    }
    if (whole && out.chunks <= Few::kChunks * Few::kMaxThreads) {
      return launch_rows<Few>(source, out, format, stream);
    }
  } else {
    using Regular = QuantizeConfig<true, 1, 512>;
    if (whole && out.chunks <= Regular::kMaxThreads) {
      return launch_rows<Regular>(source, out, format, stream);
    }
  }
  launch_rows<General>(source, out, format, stream);
}

// Rows and row strides are counted in 32 bits, offsets in 64.
Support supports_shape(const MatrixView& in, const MatrixView& out) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  for (const MatrixView* m : {&in, &out}) {
    if (m->rows > kMax || m->row_stride > kMax || m->scale_stride > kMax) {
      return {false, fmt::format("{} rows of stride {} and {} scales; each must be at most {}",
                                 m->rows, m->row_stride, m->scale_stride, kMax)};
    }
  }
  return {};
}

template <class T>
void quantize(const QuantizeParams& p, cudaStream_t stream) {
  launch_rows(PlainSource<T>{StoredMatrix<T>(p.x), p.row_idx}, make_output(p), p.out.format,
              stream);
}

template <class T>
void quantize(const SwigluQuantizeParams& p, cudaStream_t stream) {
  const float limit = p.swiglu_limit > 0 ? p.swiglu_limit : std::numeric_limits<float>::infinity();
  launch_rows(SwigluSource<T>{StoredMatrix<T>(p.gate), StoredMatrix<T>(p.up), p.row_weights, limit},
              make_output(p), p.out.format, stream);
}

}  // namespace

Support supports_quantize(const QuantizeParams& p) {
  if (p.four_over_six) return {false, "four over six is not built for CUDA; use cpu or reference"};
  return supports_shape(p.x, p.out);
}

void launch_quantize(const QuantizeParams& p, cudaStream_t stream) {
  if (p.out.empty()) return;
  p.x.format == Format::kF32 ? quantize<float>(p, stream) : quantize<Bf16>(p, stream);
}

Support supports_swiglu_quantize(const SwigluQuantizeParams& p) {
  const Support support = supports_shape(p.gate, p.out);
  return support ? supports_shape(p.up, p.out) : support;
}

void launch_swiglu_quantize(const SwigluQuantizeParams& p, cudaStream_t stream) {
  if (p.out.empty()) return;
  p.gate.format == Format::kF32 ? quantize<float>(p, stream) : quantize<Bf16>(p, stream);
}

}  // namespace dsv4::cuda
