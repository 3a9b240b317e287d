// rows-inl.h: a few neighbouring rows of a matrix, decoded sixteen elements at a time in registers.
//
// One class a format, all with the same members; dot.cc is the only user. For element blocks that
// share a scale, begin_block prepares what decode then applies.
//
// Compiled once a target: include after hwy/foreach_target.h.
#if defined(DSV4_CPU_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef DSV4_CPU_ROWS_INL_H
#undef DSV4_CPU_ROWS_INL_H
#else
#define DSV4_CPU_ROWS_INL_H
#endif

#include "cpu/lanes-inl.h"
#include "cpu/source.h"
#include "numerics/e8m0.h"
#include "tensor/matrix_codec.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Fetches the rows behind these while these are multiplied, linearly, kStepBytes a step: rows are
// too short for the hardware's prefetchers to get going. Measured on one core: E2M1 rows are read
// at 10.3 GB/s with this and 7.3 without; BF16 rows of 4096 at 17.4 and 17.1, a model with rows of
// 1024 at 16.5 and 9. FP32 rows go without: their four long sequences reach 12.8 GB/s, and with
// it 10.
template <int kStepBytes>
struct NextRows {
  const std::uint8_t* data;
  HWY_INLINE void prefetch(std::int64_t step) const {
    for (int i = 0; i < kStepBytes; i += 64) {
      __builtin_prefetch(data + step * kStepBytes + i, 0, 2);
    }
  }
};

template <int kRows>
struct F32Rows {
  static constexpr bool kInterleaved = false;
  const float* x[kRows];

  HWY_INLINE F32Rows(const Source& source, std::int64_t row) {
    const auto* data = static_cast<const float*>(source.view.data) + row * source.view.row_stride;
    for (int r = 0; r < kRows; ++r) x[r] = data + r * source.view.row_stride;
  }
  HWY_INLINE std::int64_t begin_block(std::int64_t, std::int64_t last_step) { return last_step; }
  HWY_INLINE void prefetch(std::int64_t) const {}
  HWY_INLINE Lanes decode(int r, std::int64_t step) const { return load(x[r] + step * kLanes); }
  HWY_INLINE Lanes decode_tail(int r, std::int64_t step, std::int64_t n) const {
    float rest[kLanes] = {};
    std::memcpy(rest, x[r] + step * kLanes, static_cast<std::size_t>(n) * sizeof(float));
    return load(rest);
  }
  HWY_INLINE bool is_nan(int) const { return false; }
};

template <int kRows>
struct Bf16Rows {
  static constexpr bool kInterleaved = false;
  const std::uint16_t* x[kRows];
  NextRows<kRows * 32> next;

  HWY_INLINE Bf16Rows(const Source& source, std::int64_t row) {
    const auto* data =
        static_cast<const std::uint16_t*>(source.view.data) + row * source.view.row_stride;
    for (int r = 0; r < kRows; ++r) x[r] = data + r * source.view.row_stride;
    next.data = reinterpret_cast<const std::uint8_t*>(data + kRows * source.view.row_stride);
  }
  HWY_INLINE std::int64_t begin_block(std::int64_t, std::int64_t last_step) { return last_step; }
  HWY_INLINE void prefetch(std::int64_t step) const { next.prefetch(step); }
  HWY_INLINE Lanes decode(int r, std::int64_t step) const {
    return load_bf16(x[r] + step * kLanes);
  }
  HWY_INLINE Lanes decode_tail(int r, std::int64_t step, std::int64_t n) const {
    std::uint16_t rest[kLanes] = {};
    std::memcpy(rest, x[r] + step * kLanes, static_cast<std::size_t>(n) * sizeof(rest[0]));
    return load_bf16(rest);
  }
  HWY_INLINE bool is_nan(int) const { return false; }
};

template <int kRows>
struct E4m3Rows {
  static constexpr bool kInterleaved = false;
  const MatrixView& view;
  const std::uint8_t* codes[kRows];
  std::int64_t scale_row[kRows];
  std::int64_t block_steps;
  bool nan[kRows] = {};
  Lanes scale[kRows];  // 256 times the block scale, exact: source.cc saw to it
  NextRows<kRows * 16> next;

  HWY_INLINE E4m3Rows(const Source& source, std::int64_t row)
      : view(source.view), block_steps(source.view.block_cols / kLanes) {
    const auto* data = static_cast<const std::uint8_t*>(view.data) + row * view.row_stride;
    for (int r = 0; r < kRows; ++r) {
      codes[r] = data + r * view.row_stride;
      scale_row[r] = (row + r) / view.block_rows;
    }
    next.data = data + kRows * view.row_stride;
  }
  HWY_INLINE void load_scales(std::int64_t step) {
    const std::int64_t block = step / block_steps;
    for (int r = 0; r < kRows; ++r) {
      scale[r] = broadcast(decode_block_scale(view, scale_row[r], block) * 256.0f);
    }
  }
  HWY_INLINE std::int64_t begin_block(std::int64_t step, std::int64_t last_step) {
    load_scales(step);
    std::int64_t end = (step / block_steps + 1) * block_steps;
    end = end < last_step ? end : last_step;
    for (int r = 0; r < kRows; ++r) {
      nan[r] |= has_e4m3_nan(codes[r] + step * kLanes, (end - step) * kLanes);
    }
    return end;
  }
  HWY_INLINE void prefetch(std::int64_t step) const { next.prefetch(step); }
  HWY_INLINE Lanes decode(int r, std::int64_t step) const {
    return multiply(load_e4m3_256th(codes[r] + step * kLanes), scale[r]);
  }
  HWY_INLINE Lanes decode_tail(int r, std::int64_t step, std::int64_t n) {
    load_scales(step);
    std::uint8_t rest[kLanes] = {};
    std::memcpy(rest, codes[r] + step * kLanes, static_cast<std::size_t>(n));
    nan[r] |= has_e4m3_nan(rest, kLanes);
    Lanes decoded = multiply(load_e4m3_256th(rest), scale[r]);
    // A NaN or infinite scale must not reach the padding.
    float values[kLanes];
    store(decoded, values);
    for (std::int64_t i = n; i < kLanes; ++i) values[i] = 0;
    return load(values);
  }
  // One NaN weight makes the whole sum NaN.
  HWY_INLINE bool is_nan(int r) const { return nan[r]; }
};

template <int kRows>
struct E2m1Rows {
  static constexpr bool kInterleaved = true;
  const std::uint8_t* codes[kRows];
  const std::uint8_t* scales[kRows];
  const float* table;
  int scale_shift;  // steps to quant blocks: MXFP4 has two steps in one
  NextRows<kRows * 8> next;

  HWY_INLINE E2m1Rows(const Source& source, std::int64_t row) : table(source.table) {
    const MatrixView& view = source.view;
    const auto* data = static_cast<const std::uint8_t*>(view.data) + row * (view.row_stride / 2);
    const auto* block_scales = static_cast<const std::uint8_t*>(view.block_scales);
    for (int r = 0; r < kRows; ++r) {
      codes[r] = data + r * (view.row_stride / 2);
      scales[r] = block_scales + (row + r) * view.scale_stride;
    }
    scale_shift = view.block_cols == 2 * kLanes ? 1 : 0;
    next.data = data + kRows * (view.row_stride / 2);
  }
  HWY_INLINE std::int64_t begin_block(std::int64_t, std::int64_t last_step) { return last_step; }
  HWY_INLINE void prefetch(std::int64_t step) const { next.prefetch(step); }
  HWY_INLINE Lanes decode(int r, std::int64_t step) const {
    const std::int64_t block_scale = scales[r][step >> scale_shift];
    return lookup_e2m1(table + block_scale * 16, codes[r] + step * (kLanes / 2));
  }
  // Packed rows hold whole quant blocks.
  HWY_INLINE Lanes decode_tail(int, std::int64_t, std::int64_t) const { return broadcast(0.0f); }
  HWY_INLINE bool is_nan(int) const { return false; }
};

// Rows that were decoded before, in either lane order.
template <int kRows, bool kInterleavedLanes>
struct DecodedRows {
  static constexpr bool kInterleaved = kInterleavedLanes;
  const float* x;
  std::int64_t stride;

  HWY_INLINE DecodedRows(const float* data, std::int64_t row_stride)
      : x(data), stride(row_stride) {}
  HWY_INLINE std::int64_t begin_block(std::int64_t, std::int64_t last_step) { return last_step; }
  HWY_INLINE void prefetch(std::int64_t) const {}
  HWY_INLINE Lanes decode(int r, std::int64_t step) const {
    return load(x + r * stride + step * kLanes);
  }
  HWY_INLINE Lanes decode_tail(int, std::int64_t, std::int64_t) const { return broadcast(0.0f); }
  HWY_INLINE bool is_nan(int) const { return false; }
};
template <int kRows>
using PanelRows = DecodedRows<kRows, false>;
template <int kRows>
using InterleavedPanelRows = DecodedRows<kRows, true>;

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
