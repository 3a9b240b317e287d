// Dense attention over sequences laid end to end: keys and values decoded once a call, then each
// query with the heads of one KV head by itself, in the orders of attention.cc.
#include <cmath>
#include <limits>

#include "cpu/attend.h"
#include "cpu/cpu_backend.h"
#include "cpu/products.h"
#include "cpu/row_math.h"
#include "ops/attention.h"

namespace dsv4 {
namespace {

using cpu::Activations;
using cpu::padded;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sizes and workspace of a call.
struct DenseScratch {
  std::int64_t bytes;
  std::int64_t key_width, value_width;    // padded, of one head
  std::int64_t key_stride, value_stride;  // of a decoded row
  std::int64_t heads_per_kv_head;
  std::int64_t score_stride;
  std::int64_t raw_floats;  // of a decoded row before its parts are padded
  float* q;                 // [q_tokens, num_heads * key_width]
  float* k;                 // [kv_tokens, key_stride]
  float* v;                 // [kv_tokens, value_stride]
  float* raw;               // [threads, raw_floats]
  float* scores;            // [threads, heads_per_kv_head, score_stride]
  float* acc;               // [threads, heads_per_kv_head, value_width]
  float* panels;            // [threads, panel_floats]
  float* out;               // [q_tokens, out.cols], unless out is FP32

  DenseScratch(std::byte* workspace, const DenseAttentionParams& p, int threads) {
    const std::int64_t head_dim = p.q.cols / p.num_heads;
    key_width = padded(head_dim);
    value_width = padded(p.v.cols / p.num_kv_heads);
    key_stride = p.num_kv_heads * key_width;
    value_stride = p.num_kv_heads * value_width;
    heads_per_kv_head = p.num_heads / p.num_kv_heads;
    score_stride = padded(p.k.rows);
    raw_floats = padded(std::max(p.q.cols, std::max(p.k.cols, p.v.cols)));
    cpu::Scratch scratch(workspace);
    q = scratch.take<float>(p.q.rows * p.num_heads * key_width);
    k = scratch.take<float>(p.k.rows * key_stride);
    v = scratch.take<float>(p.v.rows * value_stride);
    raw = scratch.take<float>(threads * raw_floats);
    scores = scratch.take<float>(threads * heads_per_kv_head * score_stride);
    acc = scratch.take<float>(threads * heads_per_kv_head * value_width);
    panels = scratch.take<float>(threads * cpu::panel_floats(head_dim));
    out = scratch.take<float>(p.out.format == Format::kF32 ? 0 : p.q.rows * p.out.cols);
    bytes = scratch.bytes();
  }
};

// The keys that one query attends to.
struct KeyRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

KeyRange key_range(const DenseAttentionParams& p, int sequence, std::int64_t query) {
  const std::int64_t queries = p.q_offsets[sequence + 1] - p.q_offsets[sequence];
  const std::int64_t keys = p.kv_offsets[sequence + 1] - p.kv_offsets[sequence];
  const std::int64_t i = query - p.q_offsets[sequence];
  const std::int64_t end = p.causal ? std::max<std::int64_t>(0, keys - queries + i + 1) : keys;
  const std::int64_t begin = p.window > 0 ? std::max<std::int64_t>(0, end - p.window) : 0;
  return {p.kv_offsets[sequence] + begin, end - begin};
}

struct DenseTools {
  const cpu::DotKernels& dot;
  const cpu::RowKernels& rows;
  const cpu::AttendKernels& attend;
};

// The heads of one KV head of one query; out is the query's whole row.
void attend_heads(const DenseTools& tools, const DenseAttentionParams& p, const DenseScratch& s,
                  const KeyRange& keys, std::int64_t query, std::int64_t kv_head, int thread_idx,
                  float* out) {
  const std::int64_t head_dim = p.q.cols / p.num_heads;
  const std::int64_t value_dim = p.v.cols / p.num_kv_heads;
  const std::int64_t heads = s.heads_per_kv_head;
  const std::int64_t first_head = kv_head * heads;
  float* const scores = s.scores + thread_idx * heads * s.score_stride;
  float* const acc = s.acc + thread_idx * heads * s.value_width;

  cpu::Source source;
  source.view =
      f32_matrix(s.k + keys.first * s.key_stride + kv_head * s.key_width, keys.count, head_dim);
  source.view.row_stride = s.key_stride;
  source.kind = cpu::Source::Kind::kF32;
  cpu::DotCall call;
  call.w = &source;
  call.row_end = keys.count;
  call.x = s.q + (query * p.num_heads + first_head) * s.key_width;
  call.x_stride = s.key_width;
  call.tokens = heads;
  call.panel = s.panels + thread_idx * cpu::panel_floats(head_dim);
  call.sums = scores;
  call.sums_stride = s.score_stride;
  if (keys.count > 0) tools.dot.dot_rows(call);

  for (std::int64_t i = 0; i < heads; ++i) {
    const std::int64_t head = first_head + i;
    const float sink = p.attn_sink == nullptr ? -kInfinity : p.attn_sink[head];
    float* const head_out = out + head * value_dim;
    std::fill_n(head_out, value_dim, 0.0f);
    float lse = -kInfinity;
    if (keys.count > 0) {
      float* const weights = scores + i * s.score_stride;
      const cpu::SoftmaxSums sums = tools.attend.softmax(weights, keys.count, p.softmax_scale);
      lse = cpu::lse_of(sums);
      const double factor = cpu::inverse_denominator(sums, sink);
      if (factor != 0) {
        const float* const values = s.v + keys.first * s.value_stride + kv_head * s.value_width;
        tools.attend.accumulate({weights, s.score_stride, values, s.value_stride, acc,
                                 s.value_width, 1, keys.count, s.value_width, true});
        tools.rows.scale_row(acc, factor, nullptr, value_dim, head_out);
      }
    }
    if (p.lse != nullptr) p.lse[query * p.num_heads + head] = lse;
  }
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const DenseAttentionParams& p) const {
  if (p.num_heads < 1 || p.num_kv_heads < 1) return 0;  // run() refuses it
  return DenseScratch(nullptr, p, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const DenseAttentionParams& p, const OpContext& context) {
  const DenseScratch s(context.workspace, p, pool_.num_threads());
  if (p.num_sequences == 0) return;
  // Rows of sequences only: others are not to be read.
  const auto decode = [&](const MatrixView& m, const std::int32_t* offsets, int parts,
                          std::int64_t width, float* out) {
    const Activations a{cpu::make_source(m, *tables_), m.cols / parts, parts, false};
    const std::int64_t first = offsets[0];
    pool_.parallel_for(offsets[p.num_sequences] - first, cpu::row_grain(m.cols),
                       [&](std::int64_t begin, std::int64_t end, int thread_idx) {
                         for (std::int64_t r = first + begin; r < first + end; ++r) {
                           cpu::prepare_row(dot_, a, r, s.raw + thread_idx * s.raw_floats,
                                            out + r * parts * width);
                         }
                       });
  };
  decode(p.q, p.q_offsets, p.num_heads, s.key_width, s.q);
  decode(p.k, p.kv_offsets, p.num_kv_heads, s.key_width, s.k);
  decode(p.v, p.kv_offsets, p.num_kv_heads, s.value_width, s.v);
  const DenseTools tools{dot_, rows_, cpu::attend_kernels(targets_)};
  for (int sequence = 0; sequence < p.num_sequences; ++sequence) {
    const std::int64_t first_query = p.q_offsets[sequence];
    const std::int64_t queries = p.q_offsets[sequence + 1] - first_query;
    pool_.parallel_for(
        queries * p.num_kv_heads, 1, [&](std::int64_t unit, std::int64_t, int thread_idx) {
          const std::int64_t query = first_query + unit / p.num_kv_heads;
          float* const out = cpu::result_row(p.out, query, s.out + query * p.out.cols);
          attend_heads(tools, p, s, key_range(p, sequence, query), query, unit % p.num_kv_heads,
                       thread_idx, out);
        });
    for (std::int64_t query = first_query; query < first_query + queries; ++query) {
      cpu::finish_row(p.out, query, s.out + query * p.out.cols);
    }
  }
}

}  // namespace dsv4
