// codes-inl.h: E4M3 and E2M1 codes of sixteen quotients and their values back, with the bits of
// numerics/. Which quotients, encode.cc and encode_rows.cc say.
//
// Compiled once a target: include after hwy/foreach_target.h.
#if defined(DSV4_CPU_CODES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_CPU_CODES_INL_H
#undef DSV4_CPU_CODES_INL_H
#else
#define DSV4_CPU_CODES_INL_H
#endif

#include <cstdint>
#include <cstring>

#include "cpu/lanes-inl.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"

#if !DSV4_CPU_SCALAR_LANES

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<LaneTag>;
using ByteTag = hn::Rebind<std::uint8_t, LaneTag>;
using IntVec = hn::Vec<IntTag>;

// Codes of finite quotients q, as numerics/e4m3.h rounds them.
HWY_INLINE IntVec e4m3_codes(LaneVec q) {
  const IntTag d;
  const auto bits = hn::BitCast(d, q);
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFF));
  const auto odd = hn::And(hn::ShiftRight<20>(magnitude), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(magnitude, hn::Set(d, 0x7FFFF)), odd));
  const auto normal = hn::Sub(rounded, hn::Set(d, (127 - 7) << 3));
  // Below 2^-6 codes are multiples of 2^-9, which is the last place of a number at 2^14.
  const float anchor = 0x1p14f;
  const auto anchored = hn::Add(hn::Abs(q), hn::Set(LaneTag(), anchor));
  const auto subnormal =
      hn::Sub(hn::BitCast(d, anchored), hn::Set(d, static_cast<std::int32_t>(f32_bits(anchor))));
  const auto is_subnormal = hn::Lt(magnitude, hn::Set(d, (127 - 6) << 23));
  const auto code = hn::Min(hn::IfThenElse(is_subnormal, subnormal, normal), hn::Set(d, 0x7E));
  return hn::Or(code, hn::And(hn::ShiftRight<24>(bits), hn::Set(d, 0x80)));
}

// Codes of q that is not NaN, as numerics/e2m1.h rounds it: the number of codes whose lower
// boundary |q| passes. Ties go to even codes, so every other boundary belongs to the code above.
template <E2m1Rounding kRounding>
HWY_INLINE IntVec e2m1_codes(LaneVec q) {
  const LaneTag d;
  const IntTag di;
  const auto one = hn::Set(di, 1);
  const auto magnitude = hn::Min(hn::Abs(q), hn::Set(d, kE2m1Max));
  auto code = hn::Zero(di);
  const auto count = [&](auto passed) {
    code = hn::Add(code, hn::IfThenElseZero(hn::RebindMask(di, passed), one));
  };
  if constexpr (kRounding == E2m1Rounding::kNearestEven) {
    for (const float above : {0.25f, 1.25f, 2.5f, 5.0f}) {
      count(hn::Gt(magnitude, hn::Set(d, above)));
    }
    for (const float from : {0.75f, 1.75f, 3.5f}) count(hn::Ge(magnitude, hn::Set(d, from)));
  } else {
    const auto half_steps = hn::Round(hn::Add(magnitude, magnitude));
    for (const float from : {1.0f, 2.0f, 3.0f, 4.0f, 6.0f, 7.0f, 11.0f}) {
      count(hn::Ge(half_steps, hn::Set(d, from)));
    }
  }
  const auto sign = hn::And(hn::ShiftRight<28>(hn::BitCast(di, q)), hn::Set(di, 8));
  return hn::Or(code, sign);
}

// codes [16], one a byte, to [8] packed.
HWY_INLINE void pack_codes(const std::uint8_t* codes, std::uint8_t* packed) {
  for (int half = 0; half < 2; ++half) {
    std::uint64_t x;
    std::memcpy(&x, codes + 8 * half, sizeof(x));
    x = (x | x >> 4) & 0x00FF00FF00FF00FFu;
    x = (x | x >> 8) & 0x0000FFFF0000FFFFu;
    const auto four_bytes = static_cast<std::uint32_t>(x | x >> 16);
    std::memcpy(packed + 4 * half, &four_bytes, sizeof(four_bytes));
  }
}

template <E2m1Rounding kRounding, class Quotient>
HWY_INLINE void encode_e2m1_16(const float* x, const Quotient& quotient, std::uint8_t* packed) {
  const hn::Repartition<std::uint64_t, LaneTag> d64;
  const hn::Rebind<std::uint8_t, decltype(d64)> d8;
  for (int i = 0; i < 16; i += kLanesPerRegister) {
    // Of a pair the first code is in the low half.
    const auto pairs =
        hn::BitCast(d64, e2m1_codes<kRounding>(quotient(hn::LoadU(LaneTag(), x + i))));
    hn::StoreU(hn::TruncateTo(d8, hn::Or(pairs, hn::ShiftRight<28>(pairs))), d8, packed + i / 2);
  }
}

// Value of a code's magnitude bits with the sign of q, both formats: E2M1 has one mantissa bit and
// E4M3 three, the exponents' bias against FP32's is in `exponent`, and below `num_subnormal` codes
// are multiples of `step`.
HWY_INLINE LaneVec value_of(IntVec magnitude, LaneVec q, int mantissa_bits, int exponent,
                            int num_subnormal, float step) {
  const LaneTag d;
  const IntTag di;
  const auto shifted = hn::ShiftLeftSame(magnitude, 23 - mantissa_bits);
  const auto normal = hn::BitCast(d, hn::Add(shifted, hn::Set(di, exponent << 23)));
  const auto subnormal = hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, step));
  const auto is_subnormal = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(di, num_subnormal)));
  return hn::CopySign(hn::IfThenElse(is_subnormal, subnormal, normal), q);
}

// NVFP4 rows are encoded in tiles of sixteen blocks.
constexpr int kTileBlocks = 16;  // as many block scales as lanes

// Block scales of sixteen blocks from their largest magnitudes as FP32, finite, in their order.
HWY_INLINE IntVec scale_codes(LaneVec amaxes, float global_scale) {
  return e4m3_codes(hn::Div(amaxes, hn::Set(LaneTag(), kE2m1Max * global_scale)));
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#endif  // !DSV4_CPU_SCALAR_LANES
#endif  // per-target include guard
