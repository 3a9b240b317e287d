// expert_layout.h: how a layer's experts lie in memory for the GEMMs: bytes and offsets only.
//
// An expert is slabs of 64 packed rows, each cut into chunks of 64 columns, then a float a packed
// row. A chunk holds one 16-byte load of codes for each of a warpgroup's 128 threads, its fragments
// of four wgmma steps (device/nvfp4_decode.h), then the block scales of its rows. In an expert of
// gate and up the rows of a warp's 16 are gate of 8 neurons, then up of the same 8, so that one
// thread gets both of a neuron. Rows and columns are filled up with zeros.
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "base/math.h"
#include "tensor/matrix_view.h"

namespace dsv4::cuda {

inline constexpr int kSlabRows = 64;
inline constexpr int kChunkCols = 64;
// A stage of the GEMMs' pipelines holds two or four chunks.
inline constexpr int kChunkMultiple = 4;
inline constexpr int kChunkCodeBytes = kSlabRows * kChunkCols / 2;
inline constexpr std::int64_t kExpertAlignment = 128;

// 2,304 bytes for NVFP4 (quant block 16), 2,176 for MXFP4 (32): 4.5 and 4.25 bits a weight.
constexpr DSV4_HOST_DEVICE int chunk_bytes(int quant_block) {
  return kChunkCodeBytes + kSlabRows * kChunkCols / quant_block;
}

struct ExpertLayout {
  int quant_block = 16;
  std::int64_t slabs = 0;
  std::int64_t chunks = 0;  // of a slab

  // `rows` of one matrix; gate_and_up: two of them.
  static ExpertLayout of(Format format, std::int64_t rows, std::int64_t cols, bool gate_and_up) {
    return {format == Format::kNvfp4 ? 16 : 32, ceil_div(rows * (gate_and_up ? 2 : 1), kSlabRows),
            ceil_div(cols, kChunkCols * kChunkMultiple) * kChunkMultiple};
  }
  // Where the row factors begin: an output is its accumulator times the row's factor.
  constexpr DSV4_HOST_DEVICE std::int64_t factors_offset() const {
    return slabs * chunks * chunk_bytes(quant_block);
  }
  std::int64_t expert_bytes() const {
    const std::int64_t bytes = factors_offset() + slabs * kSlabRows * 4;
    return ceil_div(bytes, kExpertAlignment) * kExpertAlignment;
  }
};

// The row of gate (is_up false) or up that packed row `packed_row` of an expert of both holds.
struct GateUpRow {
  std::int64_t neuron;
  bool is_up;
};
constexpr DSV4_HOST_DEVICE GateUpRow gate_up_row(std::int64_t packed_row) {
  return {packed_row / 16 * 8 + packed_row % 8, packed_row % 16 >= 8};
}

}  // namespace dsv4::cuda
