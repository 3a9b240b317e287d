// Plain lanes in the order of the header, once for each instruction set.
#include "quantizer/error_sums.h"

#include <array>
#include <cmath>
#include <cstring>

#include "numerics/nvfp4.h"

// The targets of the CPU backend. Below 32 bytes a register the plain form does.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS (~(HWY_AVX3 | HWY_AVX2 | HWY_NEON | HWY_EMU128 | HWY_SCALAR))
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "quantizer/error_sums.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which says for which target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = 8;

#if HWY_MAX_BYTES < 32

double sum_of(double* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

double block_errors(const float* x, const std::uint8_t* codes, const std::uint8_t* block_scales,
                    float global_scale, std::int64_t num_blocks, BlockErrors* out) {
  double dot[kLanes] = {};
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, codes += kNvfp4BlockBytes) {
    double source[kLanes] = {}, error[kLanes] = {};
    out[b].exact_values = 0;
    for (int i = 0; i < kNvfp4QuantBlock; ++i) {
      const float decoded = decode_nvfp4(unpack_e2m1(codes, i), block_scales[b], global_scale);
      const double value = x[i], back = decoded, difference = back - value;
      source[i % kLanes] = std::fma(value, value, source[i % kLanes]);
      error[i % kLanes] = std::fma(difference, difference, error[i % kLanes]);
      dot[i % kLanes] = std::fma(value, back, dot[i % kLanes]);
      out[b].exact_values += f32_bits(x[i]) == f32_bits(decoded) ? 1 : 0;
    }
    out[b].source_squares = sum_of(source);
    out[b].error_squares = sum_of(error);
    out[b].source_amax = amax(x, kNvfp4QuantBlock);
  }
  return sum_of(dot);
}

double code_squares(const std::uint8_t* codes, const double* weights, std::int64_t num_blocks) {
  static constexpr std::int32_t kSquares[8] = {0, 1, 4, 9, 16, 36, 64, 144};
  double lanes[kLanes] = {};
  for (std::int64_t b = 0; b < num_blocks; ++b, codes += kNvfp4BlockBytes) {
    std::int32_t sum = 0;
    for (int i = 0; i < kNvfp4BlockBytes; ++i) {
      sum += kSquares[codes[i] & 7] + kSquares[codes[i] >> 4 & 7];
    }
    lanes[b % kLanes] += static_cast<double>(sum) * weights[b];
  }
  return sum_of(lanes);
}

#else

constexpr std::array<float, 256> e4m3_values() {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = decode_e4m3(static_cast<std::uint8_t>(code));
  }
  return values;
}
constexpr std::array<float, 256> kE4m3Values = e4m3_values();

using DoubleTag = hn::CappedTag<double, kLanes>;
using DoubleVec = hn::Vec<DoubleTag>;
constexpr int kDoubles = static_cast<int>(hn::MaxLanes(DoubleTag()));
constexpr int kParts = kLanes / kDoubles;      // registers for eight lanes
using FloatTag = hn::FixedTag<float, kLanes>;  // half a block
using FloatVec = hn::Vec<FloatTag>;
using ByteBlockTag = hn::FixedTag<std::uint8_t, kNvfp4QuantBlock>;

template <class Tag>
HWY_INLINE double tree_sum(Tag, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(Tag()) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<Tag> half;
    return tree_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}
HWY_INLINE double sum_of(DoubleVec (&parts)[kParts]) {
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) parts[i] = hn::Add(parts[i], parts[i + half]);
  }
  return tree_sum(DoubleTag(), parts[0]);
}

// A template, so that only one of the two forms is compiled.
template <class Tag>
HWY_INLINE void promote(Tag d, FloatVec v, hn::Vec<Tag> (&parts)[kParts]) {
  if constexpr (hn::MaxLanes(Tag()) == kLanes) {
    parts[0] = hn::PromoteTo(d, v);
  } else {
    const hn::Half<FloatTag> half;
    parts[0] = hn::PromoteTo(d, hn::LowerHalf(half, v));
    parts[1] = hn::PromoteTo(d, hn::UpperHalf(half, v));
  }
}

// The upper and the lower byte of every code's value in BF16, which is the upper half of FP32.
constexpr std::uint8_t kUpperBytes[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                          0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
constexpr std::uint8_t kLowerBytes[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                          0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};

// (e2m1 * e4m3) * g of eight codes, given as the BF16 bits of their values.
template <class WordVec>
HWY_INLINE FloatVec scaled(WordVec bf16_bits, float block_scale, float global_scale) {
  const FloatTag d;
  const auto bits = hn::PromoteTo(hn::RebindToUnsigned<FloatTag>(), bf16_bits);
  const auto value = hn::BitCast(d, hn::ShiftLeft<16>(bits));
  return hn::Mul(hn::Mul(value, hn::Set(d, block_scale)), hn::Set(d, global_scale));
}

// decode_nvfp4 of a block: its first and its last eight values.
HWY_INLINE void decode_block(const std::uint8_t* codes, float block_scale, float global_scale,
                             FloatVec (&decoded)[2]) {
  const ByteBlockTag bytes;
  const hn::Repartition<std::uint16_t, ByteBlockTag> words;
  const auto pairs = hn::ZeroExtendVector(bytes, hn::LoadU(hn::Half<ByteBlockTag>(), codes));
  const auto low = hn::And(pairs, hn::Set(bytes, 0x0F));
  const auto in_order = hn::InterleaveLower(bytes, low, hn::ShiftRight<4>(pairs));
  const auto upper = hn::TableLookupBytes(hn::LoadU(bytes, kUpperBytes), in_order);
  const auto lower = hn::TableLookupBytes(hn::LoadU(bytes, kLowerBytes), in_order);
  const auto first = hn::BitCast(words, hn::InterleaveLower(bytes, lower, upper));
  const auto last = hn::BitCast(words, hn::InterleaveUpper(bytes, lower, upper));
  decoded[0] = scaled(first, block_scale, global_scale);
  decoded[1] = scaled(last, block_scale, global_scale);
}

double block_errors(const float* x, const std::uint8_t* codes, const std::uint8_t* block_scales,
                    float global_scale, std::int64_t num_blocks, BlockErrors* out) {
  const hn::RebindToSigned<FloatTag> ints;
  DoubleVec dot[kParts];
  for (DoubleVec& part : dot) part = hn::Zero(DoubleTag());
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, codes += kNvfp4BlockBytes) {
    FloatVec decoded[2];
    decode_block(codes, kE4m3Values[block_scales[b]], global_scale, decoded);
    DoubleVec source[kParts], error[kParts];
    auto amax = hn::Zero(ints);
    std::size_t exact = 0;
    for (int h = 0; h < 2; ++h) {
      const auto half = hn::LoadU(FloatTag(), x + h * kLanes);
      DoubleVec value[kParts], back[kParts];
      promote(DoubleTag(), half, value);
      promote(DoubleTag(), decoded[h], back);
      for (int i = 0; i < kParts; ++i) {
        const auto difference = hn::Sub(back[i], value[i]);
        source[i] =
            h == 0 ? hn::Mul(value[i], value[i]) : hn::MulAdd(value[i], value[i], source[i]);
        error[i] =
            h == 0 ? hn::Mul(difference, difference) : hn::MulAdd(difference, difference, error[i]);
        dot[i] = hn::MulAdd(value[i], back[i], dot[i]);
      }
      const auto bits = hn::BitCast(ints, half);
      exact += hn::CountTrue(ints, hn::Eq(bits, hn::BitCast(ints, decoded[h])));
      amax = hn::Max(amax, hn::And(bits, hn::Set(ints, 0x7FFFFFFF)));
    }
    out[b].source_squares = sum_of(source);
    out[b].error_squares = sum_of(error);
    out[b].source_amax =
        f32_from_bits(static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(ints, amax))));
    out[b].exact_values = static_cast<std::int32_t>(exact);
  }
  return sum_of(dot);
}

using ByteTag = hn::Repartition<std::uint8_t, DoubleTag>;
using WordTag = hn::RebindToUnsigned<DoubleTag>;

// Adds kLanes blocks: a register of codes is as many blocks as it has FP64 lanes.
HWY_INLINE void add_code_squares(const std::uint8_t* codes, const double* weights,
                                 DoubleVec (&lanes)[kParts]) {
  static constexpr std::uint8_t kSquares[16] = {0, 1, 4, 9, 16, 36, 64, 144,
                                                0, 1, 4, 9, 16, 36, 64, 144};
  const DoubleTag d;
  const ByteTag bytes;
  const auto squares = hn::LoadDup128(bytes, kSquares);
  const auto to_double = hn::Set(d, 0x1p52);  // whole numbers below 2^52 are its low bits
  for (int i = 0; i < kParts; ++i) {
    const auto pairs = hn::LoadU(bytes, codes + i * kDoubles * kNvfp4BlockBytes);
    const auto low = hn::TableLookupBytes(squares, hn::And(pairs, hn::Set(bytes, 0x0F)));
    const auto high = hn::TableLookupBytes(squares, hn::ShiftRight<4>(pairs));
    const auto sums = hn::Add(hn::SumsOf8(low), hn::SumsOf8(high));
    const auto biased = hn::BitCast(d, hn::Or(sums, hn::BitCast(WordTag(), to_double)));
    const auto weight = hn::LoadU(d, weights + i * kDoubles);
    lanes[i] = hn::Add(lanes[i], hn::Mul(hn::Sub(biased, to_double), weight));
  }
}

double code_squares(const std::uint8_t* codes, const double* weights, std::int64_t num_blocks) {
  DoubleVec lanes[kParts];
  for (auto& part : lanes) part = hn::Zero(DoubleTag());
  std::int64_t b = 0;
  for (; b + kLanes <= num_blocks; b += kLanes) {
    add_code_squares(codes + b * kNvfp4BlockBytes, weights + b, lanes);
  }
  if (b < num_blocks) {
    const auto rest = static_cast<std::size_t>(num_blocks - b);
    std::uint8_t last_codes[kLanes * kNvfp4BlockBytes] = {};
    double last_weights[kLanes] = {};
    std::memcpy(last_codes, codes + b * kNvfp4BlockBytes, rest * kNvfp4BlockBytes);
    std::memcpy(last_weights, weights + b, rest * sizeof(double));
    add_code_squares(last_codes, last_weights, lanes);
  }
  return sum_of(lanes);
}

#endif

const ErrorKernels& error_kernel_table() {
  static constexpr ErrorKernels kKernels = {&block_errors, &code_squares};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {

HWY_EXPORT(error_kernel_table);

const ErrorKernels& error_kernels(std::int64_t targets) {
  hwy::ChosenTarget chosen;  // of this call: HWY_DYNAMIC_DISPATCH keeps one in a global
  chosen.Update(targets);
  return (*(HWY_DISPATCH_TABLE(error_kernel_table)[chosen.GetIndex()]))();
}

const ErrorKernels& error_kernels() {
  return error_kernels((hwy::SupportedTargets() & HWY_TARGETS) | HWY_BASELINE_SCALAR);
}

}  // namespace dsv4
#endif  // HWY_ONCE
