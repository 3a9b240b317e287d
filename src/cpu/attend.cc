// Softmax, weighted sums of values and decoding of cache rows, for every instruction set.
#include "cpu/attend.h"

#include "numerics/e8m0.h"
#include "tensor/kv_row_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attend.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/dot.h"
#include "cpu/lane_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Codes [n], n a multiple of 16, under one E8M0 scale; false if the fast decoder cannot: a NaN, or
// a scale so large that 256 times it is none.
bool decode_e4m3_lanes(const std::uint8_t* codes, std::int64_t n, std::uint8_t scale, float* out) {
  if (scale > kE8m0One + 119 || has_e4m3_nan(codes, n)) return false;
  const Lanes factor = broadcast(decode_e8m0(scale) * 256.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    store(multiply(load_e4m3_256th(codes + i), factor), out + i);
  }
  return true;
}

// False if only the plain decoder can.
bool decode_attention_fp8_row(const RowLayout& layout, const std::byte* data,
                              const std::byte* scales, float* out) {
  const std::int64_t nope = layout.width - layout.rope_dim;
  if (nope % kLanes != 0 || layout.rope_dim % kLanes != 0) return false;
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(data);
  for (std::int64_t i = 0; i < nope; i += kAttentionFp8QuantBlock) {
    const std::int64_t n = nope - i < kAttentionFp8QuantBlock ? nope - i : kAttentionFp8QuantBlock;
    const auto scale = static_cast<std::uint8_t>(scales[i / kAttentionFp8QuantBlock]);
    if (!decode_e4m3_lanes(codes + i, n, scale, out + i)) return false;
  }
  for (std::int64_t i = 0; i < layout.rope_dim; i += kLanes) {
    std::uint16_t bits[kLanes];
    std::memcpy(bits, data + nope + 2 * i, sizeof(bits));
    store(load_bf16(bits), out + nope + i);
  }
  return true;
}

void decode_row_any(const RowLayout& layout, const std::byte* data, const std::byte* scales,
                    float* out) {
  for (std::int64_t i = layout.width; i < padded(layout.width); ++i) out[i] = 0;
  if (layout.kind == RowKind::kAttentionFp8 &&
      decode_attention_fp8_row(layout, data, scales, out)) {
    return;
  }
  decode_kv_row(layout, data, scales, out);
}

SoftmaxSums softmax(float* scores, std::int64_t n, float softmax_scale) {
  const std::int64_t end = padded(n);
  const Lanes factor = broadcast(softmax_scale);
  for (std::int64_t i = 0; i < end; i += kLanes)
    store(multiply(load(scores + i), factor), scores + i);
  constexpr float kMinusInfinity = -__builtin_inff();
  for (std::int64_t i = n; i < end; ++i) scores[i] = kMinusInfinity;
  Lanes max_lanes = broadcast(kMinusInfinity);
  for (std::int64_t i = 0; i < end; i += kLanes)
    max_lanes = max_number(max_lanes, load(scores + i));
  float lanes[kLanes];
  store(max_lanes, lanes);
  SoftmaxSums sums{lanes[0], 0};
  for (int l = 1; l < kLanes; ++l) sums.max = sums.max < lanes[l] ? lanes[l] : sums.max;

  const Lanes max = broadcast(sums.max);
  Lanes sum = broadcast(0.0f);
  for (std::int64_t i = 0; i < end; i += kLanes) {
    const Lanes weight = exp_nonpositive(subtract(load(scores + i), max));
    store(weight, scores + i);
    sum = add(sum, weight);
  }
  sums.sum = sum_lanes<false>(sum);
  return sums;
}

// Accumulators of a tile: 16 of AVX-512's 32 registers, 8 of AVX2's 16.
constexpr int kTileHeads = 4;
#if HWY_TARGET == HWY_AVX2
constexpr int kTileLanes = 1;
#else
constexpr int kTileLanes = 4;
#endif

template <int kHeads, int kWidth>
HWY_INLINE void accumulate_tile(const ValueCall& c, int head, std::int64_t column) {
  Lanes acc[kHeads][kWidth];
  for (int h = 0; h < kHeads; ++h) {
    const float* const from = c.acc + (head + h) * c.acc_stride + column;
    for (int i = 0; i < kWidth; ++i) {
      acc[h][i] = c.first ? broadcast(0.0f) : load(from + i * kLanes);
    }
  }
  const float* const weights = c.weights + head * c.weight_stride;
  const float* values = c.values + column;
  for (std::int64_t r = 0; r < c.num_rows; ++r, values += c.value_stride) {
    Lanes value[kWidth];
    for (int i = 0; i < kWidth; ++i) value[i] = load(values + i * kLanes);
    for (int h = 0; h < kHeads; ++h) {
      const Lanes weight = broadcast(weights[h * c.weight_stride + r]);
      for (int i = 0; i < kWidth; ++i) acc[h][i] = fma(weight, value[i], acc[h][i]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    float* const to = c.acc + (head + h) * c.acc_stride + column;
    for (int i = 0; i < kWidth; ++i) store(acc[h][i], to + i * kLanes);
  }
}

template <int kHeads>
void accumulate_heads(const ValueCall& c, int head) {
  std::int64_t column = 0;
  for (; column + kTileLanes * kLanes <= c.width; column += kTileLanes * kLanes) {
    accumulate_tile<kHeads, kTileLanes>(c, head, column);
  }
  for (; column < c.width; column += kLanes) accumulate_tile<kHeads, 1>(c, head, column);
}

void accumulate_values(const ValueCall& c) {
  int head = 0;
  for (; head + kTileHeads <= c.num_heads; head += kTileHeads) {
    accumulate_heads<kTileHeads>(c, head);
  }
  for (; head < c.num_heads; ++head) accumulate_heads<1>(c, head);
}

const AttendKernels& attend_table() {
  static constexpr AttendKernels kKernels = {&decode_row_any, &softmax, &accumulate_values};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(attend_table);

const AttendKernels& attend_kernels(std::int64_t targets) {
  return DSV4_CPU_KERNEL(attend_table, targets)();
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
