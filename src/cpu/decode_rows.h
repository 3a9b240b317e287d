// decode_rows.h: quantised rows to BF16 for the op dequantize. Rows to FP32 for the matrix
// products: dot.h.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"
#include "tensor/matrix_view.h"

namespace dsv4::cpu {

// The BF16 values of the sixteen E2M1 codes under each block scale: for MXFP4, or for NVFP4 and one
// global scale. 8 KiB, for the L1 cache: an entry is the lower bytes of its values, then the upper.
class Bf16Table {
 public:
  Bf16Table(Format format, float global_scale);
  const std::uint8_t* data() const { return reinterpret_cast<const std::uint8_t*>(bytes_.data()); }

 private:
  Buffer bytes_;
};

struct DecodeRowKernels {
  // Columns [0, n) of a packed row, n whole quant blocks of 16 << block_shift, to out [n].
  void (*decode_e2m1)(const std::uint8_t* codes, const std::uint8_t* block_scales, std::int64_t n,
                      int block_shift, const std::uint8_t* table, std::uint16_t* out);
  // out [n] = codes [n] * scale, rounded to nearest even: codes without NaN (has_e4m3_nan), scale
  // finite and below 2^119.
  void (*decode_e4m3)(const std::uint8_t* codes, std::int64_t n, float scale, std::uint16_t* out);
  bool (*has_e4m3_nan)(const std::uint8_t* codes, std::int64_t n);
  // out [n] = x [n] rounded to nearest even, NaN to 7FC0.
  void (*round_to_bf16)(const float* x, std::int64_t n, std::uint16_t* out);
};

// The best kernels among `targets` (cpu_backend.h).
const DecodeRowKernels& decode_row_kernels(std::int64_t targets);

}  // namespace dsv4::cpu
