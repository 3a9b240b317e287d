// Quantisation of rows. The bytes are those of the encoders in numerics/: each step is the same
// correctly rounded operation, on sixteen values at a time; blocks that are not finite go there.
#include "ops/quantize.h"

#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/quantize.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lanes-inl.h"

#ifndef DSV4_CPU_QUANTIZE_ONCE
#define DSV4_CPU_QUANTIZE_ONCE
namespace dsv4::cpu {

struct QuantizeKernels {
  float (*amax)(const float* x, std::int64_t n);
  // As the functions of numerics/ with these names.
  std::uint8_t (*encode_e4m3_block)(const float* x, int n, std::uint8_t* codes);
  std::uint8_t (*encode_mxfp4_block)(const float* x, std::uint8_t* codes);
  std::uint8_t (*encode_nvfp4_block)(const float* x, float global_scale, std::uint8_t* codes,
                                     E2m1Rounding rounding);
};

}  // namespace dsv4::cpu
#endif  // DSV4_CPU_QUANTIZE_ONCE

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
std::uint8_t nvfp4_block(const float* x, float global_scale, std::uint8_t* codes,
                         E2m1Rounding rounding) {
  return encode_nvfp4_block(x, global_scale, codes, rounding);
}

#else

using UintTag = hn::RebindToUnsigned<LaneTag>;
using IntTag = hn::RebindToSigned<LaneTag>;
using ByteTag = hn::Rebind<std::uint8_t, LaneTag>;
using IntVec = hn::Vec<IntTag>;

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

template <E2m1Rounding kRounding>
HWY_INLINE void encode_e2m1_16(const float* x, float divisor, std::uint8_t* packed) {
  std::uint8_t codes[16];
  for (int i = 0; i < 16; i += kLanesPerRegister) {
    const auto q = hn::Div(hn::LoadU(LaneTag(), x + i), hn::Set(LaneTag(), divisor));
    hn::StoreU(hn::DemoteTo(ByteTag(), e2m1_codes<kRounding>(q)), ByteTag(), codes + i);
  }
  pack_codes(codes, packed);
}

std::uint8_t e4m3_block(const float* x, int n, std::uint8_t* codes) {
  const float block_amax = amax_of(x, n);
  if (!is_finite(block_amax)) return encode_e4m3_block(x, n, codes);
  const std::uint8_t block_scale = e4m3_block_exponent(block_amax);
  const auto divisor = hn::Set(LaneTag(), decode_e8m0(block_scale));
  int i = 0;
  for (; i + kLanesPerRegister <= n; i += kLanesPerRegister) {
    const auto q = hn::Div(hn::LoadU(LaneTag(), x + i), divisor);
    hn::StoreU(hn::DemoteTo(ByteTag(), e4m3_codes(q)), ByteTag(), codes + i);
  }
  for (; i < n; ++i) codes[i] = encode_e4m3_scaled(x[i], block_scale);
  return block_scale;
}

std::uint8_t mxfp4_block(const float* x, std::uint8_t* codes) {
  const float block_amax = amax_of(x, kMxfp4QuantBlock);
  if (!is_finite(block_amax)) return encode_mxfp4_block(x, codes);
  const std::uint8_t block_scale = mxfp4_block_exponent(block_amax);
  const float divisor = decode_e8m0(block_scale);
  encode_e2m1_16<E2m1Rounding::kNearestEven>(x, divisor, codes);
  encode_e2m1_16<E2m1Rounding::kNearestEven>(x + 16, divisor, codes + 8);
  return block_scale;
}

std::uint8_t nvfp4_block(const float* x, float global_scale, std::uint8_t* codes,
                         E2m1Rounding rounding) {
  const float block_amax = amax_of(x, kNvfp4QuantBlock);
  if (!is_finite(block_amax)) return encode_nvfp4_block(x, global_scale, codes, rounding);
  const std::uint8_t block_scale = nvfp4_block_scale(block_amax, global_scale);
  const float divisor = nvfp4_divisor(block_scale, global_scale);
  if (!(divisor > 0)) {
    std::memset(codes, 0, kNvfp4BlockBytes);
  } else if (rounding == E2m1Rounding::kNearestEven) {
    encode_e2m1_16<E2m1Rounding::kNearestEven>(x, divisor, codes);
  } else {
    encode_e2m1_16<E2m1Rounding::kHalfStep>(x, divisor, codes);
  }
  return block_scale;
}

#endif  // DSV4_CPU_SCALAR_LANES

const QuantizeKernels& quantize_kernels() {
  static constexpr QuantizeKernels kKernels = {&amax_of, &e4m3_block, &mxfp4_block, &nvfp4_block};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "cpu/cpu_backend.h"
#include "cpu/matmul.h"

namespace dsv4 {
namespace cpu {
HWY_EXPORT(quantize_kernels);
}  // namespace cpu

namespace {

// The global scale of row `row` of values x, stored where the output has one a row.
float row_global_scale(const cpu::QuantizeKernels& kernels, const QuantizeParams& p,
                       std::int64_t row, const float* x) {
  float global_scale = 0;
  if (p.static_global_scales == nullptr) {
    global_scale = nvfp4_global_scale(kernels.amax(x, p.x.cols));
  } else {
    global_scale =
        p.static_global_scales[p.global_scale_idx == nullptr ? 0 : p.global_scale_idx[row]];
  }
  if (p.out.global_scale_stride == 1) p.out.global_scales[row] = global_scale;
  return global_scale;
}

void quantize_row(const cpu::QuantizeKernels& kernels, const QuantizeParams& p, std::int64_t row,
                  const float* x) {
  const MutableMatrixView& out = p.out;
  auto* codes = static_cast<std::uint8_t*>(out.data) + data_bytes(out.format, out.row_stride) * row;
  auto* scales = static_cast<std::uint8_t*>(out.block_scales) + out.scale_stride * row;
  const float global_scale =
      out.format == Format::kNvfp4 ? row_global_scale(kernels, p, row, x) : 1.0f;
  for (std::int64_t begin = 0; begin < out.cols; begin += out.block_cols) {
    const std::int64_t n = std::min(out.block_cols, out.cols - begin);
    std::uint8_t* block_codes = codes + data_bytes(out.format, begin);
    std::uint8_t& block_scale = scales[begin / out.block_cols];
    switch (out.format) {
      case Format::kE4m3:
        block_scale = kernels.encode_e4m3_block(x + begin, static_cast<int>(n), block_codes);
        break;
      case Format::kMxfp4:
        block_scale = kernels.encode_mxfp4_block(x + begin, block_codes);
        break;
      default:
        block_scale = kernels.encode_nvfp4_block(x + begin, global_scale, block_codes, p.rounding);
    }
  }
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const QuantizeParams& p) const {
  cpu::Scratch scratch(nullptr);
  scratch.take<float>(pool_.num_threads() * cpu::padded(p.x.cols));
  return scratch.bytes();
}

void CpuBackend::compute(const QuantizeParams& p, const OpContext& context) {
  if (p.x.cols == 0) return;
  const std::int64_t rows = cpu::active_rows(p.row_count, p.out.rows);
  const std::int64_t row_floats = cpu::padded(p.x.cols);
  float* const values =
      cpu::Scratch(context.workspace).take<float>(pool_.num_threads() * row_floats);
  const cpu::QuantizeKernels& kernels = DSV4_CPU_KERNEL(cpu::quantize_kernels, targets_)();
  const cpu::Source source = cpu::make_source(p.x, *tables_);
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / p.x.cols);
  pool_.parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    float* const x = values + thread_idx * row_floats;
    for (std::int64_t row = begin; row < end; ++row) {
      dot_.decode_row(source, p.row_idx == nullptr ? row : p.row_idx[row], x);
      quantize_row(kernels, p, row, x);
    }
  });
}

}  // namespace dsv4
#endif  // HWY_ONCE
