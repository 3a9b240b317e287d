// The encoders of every format for each instruction set. Each step is the same correctly rounded
// operation as in numerics/, on sixteen values at a time; blocks that are not finite go there.
#include "cpu/encode.h"

#include <algorithm>

#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/encode.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

#if DSV4_CPU_SCALAR_LANES

float amax_of(const float* x, std::int64_t n) { return amax(x, n); }
std::uint8_t e4m3_block(const float* x, int n, std::uint8_t* codes) {
  return encode_e4m3_block(x, n, codes);
}
std::uint8_t mxfp4_block(const float* x, std::uint8_t* codes) {
  return encode_mxfp4_block(x, codes);
}
void nvfp4_blocks(const float* x, std::int64_t n, float global_scale, std::uint8_t* codes,
                  std::uint8_t* block_scales, E2m1Rounding rounding) {
  for (std::int64_t i = 0; i < n; i += kNvfp4QuantBlock) {
    block_scales[i / kNvfp4QuantBlock] =
        encode_nvfp4_block(x + i, global_scale, codes + i / 2, rounding);
  }
}
std::uint8_t nvfp4_block_four_over_six(const float* x, float global_scale, std::uint8_t* codes,
                                       E2m1Rounding rounding) {
  return encode_nvfp4_block_four_over_six(x, global_scale, codes, rounding);
}
void e4m3_values(const float* x, std::int64_t n, float divisor, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < n; ++i) codes[i] = encode_e4m3(x[i] / divisor);
}
void round_finite_e4m3(float* x, int n, std::uint8_t block_scale) {
  for (int i = 0; i < n; ++i)
    x[i] = decode_e4m3_scaled(encode_e4m3_scaled(x[i], block_scale), block_scale);
}
void round_finite_mxfp4(float* x, std::uint8_t block_scale) {
  for (int i = 0; i < kMxfp4QuantBlock; ++i) {
    x[i] = decode_mxfp4(encode_mxfp4(x[i], block_scale), block_scale);
  }
}

#else

// As integers, magnitudes are ordered like the numbers, NaN on top (numerics/amax.h).
float amax_of(const float* x, std::int64_t n) {
  const IntTag d;
  const auto magnitude = hn::Set(d, 0x7FFFFFFF);
  auto largest = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const auto bits = hn::BitCast(d, hn::LoadU(LaneTag(), x + i));
    largest = hn::Max(largest, hn::And(bits, magnitude));
  }
  const float rest = amax(x + i, n - i);
  const auto in_rest = static_cast<std::int32_t>(f32_bits(rest));
  const std::int32_t in_lanes = hn::GetLane(hn::MaxOfLanes(d, largest));
  return f32_from_bits(static_cast<std::uint32_t>(in_lanes > in_rest ? in_lanes : in_rest));
}

// x / 2^k as a product: 2^-k is an FP32 too, since block scales of finite values lie within 2^-126
// and 2^126, and both operations round the same number.
struct PowerQuotient {
  LaneVec reciprocal;
  HWY_INLINE explicit PowerQuotient(std::uint8_t block_scale)
      : reciprocal(hn::Set(LaneTag(), 1 / decode_e8m0(block_scale))) {}
  HWY_INLINE LaneVec operator()(LaneVec x) const { return hn::Mul(x, reciprocal); }
};
struct Quotient {
  LaneVec divisor;
  HWY_INLINE explicit Quotient(float value) : divisor(hn::Set(LaneTag(), value)) {}
  HWY_INLINE LaneVec operator()(LaneVec x) const { return hn::Div(x, divisor); }
};

std::uint8_t e4m3_block(const float* x, int n, std::uint8_t* codes) {
  const float block_amax = amax_of(x, n);
  if (!is_finite(block_amax)) return encode_e4m3_block(x, n, codes);
  const std::uint8_t block_scale = e4m3_block_exponent(block_amax);
  const PowerQuotient quotient(block_scale);
  int i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const auto q = quotient(hn::LoadU(LaneTag(), x + i));
    hn::StoreU(hn::DemoteTo(ByteTag(), e4m3_codes(q)), ByteTag(), codes + i);
  }
  for (; i < n; ++i) codes[i] = encode_e4m3_scaled(x[i], block_scale);
  return block_scale;
}

std::uint8_t mxfp4_block(const float* x, std::uint8_t* codes) {
  const float block_amax = amax_of(x, kMxfp4QuantBlock);
  if (!is_finite(block_amax)) return encode_mxfp4_block(x, codes);
  const std::uint8_t block_scale = mxfp4_block_exponent(block_amax);
  const PowerQuotient quotient(block_scale);
  encode_e2m1_16<E2m1Rounding::kNearestEven>(x, quotient, codes);
  encode_e2m1_16<E2m1Rounding::kNearestEven>(x + 16, quotient, codes + 8);
  return block_scale;
}

HWY_INLINE float block_amax(const float* x) {
  const IntTag d;
  auto largest = hn::Zero(d);
  for (int i = 0; i < kNvfp4QuantBlock; i += kLanesPerRegister) {
    const auto bits = hn::BitCast(d, hn::LoadU(LaneTag(), x + i));
    largest = hn::Max(largest, hn::And(bits, hn::Set(d, 0x7FFFFFFF)));
  }
  return f32_from_bits(static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest))));
}

// Block scales and divisors of a tile's blocks as vectors, then their codes; false, with nothing
// written, if it is not finite. 6 g is an FP32 above 0, and finite.
template <E2m1Rounding kRounding>
HWY_INLINE bool encode_tile(const float* x, int num_blocks, float global_scale, std::uint8_t* codes,
                            std::uint8_t* block_scales) {
  const LaneTag d;
  float amaxes[kTileBlocks] = {}, divisors[kTileBlocks];
  std::uint8_t scales[kTileBlocks];
  for (int b = 0; b < num_blocks; ++b) amaxes[b] = block_amax(x + b * kNvfp4QuantBlock);
  if (!is_finite(amax_of(amaxes, kTileBlocks))) return false;
  for (int i = 0; i < kTileBlocks; i += kLanesPerRegister) {
    const auto amax_lanes = hn::LoadU(d, amaxes + i);
    const IntVec code = scale_codes(amax_lanes, global_scale);
    hn::StoreU(hn::DemoteTo(ByteTag(), code), ByteTag(), scales + i);
    const auto scale = value_of(code, amax_lanes, 3, 120, 8, 0x1p-9f);
    hn::StoreU(hn::Mul(scale, hn::Set(d, global_scale)), d, divisors + i);
  }
  for (int b = 0; b < num_blocks; ++b) {
    std::uint8_t* const block_codes = codes + b * kNvfp4BlockBytes;
    if (divisors[b] > 0) {
      encode_e2m1_16<kRounding>(x + b * kNvfp4QuantBlock, Quotient(divisors[b]), block_codes);
    } else {
      std::memset(block_codes, 0, kNvfp4BlockBytes);
    }
    block_scales[b] = scales[b];
  }
  return true;
}

template <E2m1Rounding kRounding>
void encode_tiles(const float* x, std::int64_t n, float global_scale, std::uint8_t* codes,
                  std::uint8_t* block_scales) {
  const float divisor = kE2m1Max * global_scale;
  const bool has_plain_divisor = divisor > 0 && is_finite(divisor);
  const std::int64_t total_blocks = n / kNvfp4QuantBlock;
  for (std::int64_t first = 0; first < total_blocks; first += kTileBlocks) {
    const int num_blocks =
        static_cast<int>(std::min<std::int64_t>(kTileBlocks, total_blocks - first));
    const float* const tile = x + first * kNvfp4QuantBlock;
    std::uint8_t* const tile_codes = codes + first * kNvfp4BlockBytes;
    if (has_plain_divisor &&
        encode_tile<kRounding>(tile, num_blocks, global_scale, tile_codes, block_scales + first)) {
      continue;
    }
    for (int b = 0; b < num_blocks; ++b) {
      block_scales[first + b] = encode_nvfp4_block(tile + b * kNvfp4QuantBlock, global_scale,
                                                   tile_codes + b * kNvfp4BlockBytes, kRounding);
    }
  }
}

void nvfp4_blocks(const float* x, std::int64_t n, float global_scale, std::uint8_t* codes,
                  std::uint8_t* block_scales, E2m1Rounding rounding) {
  const auto encode = rounding == E2m1Rounding::kNearestEven
                          ? &encode_tiles<E2m1Rounding::kNearestEven>
                          : &encode_tiles<E2m1Rounding::kHalfStep>;
  encode(x, n, global_scale, codes, block_scales);
}

// The sum of (x - decoded)^2 of sixteen, as nvfp4_block_error adds it up.
HWY_INLINE double squared_error(const float* x, const float* decoded) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> d_float;
  constexpr int kDoubles = static_cast<int>(HWY_LANES(double) < 8 ? HWY_LANES(double) : 8);
  hn::Vec<decltype(d)> squares[kNvfp4QuantBlock / kDoubles];
  for (int i = 0; i < kNvfp4QuantBlock / kDoubles; ++i) {
    const auto error = hn::Sub(hn::PromoteTo(d, hn::LoadU(d_float, x + i * kDoubles)),
                               hn::PromoteTo(d, hn::LoadU(d_float, decoded + i * kDoubles)));
    squares[i] = hn::Mul(error, error);
  }
  for (int count = kNvfp4QuantBlock / kDoubles / 2; count > 0; count /= 2) {
    for (int i = 0; i < count; ++i) squares[i] = hn::Add(squares[i], squares[i + count]);
  }
  double rest[kDoubles];
  hn::StoreU(squares[0], d, rest);
  for (int width = kDoubles / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) rest[i] += rest[i + width];
  }
  return rest[0];
}

// Codes [16], one a byte, of finite x [16] under one block scale; returns their squared error.
template <E2m1Rounding kRounding>
HWY_INLINE double encode_candidate(const float* x, std::uint8_t block_scale, float global_scale,
                                   std::uint8_t* codes) {
  float decoded[kNvfp4QuantBlock] = {};
  const float divisor = nvfp4_divisor(block_scale, global_scale);
  if (!(divisor > 0)) {
    std::memset(codes, 0, kNvfp4QuantBlock);
    return squared_error(x, decoded);
  }
  const Quotient quotient(divisor);
  const auto scale = hn::Set(LaneTag(), decode_e4m3(block_scale));
  const auto global = hn::Set(LaneTag(), global_scale);
  for (int i = 0; i < kNvfp4QuantBlock; i += kLanesPerRegister) {
    const auto q = quotient(hn::LoadU(LaneTag(), x + i));
    const auto code = e2m1_codes<kRounding>(q);
    hn::StoreU(hn::DemoteTo(ByteTag(), code), ByteTag(), codes + i);
    const auto value = value_of(hn::And(code, hn::Set(IntTag(), 7)), q, 1, 126, 2, 0.5f);
    hn::StoreU(hn::Mul(hn::Mul(value, scale), global), LaneTag(), decoded + i);
  }
  return squared_error(x, decoded);
}

// Both candidates are always encoded: which one wins is a coin toss that no branch predicts.
template <E2m1Rounding kRounding>
HWY_INLINE std::uint8_t better_of_two(const float* x, float block_amax, float global_scale,
                                      std::uint8_t* packed) {
  const float ratio = block_amax > 0 ? block_amax / (kE2m1Max * global_scale) : 0.0f;
  const std::uint8_t scales[2] = {encode_e4m3(ratio), encode_e4m3(1.5f * ratio)};
  std::uint8_t codes[2][kNvfp4QuantBlock];
  const double to_six = encode_candidate<kRounding>(x, scales[0], global_scale, codes[0]);
  const double to_four = encode_candidate<kRounding>(x, scales[1], global_scale, codes[1]);
  const int better = to_four < to_six ? 1 : 0;
  pack_codes(codes[better], packed);
  return scales[better];
}

std::uint8_t nvfp4_block_four_over_six(const float* x, float global_scale, std::uint8_t* codes,
                                       E2m1Rounding rounding) {
  const float block_amax = amax_of(x, kNvfp4QuantBlock);
  if (!is_finite(block_amax)) {
    return encode_nvfp4_block_four_over_six(x, global_scale, codes, rounding);
  }
  return rounding == E2m1Rounding::kNearestEven
             ? better_of_two<E2m1Rounding::kNearestEven>(x, block_amax, global_scale, codes)
             : better_of_two<E2m1Rounding::kHalfStep>(x, block_amax, global_scale, codes);
}

void e4m3_values(const float* x, std::int64_t n, float divisor, std::uint8_t* codes) {
  const Quotient quotient(divisor);
  std::int64_t i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const auto q = quotient(hn::LoadU(LaneTag(), x + i));
    hn::StoreU(hn::DemoteTo(ByteTag(), e4m3_codes(q)), ByteTag(), codes + i);
  }
  for (; i < n; ++i) codes[i] = encode_e4m3(x[i] / divisor);
}

void round_finite_e4m3(float* x, int n, std::uint8_t block_scale) {
  const PowerQuotient quotient(block_scale);
  const auto scale = hn::Set(LaneTag(), decode_e8m0(block_scale));
  int i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const auto q = quotient(hn::LoadU(LaneTag(), x + i));
    const auto magnitude = hn::And(e4m3_codes(q), hn::Set(IntTag(), 0x7F));
    hn::StoreU(hn::Mul(value_of(magnitude, q, 3, 120, 8, 0x1p-9f), scale), LaneTag(), x + i);
  }
  for (; i < n; ++i) {
    x[i] = decode_e4m3_scaled(encode_e4m3_scaled(x[i], block_scale), block_scale);
  }
}

void round_finite_mxfp4(float* x, std::uint8_t block_scale) {
  const PowerQuotient quotient(block_scale);
  const auto scale = hn::Set(LaneTag(), decode_e8m0(block_scale));
  for (int i = 0; i < kMxfp4QuantBlock; i += kLanesPerRegister) {
    const auto q = quotient(hn::LoadU(LaneTag(), x + i));
    const auto code = e2m1_codes<E2m1Rounding::kNearestEven>(q);
    const auto magnitude = hn::And(code, hn::Set(IntTag(), 7));
    hn::StoreU(hn::Mul(value_of(magnitude, q, 1, 126, 2, 0.5f), scale), LaneTag(), x + i);
  }
}

#endif  // DSV4_CPU_SCALAR_LANES

void round_e4m3_block(float* x, int n) {
  const float block_amax = amax_of(x, n);
  const std::uint8_t block_scale = e4m3_block_exponent(block_amax);
  if (is_finite(block_amax)) return round_finite_e4m3(x, n, block_scale);
  for (int i = 0; i < n; ++i) {
    x[i] = decode_e4m3_scaled(encode_e4m3_scaled(x[i], block_scale), block_scale);
  }
}

void round_mxfp4_block(float* x) {
  const float block_amax = amax_of(x, kMxfp4QuantBlock);
  const std::uint8_t block_scale = mxfp4_block_exponent(block_amax);
  if (is_finite(block_amax)) return round_finite_mxfp4(x, block_scale);
  for (int i = 0; i < kMxfp4QuantBlock; ++i) {
    x[i] = decode_mxfp4(encode_mxfp4(x[i], block_scale), block_scale);
  }
}

// A plain loop: compilers turn it into vectors.
void bf16_values(const float* x, std::int64_t n, std::byte* bits) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t value = encode_bf16(x[i]);
    std::memcpy(bits + 2 * i, &value, sizeof(value));
  }
}

// The first three stages of eight neighbours stay in registers; the others run over whole vectors.
void hadamard(float* x, std::int64_t n, double* y) {
  std::int64_t half = 1;
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i];
  if (n >= 8) {
    for (std::int64_t begin = 0; begin < n; begin += 8) {
      double v[8];
      for (int i = 0; i < 8; ++i) v[i] = y[begin + i];
      for (const int step : {1, 2, 4}) {
        double w[8];
        for (int i = 0; i < 8; ++i)
          w[i] = (i & step) == 0 ? v[i] + v[i + step] : v[i - step] - v[i];
        for (int i = 0; i < 8; ++i) v[i] = w[i];
      }
      for (int i = 0; i < 8; ++i) y[begin + i] = v[i];
    }
    half = 8;
  }
  for (; half < n; half *= 2) {
    for (std::int64_t begin = 0; begin < n; begin += 2 * half) {
      double* const low = y + begin;
      double* const high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const double l = low[i];
        const double h = high[i];
        low[i] = l + h;
        high[i] = l - h;
      }
    }
  }
  const double factor = 1 / std::sqrt(static_cast<double>(n));
  for (std::int64_t i = 0; i < n; ++i) x[i] = static_cast<float>(y[i] * factor);
}

const EncodeKernels& encode_kernel_table() {
  static constexpr EncodeKernels kKernels = {
      &amax_of,     &e4m3_block,  &mxfp4_block,      &nvfp4_blocks,      &nvfp4_block_four_over_six,
      &e4m3_values, &bf16_values, &round_e4m3_block, &round_mxfp4_block, &hadamard};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(encode_kernel_table);

const EncodeKernels& encode_kernels(std::int64_t targets) {
  return DSV4_CPU_KERNEL(encode_kernel_table, targets)();
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
