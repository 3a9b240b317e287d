// Dot products of decoded weights, tile by tile: few tokens decode weights in registers, many share
// a decoded panel.
#include "cpu/dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/dot.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lanes-inl.h"
#include "cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// Accumulators of a tile: 24 of AVX-512's 32 registers; 12 of AVX2's 16 (two each).
#if HWY_TARGET == HWY_AVX2
constexpr int kTileTokens = 3;
constexpr int tile_rows(int tokens) { return tokens == 1 ? 4 : 2; }
#else
constexpr int kTileTokens = 6;
constexpr int tile_rows(int) { return 4; }
#endif
// Elements of K that a panel's tiles take at a time: a token tile of them stays in the L1 cache.
constexpr std::int64_t kPanelStep = 1024;

// acc[r][t] += w[r] * x[t] over elements [k_begin, k_end) of K; k_begin is a multiple of 16.
template <class Rows, int kRows, int kTokens>
HWY_INLINE void accumulate(Rows& rows, const float* const* x, std::int64_t k_begin,
                           std::int64_t k_end, Lanes (&acc)[kRows][kTokens]) {
  const std::int64_t last_step = k_end / kLanes;
  for (std::int64_t step = k_begin / kLanes; step < last_step;) {
    const std::int64_t block_end = rows.begin_block(step, last_step);
    for (; step < block_end; ++step) {
      rows.prefetch(step);
      Lanes w[kRows];
      for (int r = 0; r < kRows; ++r) w[r] = rows.decode(r, step);
      for (int t = 0; t < kTokens; ++t) {
        const Lanes token = load(x[t] + step * kLanes);
        for (int r = 0; r < kRows; ++r) acc[r][t] = fma(w[r], token, acc[r][t]);
      }
    }
  }
  if (k_end % kLanes == 0) return;
  for (int r = 0; r < kRows; ++r) {
    const Lanes w = rows.decode_tail(r, last_step, k_end % kLanes);
    for (int t = 0; t < kTokens; ++t) {
      acc[r][t] = fma(w, load(x[t] + last_step * kLanes), acc[r][t]);
    }
  }
}

template <class Rows, int kRows, int kTokens>
HWY_INLINE void store_sums(const Rows& rows, const Lanes (&acc)[kRows][kTokens], float* sums,
                           std::int64_t sums_stride) {
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) {
      sums[t * sums_stride + r] = rows.is_nan(r) ? f32_from_bits(kF32QuietNanBits)
                                                 : sum_lanes<Rows::kInterleaved>(acc[r][t]);
    }
  }
}

template <class Rows, int kRows, int kTokens>
HWY_INLINE void clear(Lanes (&acc)[kRows][kTokens]) {
  for (int r = 0; r < kRows; ++r) {
    for (int t = 0; t < kTokens; ++t) acc[r][t] = broadcast(0.0f);
  }
}

// Weights decoded in registers. Rows<kRows>: how.
template <template <int> class Rows, int kRows, int kTokens>
HWY_NOINLINE void dot_direct_tile(const DotCall& c, std::int64_t row, const float* const* x,
                                  std::int64_t token) {
  Rows<kRows> rows(*c.w, row);
  Lanes acc[kRows][kTokens];
  clear<Rows<kRows>>(acc);
  accumulate(rows, x, 0, c.w->view.cols, acc);
  store_sums(rows, acc, c.sums + token * c.sums_stride + (row - c.row_begin), c.sums_stride);
}

template <template <int> class Rows, int kTokens>
void dot_direct(const DotCall& c) {
  const float* x[kTokens];
  for (int t = 0; t < kTokens; ++t) x[t] = c.x + t * c.x_stride;
  constexpr int kRows = tile_rows(kTokens);
  std::int64_t row = c.row_begin;
  for (; row + kRows <= c.row_end; row += kRows) {
    dot_direct_tile<Rows, kRows, kTokens>(c, row, x, 0);
  }
  for (; row < c.row_end; ++row) dot_direct_tile<Rows, 1, kTokens>(c, row, x, 0);
}

// Calls fn.template run<kTokens>() for tokens in 1 .. kTileTokens.
template <int kTokens = kTileTokens, class Fn>
HWY_INLINE void with_tokens(std::int64_t tokens, const Fn& fn) {
  if constexpr (kTokens > 1) {
    if (tokens < kTokens) return with_tokens<kTokens - 1>(tokens, fn);
  }
  fn.template run<kTokens>();
}

template <template <int> class Rows>
struct DirectCall {
  const DotCall& call;
  template <int kTokens>
  void run() const {
    dot_direct<Rows, kTokens>(call);
  }
};

// One token tile against all rows of a panel, a slice of K at a time; between slices the
// accumulators lie in memory, so the order of every sum is that of one pass.
template <template <int> class Rows>
struct PanelCall {
  const DotCall& call;
  std::int64_t panel_begin;  // row of the matrix
  std::int64_t num_rows;
  std::int64_t token;

  template <int kRows, int kTokens>
  HWY_INLINE void tile(std::int64_t row, const float* const* x, std::int64_t k_begin,
                       std::int64_t k_end, bool last, float* saved) const {
    const std::int64_t k = padded(call.w->view.cols);
    Rows<kRows> rows(call.panel + row * k, k);
    Lanes acc[kRows][kTokens];
    if (k_begin == 0) {
      clear<Rows<kRows>>(acc);
    } else {
      for (int i = 0; i < kRows * kTokens; ++i) {
        acc[i / kTokens][i % kTokens] = load(saved + i * kLanes);
      }
    }
    accumulate(rows, x, k_begin, k_end, acc);
    if (last) {
      store_sums(rows, acc,
                 call.sums + token * call.sums_stride + (panel_begin - call.row_begin) + row,
                 call.sums_stride);
    } else {
      for (int i = 0; i < kRows * kTokens; ++i) {
        store(acc[i / kTokens][i % kTokens], saved + i * kLanes);
      }
    }
  }

  template <int kTokens>
  void run() const {
    constexpr int kRows = tile_rows(kTokens);
    alignas(64) float saved[kMaxPanelRows * kTokens * kLanes];
    const float* x[kTokens];
    for (int t = 0; t < kTokens; ++t) x[t] = call.x + (token + t) * call.x_stride;
    const std::int64_t k = padded(call.w->view.cols);
    for (std::int64_t k_begin = 0; k_begin == 0 || k_begin < k; k_begin += kPanelStep) {
      const bool last = k_begin + kPanelStep >= k;
      const std::int64_t k_end = last ? k : k_begin + kPanelStep;
      std::int64_t row = 0;
      for (; row + kRows <= num_rows; row += kRows) {
        tile<kRows, kTokens>(row, x, k_begin, k_end, last, saved + row * kTokens * kLanes);
      }
      for (; row < num_rows; ++row) {
        tile<1, kTokens>(row, x, k_begin, k_end, last, saved + row * kTokens * kLanes);
      }
    }
  }
};

template <template <int> class Rows>
void decode_with(const Source& source, std::int64_t row, float* out) {
  Rows<1> rows(source, row);
  const std::int64_t k = source.view.cols;
  const std::int64_t last_step = k / kLanes;
  for (std::int64_t step = 0; step < last_step;) {
    const std::int64_t block_end = rows.begin_block(step, last_step);
    for (; step < block_end; ++step) store(rows.decode(0, step), out + step * kLanes);
  }
  if (k % kLanes != 0) {
    store(rows.decode_tail(0, last_step, k % kLanes), out + last_step * kLanes);
  }
  // Rows with NaN codes, which the fast decoder does not give.
  if (rows.is_nan(0)) decode_matrix_row(source.view, row, out);
}

void decode_row(const Source& source, std::int64_t row, float* out) {
  const std::int64_t k = source.view.cols;
  switch (source.kind) {
    case Source::Kind::kF32:
      return decode_with<F32Rows>(source, row, out);
    case Source::Kind::kBf16:
      return decode_with<Bf16Rows>(source, row, out);
    case Source::Kind::kE4m3:
      return decode_with<E4m3Rows>(source, row, out);
    case Source::Kind::kE2m1:
      decode_with<E2m1Rows>(source, row, out);
      if (!source.needs_global_scale) return;
      {
        const Lanes global =
            broadcast(source.view.global_scales[row * source.view.global_scale_stride]);
        for (std::int64_t i = 0; i < k; i += kLanes)
          store(multiply(load(out + i), global), out + i);
      }
      return;
    case Source::Kind::kGeneral:
      decode_matrix_row(source.view, row, out);
      for (std::int64_t i = k; i < padded(k); ++i) out[i] = 0;
  }
}

template <template <int> class Rows>
void dot_panels(const DotCall& c) {
  const std::int64_t k = c.w->view.cols;
  for (std::int64_t row = c.row_begin; row < c.row_end; row += panel_rows(k)) {
    const std::int64_t rest = c.row_end - row;
    const std::int64_t num_rows = rest < panel_rows(k) ? rest : panel_rows(k);
    for (std::int64_t i = 0; i < num_rows; ++i) decode_row(*c.w, row + i, c.panel + i * padded(k));
    for (std::int64_t token = 0; token < c.tokens; token += kTileTokens) {
      with_tokens(c.tokens - token, PanelCall<Rows>{c, row, num_rows, token});
    }
  }
}

void dot_rows(const DotCall& c) {
  if (c.tokens > kTileTokens || c.w->kind == Source::Kind::kGeneral || c.w->needs_global_scale) {
    return c.w->interleaved() ? dot_panels<InterleavedPanelRows>(c) : dot_panels<PanelRows>(c);
  }
  switch (c.w->kind) {
    case Source::Kind::kF32:
      return with_tokens(c.tokens, DirectCall<F32Rows>{c});
    case Source::Kind::kBf16:
      return with_tokens(c.tokens, DirectCall<Bf16Rows>{c});
    case Source::Kind::kE4m3:
      return with_tokens(c.tokens, DirectCall<E4m3Rows>{c});
    default:
      return with_tokens(c.tokens, DirectCall<E2m1Rows>{c});
  }
}

const DotKernels& kernels() {
  static constexpr DotKernels kKernels = {&dot_rows, &decode_row};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4::cpu {

HWY_EXPORT(kernels);

const DotKernels& dot_kernels(std::int64_t targets) { return DSV4_CPU_KERNEL(kernels, targets)(); }

void interleave(float* row, std::int64_t k) {
  for (std::int64_t begin = 0; begin < k; begin += kLanes) {
    float block[kLanes];
    for (int i = 0; i < kLanes; ++i) block[i] = row[begin + i];
    for (int i = 0; i < kLanes / 2; ++i) {
      row[begin + 2 * i] = block[i];
      row[begin + 2 * i + 1] = block[i + 8];
    }
  }
}

void deinterleave(float* row, std::int64_t k) {
  for (std::int64_t begin = 0; begin < k; begin += kLanes) {
    float block[kLanes];
    for (int i = 0; i < kLanes; ++i) block[i] = row[begin + i];
    for (int i = 0; i < kLanes / 2; ++i) {
      row[begin + i] = block[2 * i];
      row[begin + i + 8] = block[2 * i + 1];
    }
  }
}

}  // namespace dsv4::cpu
#endif  // HWY_ONCE
