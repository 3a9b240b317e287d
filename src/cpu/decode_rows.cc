// Decoding of rows to BF16 for each instruction set: E2M1 by look-ups of bytes, the rest from FP32.
#include "cpu/decode_rows.h"

#include "cpu/source.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode_rows.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

constexpr std::uint16_t kBf16QuietNan = kF32QuietNanBits >> 16;

void round_to_bf16_plainly(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = x[i] == x[i] ? encode_bf16(x[i]) : kBf16QuietNan;
}

void decode_e4m3_plainly(const std::uint8_t* codes, std::int64_t n, float scale,
                         std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = encode_bf16(decode_e4m3(codes[i]) * scale);
}

bool has_nan(const std::uint8_t* codes, std::int64_t n) {
  const std::int64_t whole = n / 16 * 16;
  bool found = has_e4m3_nan(codes, whole);
  for (std::int64_t i = whole; i < n; ++i) found |= (codes[i] & 0x7F) == 0x7F;
  return found;
}

#if DSV4_CPU_SCALAR_LANES

void decode_e4m3_run(const std::uint8_t* codes, std::int64_t n, float scale, std::uint16_t* out) {
  decode_e4m3_plainly(codes, n, scale, out);
}
void decode_e2m1(const std::uint8_t* codes, const std::uint8_t* block_scales, std::int64_t n,
                 int block_shift, const std::uint8_t* table, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint8_t* const entry = table + block_scales[i >> (4 + block_shift)] * 32;
    const std::uint8_t code = unpack_e2m1(codes, i);
    out[i] = static_cast<std::uint16_t>(entry[code] | entry[16 + code] << 8);
  }
}
void round_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  round_to_bf16_plainly(x, n, out);
}

#else

// Sixteen values of `idx`, codes one a byte.
HWY_INLINE void decode_16(hn::Vec<hn::FixedTag<std::uint8_t, 16> > idx, const std::uint8_t* entry,
                          std::uint16_t* out) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto lower = hn::TableLookupBytes(hn::LoadU(d, entry), idx);
  const auto upper = hn::TableLookupBytes(hn::LoadU(d, entry + 16), idx);
  hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d, lower, upper)), d16, out);
  hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d, lower, upper)), d16, out + 8);
}

void decode_e2m1(const std::uint8_t* codes, const std::uint8_t* block_scales, std::int64_t n,
                 int block_shift, const std::uint8_t* table, std::uint16_t* out) {
  const hn::FixedTag<std::uint8_t, 16> d;
  const hn::FixedTag<std::uint16_t, 8> d16;
  const auto low_nibbles = hn::Set(d, 0xF);
  std::int64_t step = 0;
  for (; (step + 2) * 16 <= n; step += 2) {
    const auto pairs = hn::LoadU(d, codes + step * 8);
    const auto even = hn::And(pairs, low_nibbles);
    const auto odd =
        hn::And(hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, pairs))), low_nibbles);
    decode_16(hn::InterleaveLower(d, even, odd), table + block_scales[step >> block_shift] * 32,
              out + step * 16);
    decode_16(hn::InterleaveUpper(d, even, odd),
              table + block_scales[(step + 1) >> block_shift] * 32, out + step * 16 + 16);
  }
  if (step * 16 == n) return;
  std::uint8_t last[16];
  for (int i = 0; i < 16; ++i) last[i] = unpack_e2m1(codes + step * 8, i);
  decode_16(hn::LoadU(d, last), table + block_scales[step >> block_shift] * 32, out + step * 16);
}

using UintTag = hn::RebindToUnsigned<LaneTag>;

// x as bits whose upper halves are BF16, rounded to nearest even; not for NaN. Finite magnitudes
// plus what rounds them stay below 2^31, so nothing is carried into the sign.
HWY_INLINE hn::Vec<UintTag> rounded_bits(LaneVec x) {
  const UintTag d;
  const auto bits = hn::BitCast(d, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  return hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFF)));
}

// kExact: the products are BF16 values as they are.
template <bool kExact>
HWY_INLINE void decode_e4m3_32(const std::uint8_t* codes, const Lanes& scale_256,
                               std::uint16_t* out) {
  const hn::Repartition<std::uint16_t, LaneTag> d16;
  hn::Vec<UintTag> bits[2 * kRegisters];
  for (int half = 0; half < 2; ++half) {
    const Lanes values = multiply(load_e4m3_256th(codes + half * kLanes), scale_256);
    for (int r = 0; r < kRegisters; ++r) {
      bits[half * kRegisters + r] =
          kExact ? hn::BitCast(UintTag(), values.r[r]) : rounded_bits(values.r[r]);
    }
  }
  for (int i = 0; i < 2 * kRegisters; i += 2) {
    const auto upper_halves =
        hn::ConcatOdd(d16, hn::BitCast(d16, bits[i + 1]), hn::BitCast(d16, bits[i]));
    hn::StoreU(upper_halves, d16, out + i * kLanesPerRegister);
  }
}

void decode_e4m3_run(const std::uint8_t* codes, std::int64_t n, float scale, std::uint16_t* out) {
  const Lanes scale_256 = broadcast(scale * 256);
  // A power of two under which the smallest code, 2^-9, stays a normal number.
  const bool exact = (f32_bits(scale) & 0x007FFFFFu) == 0 && std::fabs(scale) >= 0x1p-117f;
  std::int64_t i = 0;
  if (exact) {
    for (; i + 32 <= n; i += 32) decode_e4m3_32<true>(codes + i, scale_256, out + i);
  } else {
    for (; i + 32 <= n; i += 32) decode_e4m3_32<false>(codes + i, scale_256, out + i);
  }
  decode_e4m3_plainly(codes + i, n - i, scale, out + i);
}

void round_to_bf16(const float* x, std::int64_t n, std::uint16_t* out) {
  const IntTag di;
  const hn::Rebind<std::uint16_t, LaneTag> d16;
  std::int64_t i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const LaneVec values = hn::LoadU(LaneTag(), x + i);
    const auto is_nan = hn::RebindMask(di, hn::IsNaN(values));
    const auto bits = hn::BitCast(di, hn::ShiftRight<16>(rounded_bits(values)));
    const auto code = hn::IfThenElse(is_nan, hn::Set(di, kBf16QuietNan), bits);
    hn::StoreU(hn::DemoteTo(d16, code), d16, out + i);
  }
  round_to_bf16_plainly(x + i, n - i, out + i);
}

#endif  // DSV4_CPU_SCALAR_LANES

const DecodeRowKernels& decode_row_kernel_table() {
  static constexpr DecodeRowKernels kKernels = {&decode_e2m1, &decode_e4m3_run, &has_nan,
                                                &round_to_bf16};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(decode_row_kernel_table);

const DecodeRowKernels& decode_row_kernels(std::int64_t targets) {
  return DSV4_CPU_KERNEL(decode_row_kernel_table, targets)();
}

Bf16Table::Bf16Table(Format format, float global_scale) : bytes_(256 * 32) {
  auto* entry = reinterpret_cast<std::uint8_t*>(bytes_.data());
  for (int scale = 0; scale < 256; ++scale, entry += 32) {
    const auto bits = static_cast<std::uint8_t>(scale);
    for (std::uint8_t code = 0; code < 16; ++code) {
      const float value = format == Format::kMxfp4 ? decode_mxfp4(code, bits)
                                                   : decode_nvfp4(code, bits, global_scale);
      const std::uint16_t bf16 = value == value ? encode_bf16(value) : kF32QuietNanBits >> 16;
      entry[code] = static_cast<std::uint8_t>(bf16);
      entry[16 + code] = static_cast<std::uint8_t>(bf16 >> 8);
    }
  }
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
