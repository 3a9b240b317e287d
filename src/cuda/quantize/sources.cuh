// sources.cuh: the rows that are quantised: stored ones, gathered or not, and SwiGLU of two such.
//
// A source gives rows; a row gives a chunk, with zeros past the row's end, or one value. A source
// is whole if all its chunks have sixteen values at multiples of 16 bytes; kRegular promises it.
#pragma once

#include <cstdint>

#include "cuda/quantize/chunk.cuh"
#include "cuda/quantize/encode.cuh"
#include "numerics/silu.h"
#include "tensor/matrix_view.h"

namespace dsv4::cuda {

template <class T>
struct StoredType;
template <>
struct StoredType<float> {
  using Chunk = F32Chunk;
  static __device__ __forceinline__ float decode(float x) { return x; }
};
template <>
struct StoredType<Bf16> {
  using Chunk = Bf16Chunk;
  static __device__ __forceinline__ float decode(Bf16 x) { return decode_bf16(x); }
};

template <class T>
struct StoredRow {
  using Chunk = typename StoredType<T>::Chunk;
  const T* data;
  std::int64_t cols;
  bool whole;

  template <bool kRegular>
  __device__ __forceinline__ Chunk load(unsigned chunk_idx) const {
    const std::int64_t begin = static_cast<std::int64_t>(chunk_idx) * kChunk;
    Chunk chunk;
    const bool by_vectors = kRegular || whole;
    if (by_vectors) {
      chunk.load(data + begin);
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (begin + i < cols) chunk.set(i, data[begin + i]);
      }
    }
    return chunk;
  }
  __device__ __forceinline__ float value(std::int64_t col) const {
    return StoredType<T>::decode(data[col]);
  }
};

// A plain matrix of T, whose row stride fits 32 bits.
template <class T>
struct StoredMatrix {
  const T* data;
  std::int64_t cols;
  unsigned row_stride;
  bool whole;

  explicit StoredMatrix(const MatrixView& m)
      : data(static_cast<const T*>(m.data)),
        cols(m.cols),
        row_stride(static_cast<unsigned>(m.row_stride)),
        whole(m.cols % kChunk == 0 && reinterpret_cast<std::uintptr_t>(m.data) % 16 == 0 &&
              m.row_stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0) {}

  __device__ __forceinline__ StoredRow<T> row(unsigned row_idx) const {
    return {data + static_cast<std::uint64_t>(row_idx) * row_stride, cols, whole};
  }
};

template <class T>
struct PlainSource {
  using Chunk = typename StoredType<T>::Chunk;
  StoredMatrix<T> x;
  const std::int32_t* row_idx;  // null: row r of the output is row r of x

  bool is_whole() const { return x.whole; }
  __device__ __forceinline__ StoredRow<T> row(unsigned out_row) const {
    return x.row(row_idx == nullptr ? out_row : static_cast<unsigned>(row_idx[out_row]));
  }
};

// swiglu() of numerics/silu.h, bit for bit but for NaN, with `limit` infinite for no clamp. The
// reciprocal gives 0 beyond kSiluMaxDivisor by itself: its instruction flushes subnormal results.
__device__ __forceinline__ float fast_swiglu(float gate, float up, float limit, float row_weight) {
  gate = fminf(gate, limit);
  const float e = exp_negative(fminf(fmaxf(gate, kSiluLow), kSiluHigh));
  return gate * reciprocal(1.0f + e) * fminf(fmaxf(up, -limit), limit) * row_weight;
}

template <class T>
struct SwigluRow {
  StoredRow<T> gate, up;
  float limit;
  float row_weight;

  template <bool kRegular>
  __device__ __forceinline__ F32Chunk load(unsigned chunk_idx) const {
    const auto gates = gate.template load<kRegular>(chunk_idx);
    const auto ups = up.template load<kRegular>(chunk_idx);
    F32Chunk chunk;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      chunk.x[i] = fast_swiglu(gates.value(i), ups.value(i), limit, row_weight);
    }
    return chunk;
  }
  __device__ __forceinline__ float value(std::int64_t col) const {
    return fast_swiglu(gate.value(col), up.value(col), limit, row_weight);
  }
};

template <class T>
struct SwigluSource {
  using Chunk = F32Chunk;
  StoredMatrix<T> gate, up;
  const float* row_weights;  // null: 1
  float limit;               // infinite: no clamp

  bool is_whole() const { return gate.whole && up.whole; }
  __device__ __forceinline__ SwigluRow<T> row(unsigned row_idx) const {
    return {gate.row(row_idx), up.row(row_idx), limit,
            row_weights == nullptr ? 1.0f : row_weights[row_idx]};
  }
};

}  // namespace dsv4::cuda
