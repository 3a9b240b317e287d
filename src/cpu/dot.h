// dot.h: the kernels under every matrix product of the CPU backend: dot products of weight rows
// with tokens, and decoding of rows. One implementation an instruction set, the same bits from all.
//
// Who calls them for which rows, on which thread: matmul.h.
#pragma once

#include <cstdint>

#include "base/math.h"
#include "cpu/source.h"

namespace dsv4::cpu {

// Length of a decoded row of k elements: whole lanes, the rest zeros.
constexpr std::int64_t padded(std::int64_t k) { return round_up(k, kLanes); }

// Rows that are decoded at once where many tokens share them: 512 KiB of FP32, so that they stay in
// an L2 cache, in whole tiles of 4.
constexpr std::int64_t kMaxPanelRows = 32;
constexpr std::int64_t panel_rows(std::int64_t k) {
  const std::int64_t rows = (512 * 1024 / 4) / (padded(k) == 0 ? 1 : padded(k)) / 4 * 4;
  return rows < 4 ? 4 : (rows > kMaxPanelRows ? kMaxPanelRows : rows);
}

// sums[t * sums_stride + i] = the dot product of weight row row_begin + i and token t, for t <
// tokens and i < row_end - row_begin. Every sum has the tree of lanes-inl.h.
struct DotCall {
  const Source* w = nullptr;  // [.., k]
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  const float* x = nullptr;  // [tokens, padded(k)], in w's lane order, zeros behind k
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  float* panel = nullptr;  // scratch [panel_rows(k), padded(k)]
  float* sums = nullptr;
  std::int64_t sums_stride = 0;
};

struct DotKernels {
  void (*dot_rows)(const DotCall& call);
  // Row `row` into out [padded(cols)], in the source's lane order, zeros behind cols.
  void (*decode_row)(const Source& source, std::int64_t row, float* out);
};

// The best kernels among `targets` (cpu_backend.h).
const DotKernels& dot_kernels(std::int64_t targets);

// Exchanges the lane order of a decoded row [k], k a multiple of 16: natural to interleaved.
void interleave(float* row, std::int64_t k);
// And back.
void deinterleave(float* row, std::int64_t k);

}  // namespace dsv4::cpu
