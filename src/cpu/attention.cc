// V4's attention: rows decoded once a token, scores by the backend's tree, the maximum first, then
// FP32 sums with rows ascending (attend.h); the sink joins the denominator in FP64. Many tokens are
// shared among the threads; of few, first row pieces (scores), then heads (values). Neither shows:
// every score, weight and channel has one order of its own.
#include "ops/attention.h"

#include <cmath>
#include <limits>

#include "cpu/attend.h"
#include "cpu/cpu_backend.h"
#include "cpu/products.h"
#include "cpu/row_math.h"

namespace dsv4 {
namespace {

using cpu::padded;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t kBlockRows = 1280;  // decoded at once: 2.5 MiB at head dim 512
constexpr std::int64_t kPieceRows = 64;    // of a block, for one thread
constexpr std::int64_t kPieceHeads = 4;
constexpr std::int64_t kSmallWork = std::int64_t{1} << 19;  // multiply-adds: not worth a thread

// The rows that one token attends to, by their place in ascending order.
class AttendedRows {
 public:
  AttendedRows(const AttentionParams& p, std::int64_t token)
      : p_(p), pos_(p.positions[token]), sequence_(p.sequences[token]) {
    num_raw_ = std::min(p.window, pos_ + 1);
    if (p.compress_ratio == 0) return;
    visible_ = (pos_ + 1) / p.compress_ratio;
    num_comp_ = visible_;
    if (p.row_indices == nullptr) return;
    indices_ = p.row_indices + token * p.num_indices;
    num_comp_ = 0;
    while (num_comp_ < p.num_indices && indices_[num_comp_] >= 0) ++num_comp_;
  }

  std::int64_t count() const { return num_raw_ + num_comp_; }
  void decode(const cpu::AttendKernels& kernels, std::int64_t i, float* out) const {
    if (i < num_raw_) {
      const std::int64_t q = pos_ - num_raw_ + 1 + i;
      return decode_from(kernels, p_.raw_rows, p_.raw_pages[sequence_], q % p_.raw_rows.page_rows,
                         out);
    }
    const std::int64_t j = indices_ == nullptr ? i - num_raw_ : indices_[i - num_raw_];
    const std::int64_t page_idx = j / p_.comp_rows.page_rows;
    DSV4_CHECK(j < visible_ && page_idx < p_.comp_pages_stride, "row {} of {} visible", j,
               visible_);
    decode_from(kernels, p_.comp_rows, p_.comp_pages[sequence_ * p_.comp_pages_stride + page_idx],
                j % p_.comp_rows.page_rows, out);
  }

 private:
  static void decode_from(const cpu::AttendKernels& kernels, const PagedRowsView& pool,
                          std::int64_t page, std::int64_t row_in_page, float* out) {
    DSV4_CHECK(page >= 0 && page < pool.num_pages, "page {} of {}", page, pool.num_pages);
    const std::int64_t slot = page * pool.page_rows + row_in_page;
    kernels.decode_row(pool.layout, pool.row_data(slot), pool.row_scales(slot), out);
  }

  const AttentionParams& p_;
  std::int64_t pos_;
  std::int64_t sequence_;
  std::int64_t num_raw_ = 0;
  std::int64_t num_comp_ = 0;
  std::int64_t visible_ = 0;
  const std::int32_t* indices_ = nullptr;
};

// Rows that any token of the call attends to at most.
std::int64_t max_attended_rows(const AttentionParams& p) {
  if (p.compress_ratio == 0) return p.window;
  const std::int64_t mapped = p.comp_pages_stride * p.comp_rows.page_rows;
  return p.window + (p.row_indices == nullptr ? mapped : std::min(mapped, p.num_indices));
}

bool shares_tokens(const AttentionParams& p, int threads) { return p.q.rows >= threads; }

// The workspace of one token's attention.
struct TokenScratch {
  std::int64_t width;         // padded head dim
  std::int64_t block_rows;    // at most, of the decoded block
  std::int64_t score_stride;  // whole lanes
  float* q;                   // [num_heads, width]
  float* rows;                // [block_rows, width]
  float* scores;              // [num_heads, score_stride]
  float* acc;                 // [num_heads, width]
  float* out;                 // [q.cols]
  cpu::SoftmaxSums* sums;     // [num_heads]

  TokenScratch(cpu::Scratch& scratch, const AttentionParams& p)
      : width(padded(p.q.cols / p.num_heads)),
        block_rows(std::min(kBlockRows, max_attended_rows(p))),
        score_stride(padded(max_attended_rows(p))),
        q(scratch.take<float>(p.num_heads * width)),
        rows(scratch.take<float>(block_rows * width)),
        scores(scratch.take<float>(p.num_heads * score_stride)),
        acc(scratch.take<float>(p.num_heads * width)),
        out(scratch.take<float>(p.q.cols)),
        sums(scratch.take<cpu::SoftmaxSums>(p.num_heads)) {}
};

float sink_of(const float* attn_sink, std::int64_t head) {
  return attn_sink == nullptr ? -kInfinity : attn_sink[head];
}

// out [n] = acc * factor; a factor of 0 (a sink above everything) leaves nothing, whatever acc is.
void store_head(const cpu::RowKernels& kernels, const float* acc, double factor, std::int64_t n,
                float* out) {
  if (factor == 0) {
    std::fill_n(out, n, 0.0f);
  } else {
    kernels.scale_row(acc, factor, nullptr, n, out);
  }
}

// What all tokens of a call share.
struct Attending {
  const AttentionParams& p;
  const cpu::DotKernels& dot;
  const cpu::RowKernels& row_kernels;
  const cpu::AttendKernels& kernels;
  float* panels;  // [threads, panel_floats]
};

// Scores of rows [begin, end) with all heads; decodes them into the block that starts at row
// block_begin.
void score_rows(const Attending& c, const AttendedRows& rows, const TokenScratch& s,
                std::int64_t block_begin, std::int64_t begin, std::int64_t end, int thread_idx) {
  const std::int64_t head_dim = c.p.q.cols / c.p.num_heads;
  float* const decoded = s.rows + (begin - block_begin) * s.width;
  for (std::int64_t i = begin; i < end; ++i) {
    rows.decode(c.kernels, i, decoded + (i - begin) * s.width);
  }
  cpu::Source source;
  source.view = f32_matrix(decoded, end - begin, head_dim);
  source.view.row_stride = s.width;
  source.kind = cpu::Source::Kind::kF32;
  cpu::DotCall call;
  call.w = &source;
  call.row_end = end - begin;
  call.x = s.q;
  call.x_stride = s.width;
  call.tokens = c.p.num_heads;
  call.panel = c.panels + thread_idx * cpu::panel_floats(head_dim);
  call.sums = s.scores + begin;
  call.sums_stride = s.score_stride;
  c.dot.dot_rows(call);
}

// One token; for_pieces(count, body(piece, thread_idx)) runs pieces of its work.
template <class ForPieces>
void attend_token(const Attending& c, std::int64_t token, const TokenScratch& s,
                  const ForPieces& for_pieces) {
  const AttentionParams& p = c.p;
  const std::int64_t head_dim = p.q.cols / p.num_heads;
  const AttendedRows rows(p, token);
  const std::int64_t count = rows.count();
  float* const out = cpu::result_row(p.out, token, s.out);
  float* const lse = p.lse == nullptr ? nullptr : p.lse + token * p.num_heads;
  if (count == 0) {
    std::fill_n(out, p.q.cols, 0.0f);
    if (lse != nullptr) std::fill_n(lse, p.num_heads, -kInfinity);
    return cpu::finish_row(p.out, token, out);
  }

  const float* const q = cpu::float_row(p.q, token, s.out);
  for (int h = 0; h < p.num_heads; ++h) {
    std::copy_n(q + h * head_dim, head_dim, s.q + h * s.width);
    std::fill(s.q + h * s.width + head_dim, s.q + (h + 1) * s.width, 0.0f);
  }
  const auto for_rows = [&](std::int64_t begin, std::int64_t end, const auto& body) {
    for_pieces(ceil_div(end - begin, kPieceRows), [&](std::int64_t piece, int thread_idx) {
      const std::int64_t first = begin + piece * kPieceRows;
      body(first, std::min(first + kPieceRows, end), thread_idx);
    });
  };
  for (std::int64_t begin = 0; begin < count; begin += s.block_rows) {
    for_rows(begin, std::min(begin + s.block_rows, count),
             [&](std::int64_t first, std::int64_t last, int thread_idx) {
               score_rows(c, rows, s, begin, first, last, thread_idx);
             });
  }
  for (std::int64_t begin = 0; begin < count; begin += s.block_rows) {
    const std::int64_t end = std::min(begin + s.block_rows, count);
    if (count > s.block_rows) {  // the block holds other rows by now
      for_rows(begin, end, [&](std::int64_t first, std::int64_t last, int) {
        for (std::int64_t i = first; i < last; ++i) {
          rows.decode(c.kernels, i, s.rows + (i - begin) * s.width);
        }
      });
    }
    for_pieces(ceil_div(p.num_heads, kPieceHeads), [&](std::int64_t piece, int) {
      const std::int64_t head = piece * kPieceHeads;
      const std::int64_t last_head = std::min<std::int64_t>(head + kPieceHeads, p.num_heads);
      if (begin == 0) {
        for (std::int64_t h = head; h < last_head; ++h) {
          s.sums[h] = c.kernels.softmax(s.scores + h * s.score_stride, count, p.softmax_scale);
        }
      }
      c.kernels.accumulate({s.scores + head * s.score_stride + begin, s.score_stride, s.rows,
                            s.width, s.acc + head * s.width, s.width,
                            static_cast<int>(last_head - head), end - begin, s.width, begin == 0});
      if (end < count) return;
      for (std::int64_t h = head; h < last_head; ++h) {
        const double factor = cpu::inverse_denominator(s.sums[h], sink_of(p.attn_sink, h));
        store_head(c.row_kernels, s.acc + h * s.width, factor, head_dim, out + h * head_dim);
        if (lse != nullptr) lse[h] = cpu::lse_of(s.sums[h]);
      }
    });
  }
  cpu::finish_row(p.out, token, out);
}

struct AttentionScratch {
  cpu::Scratch scratch;
  float* panels;

  AttentionScratch(std::byte* workspace, const AttentionParams& p, int threads)
      : scratch(workspace),
        panels(scratch.take<float>(threads * cpu::panel_floats(p.q.cols / p.num_heads))) {}
};

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const AttentionParams& p) const {
  if (p.num_heads < 1) return 0;  // run() refuses it
  const int threads = pool_.num_threads();
  AttentionScratch all(nullptr, p, threads);
  for (int i = 0; i < (shares_tokens(p, threads) ? threads : 1); ++i) TokenScratch(all.scratch, p);
  return all.scratch.bytes();
}

void CpuBackend::compute(const AttentionParams& p, const OpContext& context) {
  const int threads = pool_.num_threads();
  AttentionScratch all(context.workspace, p, threads);
  const Attending c{p, dot_, rows_, cpu::attend_kernels(targets_), all.panels};
  if (shares_tokens(p, threads)) {
    pool_.parallel_for(p.q.rows, 1, [&](std::int64_t token, std::int64_t, int thread_idx) {
      if (p.positions[token] < 0) return;
      cpu::Scratch scratch = all.scratch;
      for (int i = 0; i < thread_idx; ++i) TokenScratch(scratch, p);
      attend_token(c, token, TokenScratch(scratch, p), [&](std::int64_t count, const auto& body) {
        for (std::int64_t i = 0; i < count; ++i) body(i, thread_idx);
      });
    });
    return;
  }
  const TokenScratch s(all.scratch, p);
  for (std::int64_t token = 0; token < p.q.rows; ++token) {
    if (p.positions[token] < 0) continue;
    const bool small = AttendedRows(p, token).count() * p.q.cols < kSmallWork;
    attend_token(c, token, s, [&](std::int64_t count, const auto& body) {
      const std::int64_t grain = small ? std::max<std::int64_t>(count, 1) : 1;
      pool_.parallel_for(count, grain, [&](std::int64_t first, std::int64_t end, int thread_idx) {
        for (std::int64_t i = first; i < end; ++i) body(i, thread_idx);
      });
    });
  }
}

}  // namespace dsv4
