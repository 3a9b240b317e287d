// Plain lanes in the order of the header, once for each instruction set.
#include "quantizer/error_sums.h"

#include <array>
#include <cmath>
#include <cstring>

#include "numerics/bf16.h"
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

inline float to_f32(float x) { return x; }
inline float to_f32(std::uint16_t bf16) { return decode_bf16(bf16); }

double sum_of(const double* lanes) {
  double four[4];
  for (int l = 0; l < 4; ++l) four[l] = lanes[l] + lanes[l + 4];
  return (four[0] + four[1]) + (four[2] + four[3]);
}

template <class Source>
RowErrors block_errors(const Source* x, const std::uint8_t* codes, const std::uint8_t* block_scales,
                       float global_scale, const float* guards, std::int64_t num_blocks,
                       BlockErrors* out) {
  RowErrors row;
  double dot[kLanes] = {};
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, codes += kNvfp4BlockBytes) {
    double source[kLanes] = {}, error[kLanes] = {};
    out[b].is_beyond = false;
    for (int i = 0; i < kNvfp4QuantBlock; ++i) {
      const float from = to_f32(x[i]);
      const float to = decode_nvfp4(unpack_e2m1(codes, i), block_scales[b], global_scale);
      const double value = from, back = to, difference = back - value;
      source[i / 2] = std::fma(value, value, source[i / 2]);
      error[i / 2] = std::fma(difference, difference, error[i / 2]);
      dot[i / 2] = std::fma(value, back, dot[i / 2]);
      row.exact_values += f32_bits(from) == f32_bits(to) ? 1 : 0;
      out[b].is_beyond |= std::fabs(from) > guards[block_scales[b]];
    }
    row.source_squares += out[b].source_squares = sum_of(source);
    row.error_squares += out[b].error_squares = sum_of(error);
  }
  row.dot = sum_of(dot);
  return row;
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
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
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
constexpr int kParts = kLanes / kDoubles;  // registers for eight lanes
using FourTag = hn::FixedTag<double, 4>;
using PairTag = hn::FixedTag<double, 2>;
using FloatTag = hn::FixedTag<float, kLanes>;  // half a block
using FloatVec = hn::Vec<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UintTag = hn::RebindToUnsigned<FloatTag>;

// The values of a block at even and at odd places.
struct Halves {
  FloatVec even, odd;
};

HWY_INLINE Halves load_block(const float* x) {
  const FloatTag d;
  const auto first = hn::LoadU(d, x), last = hn::LoadU(d, x + kLanes);
  return {hn::ConcatEven(d, last, first), hn::ConcatOdd(d, last, first)};
}
HWY_INLINE Halves load_block(const std::uint16_t* bf16) {
  const FloatTag d;
  const UintTag bits;
  const auto pairs = hn::BitCast(bits, hn::LoadU(hn::Repartition<std::uint16_t, UintTag>(), bf16));
  return {hn::BitCast(d, hn::ShiftLeft<16>(pairs)),
          hn::BitCast(d, hn::And(pairs, hn::Set(bits, 0xFFFF0000u)))};
}

// (e2m1 * e4m3) * g of the codes in the low four bits; scaled_codes has the first products.
HWY_INLINE FloatVec decode_codes(hn::Vec<UintTag> codes, FloatVec scaled_codes,
                                 float global_scale) {
  const FloatTag d;
  const UintTag bits;
  const auto magnitude =
      hn::TableLookupLanes(scaled_codes, hn::IndicesFromVec(d, hn::And(codes, hn::Set(bits, 7))));
  const auto sign = hn::And(hn::ShiftLeft<28>(codes), hn::Set(bits, 0x80000000u));
  return hn::Mul(hn::Xor(magnitude, hn::BitCast(d, sign)), hn::Set(d, global_scale));
}

// Byte i holds the values 2 i and 2 i + 1.
HWY_INLINE Halves decode_block(const std::uint8_t* codes, float block_scale, float global_scale) {
  alignas(32) static constexpr float kMagnitudes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const FloatTag d;
  const auto scaled_codes = hn::Mul(hn::Load(d, kMagnitudes), hn::Set(d, block_scale));
  const auto pairs =
      hn::PromoteTo(UintTag(), hn::LoadU(hn::Rebind<std::uint8_t, UintTag>(), codes));
  return {decode_codes(pairs, scaled_codes, global_scale),
          decode_codes(hn::ShiftRight<4>(pairs), scaled_codes, global_scale)};
}

// Templates, so that only the form for this target is compiled.
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
template <class Tag>
HWY_INLINE hn::Vec<FourTag> add_halves(Tag, const hn::Vec<Tag> (&parts)[kParts]) {
  if constexpr (hn::MaxLanes(Tag()) == kLanes) {
    return hn::Add(hn::LowerHalf(FourTag(), parts[0]), hn::UpperHalf(FourTag(), parts[0]));
  } else {
    return hn::Add(parts[0], parts[1]);
  }
}

// The sums of eight lanes of a, then of b.
HWY_INLINE hn::Vec<PairTag> sums_of(const DoubleVec (&a)[kParts], const DoubleVec (&b)[kParts]) {
  const FourTag d;
  const auto four_a = add_halves(DoubleTag(), a), four_b = add_halves(DoubleTag(), b);
  const auto two =
      hn::Add(hn::InterleaveLower(d, four_a, four_b), hn::InterleaveUpper(d, four_a, four_b));
  return hn::Add(hn::LowerHalf(PairTag(), two), hn::UpperHalf(PairTag(), two));
}

template <class Source>
RowErrors block_errors(const Source* x, const std::uint8_t* codes, const std::uint8_t* block_scales,
                       float global_scale, const float* guards, std::int64_t num_blocks,
                       BlockErrors* out) {
  const DoubleTag d;
  const IntTag ints;
  const auto magnitude = hn::Set(ints, 0x7FFFFFFF);
  DoubleVec dot[kParts], value[kParts], back[kParts], source[kParts], error[kParts];
  for (DoubleVec& part : dot) part = hn::Zero(d);
  auto squares = hn::Zero(PairTag());
  auto exact = hn::Zero(ints);
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, codes += kNvfp4BlockBytes) {
    const Halves from = load_block(x);
    const Halves to = decode_block(codes, kE4m3Values[block_scales[b]], global_scale);
    promote(d, from.even, value);
    promote(d, to.even, back);
    for (int i = 0; i < kParts; ++i) {
      const auto difference = hn::Sub(back[i], value[i]);
      source[i] = hn::Mul(value[i], value[i]);
      error[i] = hn::Mul(difference, difference);
      dot[i] = hn::MulAdd(value[i], back[i], dot[i]);
    }
    promote(d, from.odd, value);
    promote(d, to.odd, back);
    for (int i = 0; i < kParts; ++i) {
      const auto difference = hn::Sub(back[i], value[i]);
      source[i] = hn::MulAdd(value[i], value[i], source[i]);
      error[i] = hn::MulAdd(difference, difference, error[i]);
      dot[i] = hn::MulAdd(value[i], back[i], dot[i]);
    }
    const auto sums = sums_of(source, error);
    squares = hn::Add(squares, sums);
    hn::StoreU(sums, PairTag(), &out[b].source_squares);
    const auto even = hn::BitCast(ints, from.even), odd = hn::BitCast(ints, from.odd);
    exact = hn::Sub(exact, hn::VecFromMask(ints, hn::Eq(even, hn::BitCast(ints, to.even))));
    exact = hn::Sub(exact, hn::VecFromMask(ints, hn::Eq(odd, hn::BitCast(ints, to.odd))));
    const auto largest = hn::Max(hn::And(even, magnitude), hn::And(odd, magnitude));
    const auto guard = static_cast<std::int32_t>(f32_bits(guards[block_scales[b]]));
    out[b].is_beyond = !hn::AllFalse(ints, hn::Gt(largest, hn::Set(ints, guard)));
  }
  RowErrors row;
  row.source_squares = hn::GetLane(squares);
  row.error_squares = hn::GetLane(hn::UpperHalf(hn::Half<PairTag>(), squares));
  row.dot = hn::GetLane(sums_of(dot, dot));
  row.exact_values = hn::GetLane(hn::SumOfLanes(ints, exact));
  return row;
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

// Lanes l += l + 4, + 2, + 1.
HWY_INLINE double sum_of(const DoubleVec (&lanes)[kParts]) {
  const auto four = add_halves(DoubleTag(), lanes);
  const auto two = hn::Add(hn::LowerHalf(PairTag(), four), hn::UpperHalf(PairTag(), four));
  return hn::GetLane(hn::Add(two, hn::Reverse(PairTag(), two)));
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
  static constexpr ErrorKernels kKernels = {&block_errors<float>, &block_errors<std::uint16_t>,
                                            &code_squares};
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
