// BF16 rows to NVFP4 for each instruction set. Sixteen blocks at a time: their largest magnitudes,
// their block scales as one vector, then codes by comparing magnitudes as integers.
#include "cpu/encode_rows.h"

#include <algorithm>
#include <cstring>

#include "numerics/bf16.h"
#include "numerics/nvfp4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/encode_rows.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/codes-inl.h"
#if HWY_TARGET == HWY_AVX3
#include "cpu/encode_tiles_avx3-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// With numerics/ alone: the plain target, blocks that are not finite. kEncode: its encoder.
template <auto kEncode>
void encode_plainly(const std::uint16_t* x, std::int64_t n, const Nvfp4Boundaries& boundaries,
                    std::uint8_t* codes, std::uint8_t* block_scales) {
  for (std::int64_t begin = 0; begin < n; begin += kNvfp4QuantBlock) {
    float values[kNvfp4QuantBlock];
    for (int i = 0; i < kNvfp4QuantBlock; ++i) values[i] = decode_bf16(x[begin + i]);
    block_scales[begin / kNvfp4QuantBlock] =
        kEncode(values, boundaries.global_scale, codes + begin / 2, boundaries.rounding);
  }
}

std::uint16_t amax_plainly(const std::uint16_t* x, std::int64_t n) {
  int largest = 0;
  for (std::int64_t i = 0; i < n; ++i) largest = std::max(largest, x[i] & 0x7FFF);
  return static_cast<std::uint16_t>(largest);
}

#if DSV4_CPU_SCALAR_LANES

void encode_nvfp4(const std::uint16_t* x, std::int64_t n, const Nvfp4Boundaries& boundaries,
                  std::uint8_t* codes, std::uint8_t* block_scales) {
  encode_plainly<&encode_nvfp4_block>(x, n, boundaries, codes, block_scales);
}
std::uint16_t amax_bf16(const std::uint16_t* x, std::int64_t n) { return amax_plainly(x, n); }
constexpr decltype(EncodeRowKernels::encode_nvfp4_four_over_six) kEncodeFourOverSix = nullptr;

#else

#if HWY_TARGET == HWY_AVX3

void encode_nvfp4_four_over_six(const std::uint16_t* x, std::int64_t n,
                                const Nvfp4Boundaries& boundaries, const Nvfp4Values& values,
                                std::uint8_t* codes, std::uint8_t* block_scales) {
  constexpr std::int64_t kTile = kTileBlocks * kNvfp4QuantBlock;
  for (std::int64_t begin = 0; begin < n; begin += kTile) {
    const std::int64_t count = std::min(kTile, n - begin);
    std::uint16_t tile[kTile] = {};
    std::uint8_t tile_codes[kTile / 2], tile_scales[kTileBlocks];
    std::memcpy(tile, x + begin, static_cast<std::size_t>(count) * sizeof(tile[0]));
    if (!encode_tile_four_over_six(tile, boundaries, values, tile_codes, tile_scales)) {
      encode_plainly<&encode_nvfp4_block_four_over_six>(tile, count, boundaries, tile_codes,
                                                        tile_scales);
    }
    std::memcpy(codes + begin / 2, tile_codes, static_cast<std::size_t>(count / 2));
    std::memcpy(block_scales + begin / kNvfp4QuantBlock, tile_scales,
                static_cast<std::size_t>(count / kNvfp4QuantBlock));
  }
}
constexpr auto kEncodeFourOverSix = &encode_nvfp4_four_over_six;

#else

// A quant block fills one register of sixteen 16-bit lanes, or two of eight. All boundaries are
// compared.
using BlockTag = hn::CappedTag<std::uint16_t, 16>;
using BlockVec = hn::Vec<BlockTag>;
constexpr int kBlockLanes =
    static_cast<int>(HWY_LANES(std::uint16_t) < 16 ? HWY_LANES(std::uint16_t) : 16);

HWY_INLINE BlockVec magnitudes(const std::uint16_t* x) {
  return hn::And(hn::LoadU(BlockTag(), x), hn::Set(BlockTag(), 0x7FFF));
}

HWY_INLINE std::uint16_t block_amax(const std::uint16_t* x) {
  const hn::FixedTag<std::uint16_t, 8> d8;
#if HWY_MAX_BYTES == 16
  const auto largest = hn::Max(magnitudes(x), magnitudes(x + 8));
#else
  const auto all = magnitudes(x);
  const auto largest = hn::Max(hn::LowerHalf(d8, all), hn::UpperHalf(d8, all));
#endif
  return hn::GetLane(hn::MaxOfLanes(d8, largest));
}

// Codes of x [16] to [8] bytes; sign_bit: 8, or 0 where p is 0.
HWY_INLINE void encode_codes(const std::uint16_t* x, const std::uint16_t* last, int sign_bit,
                             std::uint8_t* codes) {
  const BlockTag d;
  const hn::RebindToSigned<BlockTag> di;
  const hn::Repartition<std::uint32_t, BlockTag> d32;
  const hn::Rebind<std::uint8_t, decltype(d32)> d8;
  const auto sign_mask = hn::Set(d, static_cast<std::uint16_t>(sign_bit));
  for (int i = 0; i < kNvfp4QuantBlock; i += kBlockLanes) {
    const auto bits = hn::LoadU(d, x + i);
    const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(d, 0x7FFF)));
    auto code = hn::BitCast(di, hn::And(hn::ShiftRight<12>(bits), sign_mask));
    for (int k = 0; k < 7; ++k) {
      const auto boundary = hn::Set(di, static_cast<std::int16_t>(last[k]));
      code = hn::Sub(code, hn::VecFromMask(di, hn::Gt(magnitude, boundary)));
    }
    // Of a pair the first code is in the low half.
    const auto pairs = hn::BitCast(d32, code);
    hn::StoreU(hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<12>(pairs))), d8, codes + i / 2);
  }
}

// Block scales of x [16 * 16]; false, with nothing written, if it is not finite.
HWY_INLINE bool encode_tile_scales(const std::uint16_t* x, const Nvfp4Boundaries& boundaries,
                                   std::uint8_t* block_scales) {
  std::uint16_t amaxes[kTileBlocks];
  for (int b = 0; b < kTileBlocks; ++b) amaxes[b] = block_amax(x + b * kNvfp4QuantBlock);
  if (*std::max_element(amaxes, amaxes + kTileBlocks) >= 0x7F80) return false;
  const Lanes lanes = load_bf16(amaxes);
  for (int i = 0; i < kRegisters; ++i) {
    const IntVec scales = scale_codes(lanes.r[i], boundaries.global_scale);
    hn::StoreU(hn::DemoteTo(ByteTag(), scales), ByteTag(), block_scales + i * kLanesPerRegister);
  }
  return true;
}

constexpr decltype(EncodeRowKernels::encode_nvfp4_four_over_six) kEncodeFourOverSix = nullptr;

HWY_INLINE void encode_tile_codes(const std::uint16_t* x, const std::uint8_t* block_scales,
                                  const Nvfp4Boundaries& boundaries, std::uint8_t* codes) {
  for (int b = 0; b < kTileBlocks; ++b) {
    const int scale = block_scales[b];
    encode_codes(x + b * kNvfp4QuantBlock, boundaries.last[scale],
                 scale >= boundaries.first_scale ? 8 : 0, codes + b * kNvfp4BlockBytes);
  }
}

#endif  // HWY_TARGET == HWY_AVX3

// All block scales of a few tiles, then all codes: a tile's codes wait for its scales, and the
// processor fills the wait with other tiles.
void encode_nvfp4(const std::uint16_t* x, std::int64_t n, const Nvfp4Boundaries& boundaries,
                  std::uint8_t* codes, std::uint8_t* block_scales) {
  constexpr std::int64_t kTile = kTileBlocks * kNvfp4QuantBlock;
  constexpr std::int64_t kTilesAtOnce = 16;  // 8 KiB, for the L1 cache
  const std::int64_t num_tiles = n / kTile;
  for (std::int64_t first = 0; first < num_tiles; first += kTilesAtOnce) {
    const std::int64_t end = std::min(first + kTilesAtOnce, num_tiles);
    bool finite[kTilesAtOnce];
    for (std::int64_t t = first; t < end; ++t) {
      finite[t - first] =
          encode_tile_scales(x + t * kTile, boundaries, block_scales + t * kTileBlocks);
    }
    for (std::int64_t t = first; t < end; ++t) {
      const std::uint16_t* const tile = x + t * kTile;
      std::uint8_t* const tile_codes = codes + t * kTile / 2;
      std::uint8_t* const tile_scales = block_scales + t * kTileBlocks;
      if (finite[t - first]) {
        encode_tile_codes(tile, tile_scales, boundaries, tile_codes);
      } else {
        encode_plainly<&encode_nvfp4_block>(tile, kTile, boundaries, tile_codes, tile_scales);
      }
    }
  }
  const std::int64_t begin = num_tiles * kTile;
  if (begin == n) return;
  // The rest as a tile that ends in zeros.
  const std::int64_t rest = n - begin;
  std::uint16_t tile[kTile] = {};
  std::uint8_t tile_codes[kTile / 2], tile_scales[kTileBlocks];
  std::memcpy(tile, x + begin, static_cast<std::size_t>(rest) * sizeof(tile[0]));
  if (encode_tile_scales(tile, boundaries, tile_scales)) {
    encode_tile_codes(tile, tile_scales, boundaries, tile_codes);
  } else {
    encode_plainly<&encode_nvfp4_block>(tile, kTile, boundaries, tile_codes, tile_scales);
  }
  std::memcpy(codes + begin / 2, tile_codes, static_cast<std::size_t>(rest / 2));
  std::memcpy(block_scales + begin / kNvfp4QuantBlock, tile_scales,
              static_cast<std::size_t>(rest / kNvfp4QuantBlock));
}

std::uint16_t amax_bf16(const std::uint16_t* x, std::int64_t n) {
  const hn::ScalableTag<std::uint16_t> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  const auto magnitude = hn::Set(d, 0x7FFF);
  hn::Vec<decltype(d)> largest[4];
  for (auto& lanes : largest) lanes = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    for (int k = 0; k < 4; ++k) {
      largest[k] = hn::Max(largest[k], hn::And(hn::LoadU(d, x + i + k * step), magnitude));
    }
  }
  const auto all = hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3]));
  return std::max(hn::GetLane(hn::MaxOfLanes(d, all)), amax_plainly(x + i, n - i));
}

#endif  // DSV4_CPU_SCALAR_LANES

const EncodeRowKernels& encode_row_kernel_table() {
  static constexpr EncodeRowKernels kKernels = {&encode_nvfp4, kEncodeFourOverSix, &amax_bf16};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(encode_row_kernel_table);

const EncodeRowKernels& encode_row_kernels(std::int64_t targets) {
  return DSV4_CPU_KERNEL(encode_row_kernel_table, targets)();
}

namespace {

constexpr std::uint32_t kBf16Infinity = 0x7F80;

// The first BF16 magnitude whose code under `divisor` is at least `code`; infinity if none is
// finite. `guess` is near it.
std::uint32_t first_of_code(int code, float divisor, E2m1Rounding rounding, std::uint32_t guess) {
  const auto reached = [&](std::uint32_t bits) {
    return encode_nvfp4(decode_bf16(static_cast<std::uint16_t>(bits)), divisor, rounding) >= code;
  };
  while (guess < kBf16Infinity && !reached(guess)) ++guess;
  while (guess > 1 && reached(guess - 1)) --guess;
  return guess;
}

}  // namespace

Nvfp4Values::Nvfp4Values(float g) {
  for (int scale = 0; scale < 127; ++scale) {
    for (std::uint8_t code = 0; code < 16; ++code) {
      of[scale][code] = decode_nvfp4(code, static_cast<std::uint8_t>(scale), g);
    }
  }
}

Nvfp4Boundaries::Nvfp4Boundaries(float g, E2m1Rounding e2m1_rounding)
    : first_scale(127), global_scale(g), rounding(e2m1_rounding) {
  for (int scale = 126; scale >= 0; --scale) {
    const float divisor = nvfp4_divisor(static_cast<std::uint8_t>(scale), g);
    if (divisor > 0) first_scale = scale;
    for (std::uint8_t code = 1; code < 8; ++code) {
      std::uint32_t first = kBf16Infinity;
      if (divisor > 0) {
        const float middle = (decode_e2m1(code) + decode_e2m1(code - 1)) / 2;
        const std::uint32_t guess = f32_bits(middle * divisor) >> 16;
        first = first_of_code(code, divisor, rounding, std::clamp(guess, 1u, kBf16Infinity));
      }
      last[scale][code - 1] = static_cast<std::uint16_t>(first - 1);
    }
    last[scale][7] = 0;
  }
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
