// The indexer: dot products by the backend's tree straight from the pages' codes, head by head into
// a score with FP32 fused multiply-adds, heads ascending; the best rows of a tile join the best so
// far, of which a selection keeps index_top_k. Many tokens are shared among the threads; of few,
// the row pieces.
#include "ops/indexer.h"

#include <algorithm>

#include "cpu/cpu_backend.h"
#include "cpu/matmul.h"
#include "cpu/order.h"
#include "cpu/products.h"
#include "ops/row_checks.h"
#include "tensor/kv_row_codec.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/indexer.cc"
#include "cpu/targets.h"
// After targets.h, which says for which targets.
#include <hwy/foreach_target.h>

#include "cpu/lane_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace dsv4::cpu {
namespace HWY_NAMESPACE {

// scores [n] = sum over h of weights[h] * factor * relu(products[h * stride ..]); products is
// padded to whole lanes.
void sum_heads(const float* products, std::int64_t stride, const float* weights, float factor,
               int num_heads, std::int64_t n, float* scores) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    Lanes score = broadcast(0.0f);
    for (int h = 0; h < num_heads; ++h) {
      score = fma(broadcast(weights[h] * factor), relu(load(products + h * stride + i)), score);
    }
    store_n(score, n - i, scores + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {
namespace cpu {
HWY_EXPORT(sum_heads);
}  // namespace cpu

namespace {

using cpu::padded;
using SumHeads = void (*)(const float*, std::int64_t, const float*, float, int, std::int64_t,
                          float*);

constexpr std::int64_t kPieceRows = 128;                    // at most, of one page
constexpr std::int64_t kTileRows = 64 * kPieceRows;         // scores held at once, a token
constexpr std::int64_t kSmallWork = std::int64_t{1} << 18;  // multiply-adds: not worth a thread

// Enough tokens to give each thread some of its own.
bool shares_tokens(const IndexerParams& p, int threads) { return p.head_weights.rows >= threads; }

// The pieces of a search are numbered page by page.
std::int64_t pieces_per_page(const IndexerParams& p) {
  return ceil_div(p.rows.page_rows, kPieceRows);
}
std::int64_t piece_begin(const IndexerParams& p, std::int64_t piece) {
  const std::int64_t in_page = pieces_per_page(p);
  return piece / in_page * p.rows.page_rows + piece % in_page * kPieceRows;
}

struct IndexerScratch {
  std::int64_t bytes;
  std::int64_t query_floats, num_candidates, product_floats, row_floats, panel_floats;
  // One a search: a thread's where tokens are shared, else one in all.
  float* queries;             // [num_heads, padded(width)], in the rows' lane order
  float* scores;              // [kTileRows]
  std::uint64_t* candidates;  // [num_candidates]
  // One a thread, to score a piece.
  float* products;  // [num_heads, kPieceRows]
  float* rows;      // [kPieceRows, padded(width)]: rows that dot.h cannot read in place
  float* panels;

  IndexerScratch(std::byte* workspace, const IndexerParams& p, int threads)
      : query_floats(p.num_heads * padded(p.rows.layout.width)),
        num_candidates(std::min(p.index_top_k, p.max_visible_rows) + kTileRows),
        product_floats(p.num_heads * kPieceRows),
        row_floats(kPieceRows * padded(p.rows.layout.width)),
        panel_floats(cpu::panel_floats(p.rows.layout.width)) {
    const std::int64_t searches = shares_tokens(p, threads) ? threads : 1;
    cpu::Scratch scratch(workspace);
    queries = scratch.take<float>(searches * query_floats);
    scores = scratch.take<float>(searches * kTileRows);
    candidates = scratch.take<std::uint64_t>(searches * num_candidates);
    products = scratch.take<float>(threads * product_floats);
    rows = scratch.take<float>(threads * row_floats);
    panels = scratch.take<float>(threads * panel_floats);
    bytes = scratch.bytes();
  }
};

// Whether rows of a page are a matrix that dot.h reads in place; others are decoded first.
bool is_matrix(const PagedRowsView& rows) {
  const auto aligned = [&rows](std::uintptr_t alignment) {
    return reinterpret_cast<std::uintptr_t>(rows.data) % alignment == 0 &&
           static_cast<std::uintptr_t>(rows.page_stride_bytes) % alignment == 0;
  };
  switch (rows.layout.kind) {
    case RowKind::kF32:
      return aligned(4);
    case RowKind::kBf16:
      return aligned(2);
    case RowKind::kIndexerFp4:
      return true;
    default:
      return false;
  }
}

// Rows first_slot .. first_slot + n of one page.
MatrixView piece_matrix(const PagedRowsView& rows, std::int64_t first_slot, std::int64_t n) {
  MatrixView m;
  m.data = rows.row_data(first_slot);
  m.rows = n;
  m.cols = m.row_stride = rows.layout.width;
  m.format = rows.layout.kind == RowKind::kF32 ? Format::kF32 : Format::kBf16;
  if (rows.layout.kind != RowKind::kIndexerFp4) return m;
  m.format = Format::kMxfp4;
  m.block_scales = rows.row_scales(first_slot);
  m.scale_dtype = DType::kE8M0;
  m.block_cols = kIndexerFp4QuantBlock;
  m.scale_stride = rows.layout.scale_bytes();
  return m;
}

void decode_padded_row(const PagedRowsView& rows, std::int64_t slot, float* out) {
  const std::int64_t width = rows.layout.width;
  decode_kv_row(rows.layout, rows.row_data(slot), rows.row_scales(slot), out);
  std::fill(out + width, out + padded(width), 0.0f);
}

// What all tokens of a call share.
struct Indexing {
  const IndexerParams& p;
  const IndexerScratch& scratch;
  const cpu::DotKernels& dot;
  const cpu::E2m1Tables& tables;
  SumHeads sum_heads;
};

void decode_queries(const Indexing& c, std::int64_t token, float* queries) {
  const std::int64_t stride = padded(c.p.rows.layout.width);
  const bool interleaved = is_matrix(c.p.rows) && c.p.rows.layout.kind == RowKind::kIndexerFp4;
  for (int h = 0; h < c.p.num_heads; ++h) {
    float* const query = queries + h * stride;
    decode_padded_row(c.p.queries, token * c.p.num_heads + h, query);
    if (interleaved) cpu::interleave(query, stride);
  }
}

// scores [rows of the piece] of a token that sees `visible` rows.
void score_piece(const Indexing& c, std::int64_t token, std::int64_t visible, std::int64_t piece,
                 const float* queries, int thread_idx, float* scores) {
  const IndexerParams& p = c.p;
  const std::int64_t begin = piece_begin(p, piece);
  const std::int64_t n = std::min(piece_begin(p, piece + 1), visible) - begin;
  const std::int64_t page = p.pages[p.sequences[token] * p.pages_stride + begin / p.rows.page_rows];
  DSV4_CHECK(page >= 0 && page < p.rows.num_pages, "page {} of {}", page, p.rows.num_pages);
  const std::int64_t first_slot = page * p.rows.page_rows + begin % p.rows.page_rows;

  cpu::Source rows;
  if (is_matrix(p.rows)) {
    rows = cpu::make_source(piece_matrix(p.rows, first_slot, n), c.tables);
  } else {
    const std::int64_t stride = padded(p.rows.layout.width);
    float* const decoded = c.scratch.rows + thread_idx * c.scratch.row_floats;
    for (std::int64_t i = 0; i < n; ++i) {
      decode_padded_row(p.rows, first_slot + i, decoded + i * stride);
    }
    rows = cpu::make_source(f32_matrix(decoded, n, stride), c.tables);
  }
  cpu::DotCall call;
  call.w = &rows;
  call.row_end = n;
  call.x = queries;
  call.x_stride = padded(p.rows.layout.width);
  call.tokens = p.num_heads;
  call.panel = c.scratch.panels + thread_idx * c.scratch.panel_floats;
  call.sums = c.scratch.products + thread_idx * c.scratch.product_floats;
  call.sums_stride = kPieceRows;
  c.dot.dot_rows(call);
  const float* const weights =
      static_cast<const float*>(p.head_weights.data) + token * p.head_weights.row_stride;
  c.sum_heads(call.sums, kPieceRows, weights, p.head_weight_factor, p.num_heads, n, scores);
}

// The best `most` of the keys seen so far.
class Selection {
 public:
  Selection(std::uint64_t* keys, std::int64_t most) : keys_(keys), most_(most) {}

  // Scores of rows from `first_row` on.
  void add(const float* scores, std::int64_t first_row, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint64_t key =
          cpu::descending_key(scores[i], static_cast<std::uint32_t>(first_row + i));
      if (key < bound_) keys_[count_++] = key;
    }
    if (count_ <= most_) return;
    std::nth_element(keys_, keys_ + most_ - 1, keys_ + count_);
    count_ = most_;
    bound_ = keys_[most_ - 1];
  }
  // The selected rows in ascending order.
  void store(std::int32_t* row_indices) {
    for (std::int64_t i = 0; i < count_; ++i) row_indices[i] = cpu::key_index(keys_[i]);
    std::sort(row_indices, row_indices + count_);
  }

 private:
  std::uint64_t* keys_;
  std::int64_t most_;
  std::int64_t count_ = 0;
  std::uint64_t bound_ = ~std::uint64_t{0};
};

// One token's search; for_pieces(count, body(piece, thread_idx)) runs the pieces of a tile.
template <class ForPieces>
void search(const Indexing& c, std::int64_t token, std::int64_t search_idx,
            const ForPieces& for_pieces) {
  const IndexerParams& p = c.p;
  const std::int64_t visible = (std::int64_t{p.positions[token]} + 1) / p.compress_ratio;
  DSV4_CHECK(visible <= p.max_visible_rows, "{} rows visible, max_visible_rows {}", visible,
             p.max_visible_rows);
  std::int32_t* const row_indices = p.row_indices + token * p.index_top_k;
  const std::int64_t selected = std::min(visible, p.index_top_k);
  std::fill(row_indices + selected, row_indices + p.index_top_k, -1);
  float* const wanted = p.index_scores.data == nullptr ? nullptr
                                                       : static_cast<float*>(p.index_scores.data) +
                                                             token * p.index_scores.row_stride;
  if (visible <= p.index_top_k) {  // no score excludes a row
    for (std::int64_t j = 0; j < visible; ++j) row_indices[j] = static_cast<std::int32_t>(j);
    if (wanted == nullptr) return;
  }

  float* const queries = c.scratch.queries + search_idx * c.scratch.query_floats;
  float* const scores = c.scratch.scores + search_idx * kTileRows;
  Selection selection(c.scratch.candidates + search_idx * c.scratch.num_candidates, selected);
  decode_queries(c, token, queries);
  const std::int64_t pieces_a_tile = kTileRows / std::min(p.rows.page_rows, kPieceRows);
  std::int64_t begin = 0;
  for (std::int64_t piece = 0; begin < visible; piece += pieces_a_tile) {
    const std::int64_t end = std::min(piece_begin(p, piece + pieces_a_tile), visible);
    std::int64_t count = 0;
    while (count < pieces_a_tile && piece_begin(p, piece + count) < end) ++count;
    for_pieces(count, [&](std::int64_t i, int thread_idx) {
      float* const piece_scores = scores + piece_begin(p, piece + i) - begin;
      score_piece(c, token, visible, piece + i, queries, thread_idx, piece_scores);
    });
    if (wanted != nullptr) std::copy(scores, scores + (end - begin), wanted + begin);
    if (selected > 0) selection.add(scores, begin, end - begin);
    begin = end;
  }
  if (visible > p.index_top_k) selection.store(row_indices);
}

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const IndexerParams& p) const {
  return IndexerScratch(nullptr, p, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const IndexerParams& p, const OpContext& context) {
  const IndexerScratch scratch(context.workspace, p, pool_.num_threads());
  const Indexing c{p, scratch, dot_, *tables_, DSV4_CPU_KERNEL(cpu::sum_heads, targets_)};
  const std::int64_t tokens = p.head_weights.rows;
  if (shares_tokens(p, pool_.num_threads())) {
    pool_.parallel_for(tokens, 1, [&](std::int64_t token, std::int64_t, int thread_idx) {
      if (p.positions[token] < 0) return;
      search(c, token, thread_idx, [&](std::int64_t count, const auto& body) {
        for (std::int64_t i = 0; i < count; ++i) body(i, thread_idx);
      });
    });
    return;
  }
  const std::int64_t piece_work =
      std::min(p.rows.page_rows, kPieceRows) * p.num_heads * p.rows.layout.width;
  const std::int64_t grain = ceil_div(kSmallWork, std::max<std::int64_t>(piece_work, 1));
  for (std::int64_t token = 0; token < tokens; ++token) {
    if (p.positions[token] < 0) continue;
    search(c, token, 0, [&](std::int64_t count, const auto& body) {
      pool_.parallel_for(count, grain, [&](std::int64_t first, std::int64_t end, int thread_idx) {
        for (std::int64_t i = first; i < end; ++i) body(i, thread_idx);
      });
    });
  }
}

}  // namespace dsv4
#endif  // HWY_ONCE
