// lane_math-inl.h: what the ops beside the matrix products need of sixteen lanes: comparisons,
// parts of a lane vector, and an exponential. Products and sums: lanes-inl.h.
//
// Compiled once a target: include after hwy/foreach_target.h.
#if defined(DSV4_CPU_LANE_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_CPU_LANE_MATH_INL_H
#undef DSV4_CPU_LANE_MATH_INL_H
#else
#define DSV4_CPU_LANE_MATH_INL_H
#endif

#include <algorithm>

#include "cpu/lanes-inl.h"
#include "cpu/source.h"
#include "numerics/bits.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// The exponential of exp_nonpositive: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by a polynomial
// (coefficients of Cephes' expf), times 2^n. Fused operations only where written, so all targets
// give the same bits.
constexpr float kLog2E = 0x1.715476p0f;
constexpr float kRoundingAnchor = 0x1.8p23f;  // adding it leaves an integer in the low bits
constexpr float kLn2High = 0x1.62e4p-1f;      // 15 bits, so that n times it is exact
constexpr float kLn2Low = 0x1.7f7d1cp-20f;
constexpr float kExpCoefficients[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
constexpr float kExpUnderflow = -87.0f;

#if DSV4_CPU_SCALAR_LANES

inline Lanes subtract(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] - b.l[i];
  return out;
}
inline Lanes divide(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] / b.l[i];
  return out;
}
inline Lanes max_number(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] < b.l[i] ? b.l[i] : a.l[i];
  return out;
}
inline Lanes relu(const Lanes& a) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = a.l[i] < 0 ? 0.0f : a.l[i];
  return out;
}
inline float exp_nonpositive(float x) {
  if (x < kExpUnderflow) return 0;
  const float anchored = std::fma(x, kLog2E, kRoundingAnchor);
  const float n = anchored - kRoundingAnchor;
  const float r = std::fma(n, -kLn2Low, std::fma(n, -kLn2High, x));
  float p = kExpCoefficients[0];
  for (int i = 1; i < 6; ++i) p = std::fma(p, r, kExpCoefficients[i]);
  const float y = std::fma(p, r * r, r) + 1.0f;
  return y * f32_from_bits((f32_bits(anchored) - f32_bits(kRoundingAnchor) + kF32Bias)
                           << kF32MantissaBits);
}
inline Lanes exp_nonpositive(const Lanes& x) {
  Lanes out;
  for (int i = 0; i < 16; ++i) out.l[i] = exp_nonpositive(x.l[i]);
  return out;
}

#else

HWY_INLINE Lanes subtract(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::Sub(a.r[i], b.r[i]);
  return out;
}
HWY_INLINE Lanes divide(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) out.r[i] = hn::Div(a.r[i], b.r[i]);
  return out;
}
// a < b ? b : a, lane by lane: a NaN in b is passed over. Instructions named "max" differ in that.
HWY_INLINE Lanes max_number(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    out.r[i] = hn::IfThenElse(hn::Lt(a.r[i], b.r[i]), b.r[i], a.r[i]);
  }
  return out;
}
// a < 0 ? 0 : a: a NaN stays one.
HWY_INLINE Lanes relu(const Lanes& a) {
  const LaneVec zero = hn::Zero(LaneTag());
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    out.r[i] = hn::IfThenElse(hn::Lt(a.r[i], zero), zero, a.r[i]);
  }
  return out;
}
// e^x for x <= 0, -inf or NaN (which stays NaN): within 1.011 units of the last place, exactly 1 at
// 0; below -87, where FP32 nears its subnormals, exactly 0. row_math_test.cc looks at every x.
HWY_INLINE Lanes exp_nonpositive(const Lanes& x) {
  const LaneTag d;
  const hn::RebindToSigned<LaneTag> di;
  const auto anchor = hn::Set(d, kRoundingAnchor);
  Lanes out;
  for (int i = 0; i < kRegisters; ++i) {
    const auto anchored = hn::MulAdd(x.r[i], hn::Set(d, kLog2E), anchor);
    const auto n = hn::Sub(anchored, anchor);
    auto r = hn::MulAdd(n, hn::Set(d, -kLn2High), x.r[i]);
    r = hn::MulAdd(n, hn::Set(d, -kLn2Low), r);
    auto p = hn::Set(d, kExpCoefficients[0]);
    for (int c = 1; c < 6; ++c) p = hn::MulAdd(p, r, hn::Set(d, kExpCoefficients[c]));
    const auto y = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
    const auto exponent =
        hn::Add(hn::Sub(hn::BitCast(di, anchored), hn::BitCast(di, anchor)), hn::Set(di, 127));
    const auto power = hn::BitCast(d, hn::ShiftLeft<23>(exponent));
    const auto underflows = hn::Lt(x.r[i], hn::Set(d, kExpUnderflow));
    out.r[i] = hn::IfThenElse(underflows, hn::Zero(d), hn::Mul(y, power));
  }
  return out;
}

#endif  // DSV4_CPU_SCALAR_LANES

// x [n], n <= 16, and zeros behind; and back.
HWY_INLINE Lanes load_n(const float* x, std::int64_t n) {
  if (n >= kLanes) return load(x);
  float padded_values[kLanes] = {};
  std::copy_n(x, n, padded_values);
  return load(padded_values);
}
HWY_INLINE void store_n(const Lanes& v, std::int64_t n, float* x) {
  if (n >= kLanes) return store(v, x);
  float values[kLanes];
  store(v, values);
  std::copy_n(values, n, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
