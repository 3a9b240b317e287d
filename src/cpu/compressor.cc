// The compressor. HCA: the contract's left fold in FP32, token by token, sixteen channels at a time
// in registers; product and sum round separately. Overlapping groups: the maximum of the 2 ratio
// entries, then their sums in ascending position, FP32. Channels (HCA) or groups (overlapping) are
// shared among the threads; where a step began does not show.
#include "ops/compressor.h"

#include <limits>

#include "cpu/cpu_backend.h"
#include "cpu/row_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/compressor.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lane_math-inl.h"

#ifndef DSV4_CPU_COMPRESSOR_ONCE
#define DSV4_CPU_COMPRESSOR_ONCE
namespace dsv4::cpu {

// `count` tokens of one sequence, from position first_position; values and scores are rows of the
// first, ape its whole table [ratio, width].
struct TokenRows {
  const float* values = nullptr;
  const float* scores = nullptr;
  const float* ape = nullptr;
  std::int64_t value_stride = 0;
  std::int64_t score_stride = 0;
  std::int64_t width = 0;
  std::int64_t count = 0;
  std::int64_t first_position = 0;
  std::int64_t ratio = 0;
};

// Channels [begin, end) of an HCA fold.
struct FoldCall {
  TokenRows tokens;
  std::int64_t row_dim = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  const float* state = nullptr;  // max, sum, acc [row_dim] each; read unless a group begins
  float* new_state = nullptr;    // null: not wanted
  float* rows = nullptr;         // row of the first token; null: closed groups are not wanted
  std::int64_t row_stride = 0;
};

// One entry of an overlapping group: a channel range of one token.
struct Entry {
  const float* values;
  const float* scores;  // without ape
  const float* ape;     // null: the scores have it
};

struct CompressorKernels {
  void (*fold)(const FoldCall& call);
  // row [n] = softmax over entries, channel by channel.
  void (*pool)(const Entry* entries, int num_entries, std::int64_t n, float* row);
  // out [n] = a + b.
  void (*add)(const float* a, const float* b, std::int64_t n, float* out);
};

}  // namespace dsv4::cpu
#endif  // DSV4_CPU_COMPRESSOR_ONCE

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

void fold(const FoldCall& c) {
  const TokenRows& tokens = c.tokens;
  for (std::int64_t i = c.begin; i < c.end; i += kLanes) {
    const std::int64_t n = c.end - i;
    std::int64_t in_group = tokens.first_position % tokens.ratio;
    Lanes max = broadcast(0.0f);
    Lanes sum = max;
    Lanes acc = max;
    if (in_group != 0) {
      max = load_n(c.state + i, n);
      sum = load_n(c.state + c.row_dim + i, n);
      acc = load_n(c.state + 2 * c.row_dim + i, n);
    }
    for (std::int64_t t = 0; t < tokens.count; ++t) {
      const Lanes v = load_n(tokens.values + t * tokens.value_stride + i, n);
      const Lanes s = add(load_n(tokens.scores + t * tokens.score_stride + i, n),
                          load_n(tokens.ape + in_group * tokens.width + i, n));
      if (in_group == 0) {
        max = s;
        sum = broadcast(1.0f);
        acc = v;
      } else {
        const Lanes new_max = max_number(max, s);
        const Lanes keep = exp_nonpositive(subtract(max, new_max));
        const Lanes weight = exp_nonpositive(subtract(s, new_max));
        sum = add(multiply(sum, keep), weight);
        acc = add(multiply(acc, keep), multiply(weight, v));
        max = new_max;
      }
      if (++in_group < tokens.ratio) continue;
      in_group = 0;
      if (c.rows != nullptr) store_n(divide(acc, sum), n, c.rows + t * c.row_stride + i);
    }
    if (c.new_state == nullptr) continue;
    store_n(max, n, c.new_state + i);
    store_n(sum, n, c.new_state + c.row_dim + i);
    store_n(acc, n, c.new_state + 2 * c.row_dim + i);
  }
}

HWY_INLINE Lanes entry_score(const Entry& entry, std::int64_t i, std::int64_t n) {
  const Lanes score = load_n(entry.scores + i, n);
  return entry.ape == nullptr ? score : add(score, load_n(entry.ape + i, n));
}

void pool(const Entry* entries, int num_entries, std::int64_t dim, float* row) {
  for (std::int64_t i = 0; i < dim; i += kLanes) {
    const std::int64_t n = dim - i;
    Lanes max = entry_score(entries[0], i, n);
    for (int e = 1; e < num_entries; ++e) max = max_number(max, entry_score(entries[e], i, n));
    Lanes sum = broadcast(0.0f);
    Lanes acc = sum;
    for (int e = 0; e < num_entries; ++e) {
      const Lanes weight = exp_nonpositive(subtract(entry_score(entries[e], i, n), max));
      sum = add(sum, weight);
      acc = fma(weight, load_n(entries[e].values + i, n), acc);
    }
    store_n(divide(acc, sum), n, row + i);
  }
}

void add_rows(const float* a, const float* b, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

const CompressorKernels& compressor_kernels() {
  static constexpr CompressorKernels kKernels = {&fold, &pool, &add_rows};
  return kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace cpu {
HWY_EXPORT(compressor_kernels);
}  // namespace cpu

namespace {

using cpu::CompressorKernels;
using cpu::Entry;
using cpu::TokenRows;

// Channels of a fold for one thread; whole lanes.
constexpr std::int64_t kFoldChannels = 64;
// Tokens times channels of a fold, and of a group, below which other threads stay asleep.
constexpr std::int64_t kSmallFold = 4096;

// The active tokens of one sequence in this step.
struct SequenceTokens {
  std::int64_t begin = 0;  // token index
  std::int64_t count = 0;
  std::int64_t first_position = 0;
};

SequenceTokens sequence_tokens(const CompressorTokens& tokens, std::int64_t sequence) {
  SequenceTokens s;
  s.begin = tokens.token_offsets[sequence];
  const std::int64_t end = tokens.token_offsets[sequence + 1];
  while (s.begin + s.count < end && tokens.positions[s.begin + s.count] >= 0) ++s.count;
  if (s.count > 0) s.first_position = tokens.positions[s.begin];
  return s;
}

TokenRows token_rows(const CompressorTokens& tokens, const SequenceTokens& s) {
  TokenRows rows;
  rows.values = static_cast<const float*>(tokens.values.data) + s.begin * tokens.values.row_stride;
  rows.scores = static_cast<const float*>(tokens.scores.data) + s.begin * tokens.scores.row_stride;
  rows.ape = tokens.ape;
  rows.value_stride = tokens.values.row_stride;
  rows.score_stride = tokens.scores.row_stride;
  rows.width = tokens.values.cols;
  rows.count = s.count;
  rows.first_position = s.first_position;
  rows.ratio = tokens.compress_ratio;
  return rows;
}

void run_fold(ThreadPool& pool, const CompressorKernels& kernels, const cpu::FoldCall& whole) {
  const std::int64_t d = whole.row_dim;
  const bool small = whole.tokens.count * d < kSmallFold;
  const std::int64_t grain = small ? std::max<std::int64_t>(d, 1) : kFoldChannels;
  pool.parallel_for(d, grain, [&](std::int64_t begin, std::int64_t end) {
    cpu::FoldCall call = whole;
    call.begin = begin;
    call.end = end;
    kernels.fold(call);
  });
}

// Token `in_sequence` of the sequence closes a group.
bool closes_group(const TokenRows& rows, std::int64_t in_sequence) {
  return (rows.first_position + in_sequence + 1) % rows.ratio == 0;
}

struct CompressScratch {
  std::int64_t bytes;
  float* weight;   // [row_dim]
  Entry* entries;  // [threads, 2 ratio]
  std::int64_t entries_stride;

  CompressScratch(std::byte* workspace, const CompressParams& p, int threads) {
    cpu::Scratch scratch(workspace);
    entries_stride = p.tokens.overlapping ? 2 * std::int64_t{p.tokens.compress_ratio} : 0;
    weight = scratch.take<float>(p.tokens.row_dim);
    entries = scratch.take<Entry>(threads * entries_stride);
    bytes = scratch.bytes();
  }
};

// Where a token of the ring of an overlapping state keeps its values; its scores follow them.
std::int64_t ring_offset(const TokenRows& rows, std::int64_t pos) {
  return pos % (2 * rows.ratio) * 2 * rows.width;
}

// Channels from `channel` on of the token at `pos`, from this step or from the ring.
Entry entry_at(const TokenRows& rows, const float* state, std::int64_t pos, std::int64_t channel) {
  if (pos < rows.first_position) {
    const float* const entry = state + ring_offset(rows, pos) + channel;
    return {entry, entry + rows.width, nullptr};
  }
  const std::int64_t t = pos - rows.first_position;
  return {rows.values + t * rows.value_stride + channel,
          rows.scores + t * rows.score_stride + channel,
          rows.ape + pos % rows.ratio * rows.width + channel};
}

// The entries of a group's row, in ascending position: of the group before the channels [0, d), of
// its own [d, 2d). Returns their number.
int group_entries(const TokenRows& rows, const float* state, std::int64_t group,
                  std::int64_t row_dim, Entry* entries) {
  int count = 0;
  const std::int64_t begin = std::max<std::int64_t>(0, (group - 1) * rows.ratio);
  for (std::int64_t pos = begin; pos < (group + 1) * rows.ratio; ++pos) {
    entries[count++] = entry_at(rows, state, pos, pos < group * rows.ratio ? 0 : row_dim);
  }
  return count;
}

float* row_of(const CompressParams& p, std::int64_t token) {
  return static_cast<float*>(p.rows.data) + token * p.rows.row_stride;
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const CompressParams& p) const {
  return CompressScratch(nullptr, p, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const CompressParams& p, const OpContext& context) {
  const CompressorKernels& kernels = DSV4_CPU_KERNEL(cpu::compressor_kernels, targets_)();
  const CompressScratch scratch(context.workspace, p, pool_.num_threads());
  const float* const weight = cpu::float_row(p.norm_weight, 0, scratch.weight);
  const std::int64_t d = p.tokens.row_dim;
  for (std::int64_t i = 0; i < p.tokens.num_sequences; ++i) {
    const SequenceTokens s = sequence_tokens(p.tokens, i);
    if (s.count == 0) continue;
    const TokenRows rows = token_rows(p.tokens, s);
    const float* const state = p.states + p.tokens.state_idx[i] * p.tokens.state_stride;
    // The first token that closes a group, in the sequence, and how many do.
    const std::int64_t first = rows.ratio - 1 - s.first_position % rows.ratio;
    const std::int64_t closed = s.count > first ? (s.count - first - 1) / rows.ratio + 1 : 0;
    if (closed == 0) continue;
    if (!p.tokens.overlapping) {
      cpu::FoldCall call;
      call.tokens = rows;
      call.tokens.count = first + (closed - 1) * rows.ratio + 1;  // the rest is the commit's
      call.row_dim = d;
      call.state = state;
      call.rows = row_of(p, s.begin);
      call.row_stride = p.rows.row_stride;
      run_fold(pool_, kernels, call);
    }
    const std::int64_t grain = cpu::row_grain(d * (p.tokens.overlapping ? 2 * rows.ratio : 1));
    pool_.parallel_for(closed, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
      Entry* const entries = scratch.entries + thread_idx * scratch.entries_stride;
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t t = first + c * rows.ratio;
        DSV4_CHECK(closes_group(rows, t));
        float* const row = row_of(p, s.begin + t);
        if (p.tokens.overlapping) {
          const std::int64_t group = (s.first_position + t) / rows.ratio;
          const int count = group_entries(rows, state, group, d, entries);
          kernels.pool(entries, count, d, row);
        }
        cpu::rms_norm_row(rows_, row, weight, d, p.eps, row);
      }
    });
  }
}

void CpuBackend::compute(const CompressorCommitParams& p, const OpContext&) {
  const CompressorKernels& kernels = DSV4_CPU_KERNEL(cpu::compressor_kernels, targets_)();
  for (std::int64_t i = 0; i < p.tokens.num_sequences; ++i) {
    SequenceTokens s = sequence_tokens(p.tokens, i);
    if (p.num_accepted != nullptr) s.count = std::min<std::int64_t>(s.count, p.num_accepted[i]);
    if (s.count <= 0) continue;
    float* const state = p.states + p.tokens.state_idx[i] * p.tokens.state_stride;
    const TokenRows rows = token_rows(p.tokens, s);
    if (!p.tokens.overlapping) {
      cpu::FoldCall call;
      call.tokens = rows;
      call.row_dim = p.tokens.row_dim;
      call.state = state;
      call.new_state = state;
      run_fold(pool_, kernels, call);
      continue;
    }
    // Of more tokens than the ring holds the last would win.
    for (std::int64_t t = std::max<std::int64_t>(0, s.count - 2 * rows.ratio); t < s.count; ++t) {
      const std::int64_t pos = s.first_position + t;
      float* const entry = state + ring_offset(rows, pos);
      std::copy_n(rows.values + t * rows.value_stride, rows.width, entry);
      kernels.add(rows.scores + t * rows.score_stride, rows.ape + pos % rows.ratio * rows.width,
                  rows.width, entry + rows.width);
    }
  }
}

}  // namespace dsv4
#endif  // HWY_ONCE
