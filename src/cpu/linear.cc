// Linear layers and the embedding lookup.
#include "cpu/cpu_backend.h"
#include "cpu/matmul.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {
namespace {

using cpu::Activations;
using cpu::DotCall;
using cpu::kUnitRows;
using cpu::padded;
using cpu::Scratch;
using cpu::Source;

// The workspace of a linear.
struct LinearScratch {
  std::int64_t bytes;
  std::int64_t wave;   // tokens
  std::int64_t width;  // of a prepared token
  float* table;        // [kE2m1TableSize]
  float* x;            // [wave, width]
  float* row_scratch;  // [threads, row_stride]
  std::int64_t row_stride;
  float* panel;  // [threads, panel_stride]
  std::int64_t panel_stride;
  float* sums;  // [threads, wave, kUnitRows]

  LinearScratch(std::byte* workspace, const LinearParams& p, int threads) {
    const std::int64_t k = p.w.cols;
    Scratch scratch(workspace);
    width = p.num_parts * padded(k);
    wave = cpu::wave_tokens(width, p.x.rows);
    row_stride = padded(p.x.cols);
    panel_stride = cpu::panel_rows(k) * padded(k);
    table = scratch.take<float>(cpu::kE2m1TableSize);
    x = scratch.take<float>(wave * width);
    row_scratch = scratch.take<float>(threads * row_stride);
    panel = scratch.take<float>(threads * panel_stride);
    sums = scratch.take<float>(threads * wave * kUnitRows);
    bytes = scratch.bytes();
  }
};

}  // namespace

std::int64_t CpuBackend::workspace_bytes(const LinearParams& p) const {
  return LinearScratch(nullptr, p, pool_.num_threads()).bytes;
}

void CpuBackend::compute(const LinearParams& p, const OpContext& context) {
  const std::int64_t tokens = cpu::active_rows(p.row_count, p.x.rows);
  if (tokens == 0 || p.w.rows == 0) return;
  const LinearScratch scratch(context.workspace, p, pool_.num_threads());
  Source w = cpu::make_source(p.w, *tables_);
  if (w.wants_table()) {
    cpu::fill_table(w, scratch.table);
    cpu::use_table(w, scratch.table);
  }
  const Activations x{cpu::make_source(p.x, *tables_), p.w.cols, p.num_parts, w.interleaved()};
  const std::int64_t part_rows = p.w.rows / p.num_parts;
  const std::int64_t part_units = ceil_div(part_rows, kUnitRows);

  for (std::int64_t begin = 0; begin < tokens; begin += scratch.wave) {
    const std::int64_t wave = std::min(scratch.wave, tokens - begin);
    pool_.parallel_for(wave, 8, [&](std::int64_t first, std::int64_t end, int thread_idx) {
      for (std::int64_t t = first; t < end; ++t) {
        cpu::prepare_row(dot_, x, begin + t, scratch.row_scratch + thread_idx * scratch.row_stride,
                         scratch.x + t * scratch.width);
      }
    });
    pool_.parallel_for(
        p.num_parts * part_units, 1, [&](std::int64_t unit, std::int64_t, int thread_idx) {
          const std::int64_t part = unit / part_units;
          const std::int64_t first = unit % part_units * kUnitRows;
          DotCall call;
          call.w = &w;
          call.row_begin = part * part_rows + first;
          call.row_end = part * part_rows + std::min(first + kUnitRows, part_rows);
          call.x = scratch.x + part * padded(p.w.cols);
          call.x_stride = scratch.width;
          call.tokens = wave;
          call.panel = scratch.panel + thread_idx * scratch.panel_stride;
          call.sums = scratch.sums + thread_idx * scratch.wave * kUnitRows;
          call.sums_stride = kUnitRows;
          dot_.dot_rows(call);
          for (std::int64_t t = 0; t < wave; ++t) {
            cpu::store_values(p.y, begin + t, call.row_begin, call.sums + t * kUnitRows,
                              call.row_end - call.row_begin);
          }
        });
  }
}

std::int64_t CpuBackend::workspace_bytes(const EmbeddingParams& p) const {
  Scratch scratch(nullptr);
  scratch.take<float>(pool_.num_threads() * padded(p.table.cols));
  return scratch.bytes();
}

void CpuBackend::compute(const EmbeddingParams& p, const OpContext& context) {
  const std::int64_t dim = p.table.cols;
  if (dim == 0) return;
  // Not make_source: it reads all scales of the table, for a few rows.
  float* const rows = Scratch(context.workspace).take<float>(pool_.num_threads() * padded(dim));
  pool_.parallel_for(p.out.rows, 8, [&](std::int64_t begin, std::int64_t end, int thread_idx) {
    float* const row = rows + thread_idx * padded(dim);
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int32_t token_id = p.token_ids[token];
      if (token_id == -1) continue;
      DSV4_CHECK(token_id >= 0 && token_id < p.table.rows, "token id {} of a vocabulary of {}",
                 token_id, p.table.rows);
      decode_matrix_row(p.table, token_id, row);
      for (int copy = 0; copy < p.num_copies; ++copy) {
        cpu::store_values(p.out, token, copy * dim, row, dim);
      }
    }
  });
}

}  // namespace dsv4
