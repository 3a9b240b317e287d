// Plain lanes in the order of the header, once for each instruction set.
#include "quantizer/error_sums.h"

#include <cstring>

#include "numerics/nvfp4.h"

// As the CPU backend: on x86 from AVX2 on, and a scalar form below it.
#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_DISABLED_TARGETS                                                           \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_WASM | \
   HWY_WASM_EMU256 | HWY_RVV | HWY_PPC8)
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

inline double sum_of(double* lanes) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void block_errors(const float* x, const float* decoded, std::int64_t num_blocks, BlockErrors* out) {
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, decoded += 16) {
    double source[kLanes] = {}, error[kLanes] = {}, dot[kLanes] = {};
    out[b].exact_values = 0;
    for (int i = 0; i < kNvfp4QuantBlock; ++i) {
      const double value = x[i], back = decoded[i], difference = back - value;
      source[i % kLanes] += value * value;
      error[i % kLanes] += difference * difference;
      dot[i % kLanes] += value * back;
      out[b].exact_values += f32_bits(x[i]) == f32_bits(decoded[i]) ? 1 : 0;
    }
    out[b].source_squares = sum_of(source);
    out[b].error_squares = sum_of(error);
    out[b].dot = sum_of(dot);
    out[b].source_amax = amax(x, kNvfp4QuantBlock);
    out[b].decoded_amax = amax(decoded, kNvfp4QuantBlock);
  }
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

using DoubleTag = hn::CappedTag<double, kLanes>;
using DoubleVec = hn::Vec<DoubleTag>;
using HalfTag = hn::Rebind<float, DoubleTag>;  // as many FP32 as there are FP64 lanes
using FloatTag = hn::CappedTag<float, kNvfp4QuantBlock>;
using IntTag = hn::RebindToSigned<FloatTag>;
constexpr int kDoubles = static_cast<int>(hn::MaxLanes(DoubleTag()));
constexpr int kFloats = static_cast<int>(hn::MaxLanes(FloatTag()));
constexpr int kParts = kLanes / kDoubles;  // registers for eight lanes

HWY_INLINE double sum_of(const DoubleVec (&parts)[kParts]) {
  HWY_ALIGN double lanes[kLanes];
  for (int i = 0; i < kParts; ++i) hn::Store(parts[i], DoubleTag(), lanes + i * kDoubles);
  return sum_of(lanes);
}

HWY_INLINE void block_magnitudes(const float* x, const float* decoded, BlockErrors& out) {
  const IntTag d;
  const auto magnitude = hn::Set(d, 0x7FFFFFFF);
  auto source_amax = hn::Zero(d), decoded_amax = hn::Zero(d);
  std::size_t exact = 0;
  for (int i = 0; i < kNvfp4QuantBlock; i += kFloats) {
    const auto source = hn::BitCast(d, hn::LoadU(FloatTag(), x + i));
    const auto back = hn::BitCast(d, hn::LoadU(FloatTag(), decoded + i));
    exact += hn::CountTrue(d, hn::Eq(source, back));
    source_amax = hn::Max(source_amax, hn::And(source, magnitude));
    decoded_amax = hn::Max(decoded_amax, hn::And(back, magnitude));
  }
  out.exact_values = static_cast<std::int32_t>(exact);
  const auto largest = [&](auto v) {
    return f32_from_bits(static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(d, v))));
  };
  out.source_amax = largest(source_amax);
  out.decoded_amax = largest(decoded_amax);
}

// No fused multiply-add: the scalar form has none either.
void block_errors(const float* x, const float* decoded, std::int64_t num_blocks, BlockErrors* out) {
  const DoubleTag d;
  for (std::int64_t b = 0; b < num_blocks; ++b, x += 16, decoded += 16) {
    DoubleVec source[kParts], error[kParts], dot[kParts];
    for (int i = 0; i < kParts; ++i) {
      source[i] = error[i] = dot[i] = hn::Zero(d);
      for (const int k : {i * kDoubles, i * kDoubles + kLanes}) {
        const auto value = hn::PromoteTo(d, hn::LoadU(HalfTag(), x + k));
        const auto back = hn::PromoteTo(d, hn::LoadU(HalfTag(), decoded + k));
        const auto difference = hn::Sub(back, value);
        source[i] = hn::Add(source[i], hn::Mul(value, value));
        error[i] = hn::Add(error[i], hn::Mul(difference, difference));
        dot[i] = hn::Add(dot[i], hn::Mul(value, back));
      }
    }
    out[b].source_squares = sum_of(source);
    out[b].error_squares = sum_of(error);
    out[b].dot = sum_of(dot);
    block_magnitudes(x, decoded, out[b]);
  }
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
