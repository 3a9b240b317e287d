#include "cpu/products.h"

#include <algorithm>

namespace dsv4::cpu {
namespace {

// A tile: eight rows, which a panel of 16384 columns holds, and tokens enough to pay for decoding.
constexpr std::int64_t kTileRows = 8;
constexpr std::int64_t kTileTokens = 48;
// Multiply-adds below which handing work to another thread takes longer than doing it.
constexpr std::int64_t kSmallWork = 1 << 18;

}  // namespace

void multiply(ThreadPool& pool, const DotKernels& dot, const Products& p) {
  const std::int64_t rows = p.w->view.rows;
  const std::int64_t k = p.w->view.cols;
  const std::int64_t row_tiles = ceil_div(rows, kTileRows);
  const std::int64_t tiles = row_tiles * ceil_div(p.tokens, kTileTokens);
  const bool small = rows * k * p.tokens < kSmallWork;
  const std::int64_t grain = small ? std::max<std::int64_t>(tiles, 1) : 1;
  pool.parallel_for(tiles, grain, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t token = tile / row_tiles * kTileTokens;
      DotCall call;
      call.w = p.w;
      call.row_begin = tile % row_tiles * kTileRows;
      call.row_end = std::min(call.row_begin + kTileRows, rows);
      call.x = p.x + token * p.x_stride;
      call.x_stride = p.x_stride;
      call.tokens = std::min(kTileTokens, p.tokens - token);
      call.panel = p.panels + thread_idx * panel_floats(k);
      call.sums = p.sums + token * rows + call.row_begin;
      call.sums_stride = rows;
      dot.dot_rows(call);
    }
  });
}

}  // namespace dsv4::cpu
