// encode_rows.h: BF16 values to NVFP4 under a known global scale, many blocks at a time and without
// a division a value. Every other source, format and scale: encode.h.
//
// For one global scale there are 127 divisors p, one a block scale, and under each the code of x is
// the number of boundaries that |x| has reached. The boundaries are found with the encoder of
// numerics/ itself, as the first BF16 of each code; so the bytes are its bytes.
#pragma once

#include <cstdint>

#include "numerics/e2m1.h"

namespace dsv4::cpu {

struct Nvfp4Boundaries {
  // 6 g must be an FP32 above 0, and finite.
  Nvfp4Boundaries(float g, E2m1Rounding e2m1_rounding);

  // [s][k], k < 7: the last BF16 magnitude whose code under block scale s is at most k.
  std::uint16_t last[127][8];
  int first_scale;  // the first s with p > 0: below it codes are 0, without a sign
  float global_scale;
  E2m1Rounding rounding;
};

// [s][c]: the value of E2M1 code c under block scale s and the global scale g, as decode_nvfp4.
struct alignas(64) Nvfp4Values {
  explicit Nvfp4Values(float g);
  float of[127][16];
};

struct EncodeRowKernels {
  // As encode_nvfp4_block of numerics/ on each 16 of x [n], BF16: codes [n / 2], block_scales
  // [n / 16].
  void (*encode_nvfp4)(const std::uint16_t* x, std::int64_t n, const Nvfp4Boundaries& boundaries,
                       std::uint8_t* codes, std::uint8_t* block_scales);
  // The same as encode_nvfp4_block_four_over_six. Null on instruction sets for which blocks by
  // themselves are as fast.
  void (*encode_nvfp4_four_over_six)(const std::uint16_t* x, std::int64_t n,
                                     const Nvfp4Boundaries& boundaries, const Nvfp4Values& values,
                                     std::uint8_t* codes, std::uint8_t* block_scales);
  // The largest magnitude of x [n], BF16, as its bits: NaN above infinity; 0 of none.
  std::uint16_t (*amax)(const std::uint16_t* x, std::int64_t n);
};

// The best kernels among `targets` (cpu_backend.h).
const EncodeRowKernels& encode_row_kernels(std::int64_t targets);

}  // namespace dsv4::cpu
