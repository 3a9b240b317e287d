// products.h: all dot products of a small matrix with prepared tokens, for the ops that contain a
// projection of their own (router, hyper-connections). Linear layers: linear.cc.
#pragma once

#include <cstdint>

#include "base/thread_pool.h"
#include "cpu/dot.h"

namespace dsv4::cpu {

// sums[t * w rows + i] = row i of w . x[t], each by the tree of lanes-inl.h.
struct Products {
  const Source* w = nullptr;  // [rows, k], natural lane order
  const float* x = nullptr;   // [tokens, padded(k)], zeros behind k
  std::int64_t x_stride = 0;
  std::int64_t tokens = 0;
  float* sums = nullptr;    // [tokens, rows]
  float* panels = nullptr;  // [threads, panel_floats(k)]
};

constexpr std::int64_t panel_floats(std::int64_t k) { return panel_rows(k) * padded(k); }

// Shares row and token tiles among the threads of the pool; little work stays on the caller.
void multiply(ThreadPool& pool, const DotKernels& dot, const Products& p);

}  // namespace dsv4::cpu
