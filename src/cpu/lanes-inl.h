// lanes-inl.h: sixteen FP32 lanes for every instruction set, and the sum of a dot product.
//
// The reduction tree of the backend, the same for every instruction set, number of threads, batch
// and tile shape: element k of a dot product of length K goes to lane k mod 16 of one accumulator
// of 16 FP32 lanes, by a fused multiply-add, k ascending; K is padded to a multiple of 16 by zeros;
// then lane l += lane l + 8, then + 4, + 2, + 1. A NaN becomes the quiet NaN 7FC00000. AVX-512
// holds the lanes in one register, AVX2 in two, NEON in four, the scalar target in an array: the
// same bits. See docs/kernels/cpu.md.
//
// Compiled once a target: include after hwy/foreach_target.h.
#if defined(DSV4_CPU_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_CPU_LANES_INL_H
#undef DSV4_CPU_LANES_INL_H
#else
#define DSV4_CPU_LANES_INL_H
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

// clang-format off: says for which targets, so before Highway.
#include <hwy/highway.h>

#include "cpu/targets.h"
// clang-format on
#include "numerics/bf16.h"
#include "numerics/e4m3.h"

#undef DSV4_CPU_SCALAR_LANES
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define DSV4_CPU_SCALAR_LANES 1
#else
#define DSV4_CPU_SCALAR_LANES 0
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if DSV4_CPU_SCALAR_LANES

// The plain form, without Highway: std::fma rounds once, as the vector instructions do.
struct Lanes {
  float l[16];
};

inline Lanes broadcast(float x) {
  Lanes out;
  for (float& lane : out.l) lane = x;
  return out;
}
inline Lanes load(const float* x) {
  Lanes out;
  std::memcpy(out.l, x, sizeof(out.l));
  return out;
}
inline void store(const Lanes& v, float* x) { std::memcpy(x, v.l, sizeof(v.l)); }
inline Lanes multiply(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] * b.l[i];
  return out;
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] + b.l[i];
  return out;
}
inline Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = std::fma(a.l[i], b.l[i], c.l[i]);
  return out;
}
inline Lanes load_bf16(const std::uint16_t* x) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = decode_bf16(x[i]);
  return out;
}
inline Lanes load_e4m3_256th(const std::uint8_t* codes) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = decode_e4m3(codes[i]) * 0x1p-8f;
  return out;
}
inline Lanes lookup_e2m1(const float* table, const std::uint8_t* codes) {
  Lanes out;
  for (int i = 0; i < 8; ++i) {
    const int shift = i % 2 == 0 ? 0 : 4;
    out.l[2 * i] = table[(codes[i / 2] >> shift) & 15];
    out.l[2 * i + 1] = table[(codes[4 + i / 2] >> shift) & 15];
  }
  return out;
}
template <bool kInterleaved>
inline float sum_lanes(const Lanes& v) {
  float sums[16];
  for (int i = 0; i < 16; ++i) {
    sums[i] = v.l[kInterleaved ? (i < 8 ? 2 * i : 2 * (i - 8) + 1) : i];
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
  }
  return sums[0] == sums[0] ? sums[0] : f32_from_bits(kF32QuietNanBits);
}
inline bool has_e4m3_nan(const std::uint8_t* codes, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    if ((codes[i] & 0x7F) == 0x7F) return true;
  }
  return false;
}

#else

using LaneTag = hn::CappedTag<float, 16>;
using LaneVec = hn::Vec<LaneTag>;
constexpr int kLanesPerRegister = static_cast<int>(HWY_LANES(float) < 16 ? HWY_LANES(float) : 16);
constexpr int kRegisters = 16 / kLanesPerRegister;

struct Lanes {
  LaneVec r[kRegisters];
};

HWY_INLINE Lanes broadcast(float x) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::Set(LaneTag(), x);
  return out;
}
HWY_INLINE Lanes load(const float* x) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::LoadU(LaneTag(), x + i * kLanesPerRegister);
  return out;
}
HWY_INLINE void store(const Lanes& v, float* x) {
  for (int i = 0; i < kRegisters; ++i) hn::StoreU(v.r[i], LaneTag(), x + i * kLanesPerRegister);
}
HWY_INLINE Lanes multiply(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::Mul(a.r[i], b.r[i]);
  return out;
}
HWY_INLINE Lanes add(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::Add(a.r[i], b.r[i]);
  return out;
}
HWY_INLINE Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::MulAdd(a.r[i], b.r[i], c.r[i]);
  return out;
}

HWY_INLINE Lanes load_bf16(const std::uint16_t* x) {
  const hn::RebindToUnsigned<LaneTag> du32;
  const hn::Rebind<std::uint16_t, LaneTag> du16;
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    const auto bits = hn::PromoteTo(du32, hn::LoadU(du16, x + i * kLanesPerRegister));
    out.r[i] = hn::BitCast(LaneTag(), hn::ShiftLeft<16>(bits));
  }
  return out;
}

// E4M3 codes times 2^-8, exactly: moved to FP16's exponent field they are FP16 values, subnormals
// included. The NaN codes come out as +-1.875 (has_e4m3_nan finds them).
HWY_INLINE Lanes load_e4m3_256th(const std::uint8_t* codes) {
  const hn::Rebind<std::int8_t, LaneTag> di8;
  const hn::Rebind<std::int16_t, LaneTag> di16;
  const hn::Rebind<hwy::float16_t, LaneTag> df16;
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    const auto bytes =
        hn::LoadU(di8, reinterpret_cast<const std::int8_t*>(codes) + i * kLanesPerRegister);
    const auto shifted = hn::ShiftLeft<7>(hn::PromoteTo(di16, bytes));
    const auto half = hn::And(shifted, hn::Set(di16, static_cast<std::int16_t>(0xBF80)));
    out.r[i] = hn::PromoteTo(LaneTag(), hn::BitCast(df16, half));
  }
  return out;
}

// table[code] of 16 codes in 8 bytes, interleaved; table [16] with table[c + 8] = -table[c].
HWY_INLINE Lanes lookup_e2m1(const float* table, const std::uint8_t* codes) {
  const hn::RebindToUnsigned<LaneTag> du32;
  const hn::Repartition<std::uint64_t, LaneTag> du64;
  alignas(64) static constexpr std::uint32_t kShifts[16] = {0,  0,  4,  4,  8,  8,  12, 12,
                                                            16, 16, 20, 20, 24, 24, 28, 28};
  std::uint64_t packed;
  std::memcpy(&packed, codes, sizeof(packed));
  const auto pairs = hn::BitCast(du32, hn::Set(du64, packed));
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    const auto code = hn::Shr(pairs, hn::Load(du32, kShifts + i * kLanesPerRegister));
#if HWY_TARGET == HWY_AVX3
    out.r[i] = LaneVec{_mm512_permutexvar_ps(code.raw, hn::LoadU(LaneTag(), table).raw)};
#elif HWY_TARGET == HWY_AVX2
    const LaneVec magnitude{_mm256_permutevar8x32_ps(hn::LoadU(LaneTag(), table).raw, code.raw)};
    const auto sign = hn::And(hn::ShiftLeft<28>(code), hn::Set(du32, 0x80000000u));
    out.r[i] = hn::Xor(magnitude, hn::BitCast(LaneTag(), sign));
#else
    const auto idx = hn::BitCast(hn::RebindToSigned<LaneTag>(), hn::And(code, hn::Set(du32, 15)));
    out.r[i] = hn::GatherIndex(LaneTag(), table, idx);
#endif
  }
  return out;
}

// The halving tree; kInterleaved: of lanes in interleaved order.
template <bool kInterleaved>
HWY_INLINE float sum_lanes(const Lanes& v) {
  const hn::FixedTag<float, 4> d4;
#if HWY_TARGET == HWY_AVX3
  const hn::FixedTag<float, 8> d8;
  hn::Vec<decltype(d8)> eight;
  if constexpr (kInterleaved) {
    const auto even = hn::ConcatEven(LaneTag(), v.r[0], v.r[0]);
    const auto odd = hn::ConcatOdd(LaneTag(), v.r[0], v.r[0]);
    eight = hn::LowerHalf(d8, hn::Add(even, odd));
  } else {
    eight = hn::Add(hn::LowerHalf(d8, v.r[0]), hn::UpperHalf(d8, v.r[0]));
  }
  auto four = hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
#else
  Lanes n = v;
  if constexpr (kInterleaved) {
    for (int i = 0; i < kRegisters / 2; ++i) {
      n.r[i] = hn::ConcatEven(LaneTag(), v.r[2 * i + 1], v.r[2 * i]);
      n.r[i + kRegisters / 2] = hn::ConcatOdd(LaneTag(), v.r[2 * i + 1], v.r[2 * i]);
    }
  }
#if HWY_TARGET == HWY_AVX2
  const auto eight = hn::Add(n.r[0], n.r[1]);
  auto four = hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight));
#else
  static_assert(kRegisters == 4, "a target of another width needs its own sum");
  auto four = hn::Add(hn::Add(n.r[0], n.r[2]), hn::Add(n.r[1], n.r[3]));
#endif
#endif
  four = hn::Add(four, hn::Shuffle1032(four));
  four = hn::Add(four, hn::Shuffle2301(four));
  const float sum = hn::GetLane(four);
  return sum == sum ? sum : f32_from_bits(kF32QuietNanBits);
}

// Whether codes [n], n a multiple of 16, hold a NaN.
HWY_INLINE bool has_e4m3_nan(const std::uint8_t* codes, std::int64_t n) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const hn::FixedTag<std::uint8_t, 16> d16;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto largest = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + step <= n; i += step) {
    largest = hn::Max(largest, hn::And(hn::LoadU(d, codes + i), hn::Set(d, 0x7F)));
  }
  bool found = !hn::AllFalse(d, hn::Eq(largest, hn::Set(d, 0x7F)));
  for (; i < n; i += 16) {
    const auto magnitude = hn::And(hn::LoadU(d16, codes + i), hn::Set(d16, 0x7F));
    found |= !hn::AllFalse(d16, hn::Eq(magnitude, hn::Set(d16, 0x7F)));
  }
  return found;
}

#endif  // DSV4_CPU_SCALAR_LANES

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
