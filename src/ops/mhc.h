// mhc.h: hyper-connections: mixes the residual copies into a layer's input and its output back.
//
// X is [tokens, copies * dim], the copies of a token side by side. All arithmetic is FP32; sums
// over copies * dim run ascending (reference: in FP64, rounded once), sums over copies ascending.
// Number of mixes: (2 + copies) * copies, laid out pre [copies], post [copies], comb row-major.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// flat = X[t]; r = rsqrt(mean(flat^2) + norm_eps); mix = (mix_weight . flat) * r.
//   pre_j  = sigmoid(mix * scales[0] + base) + hc_eps
//   post_j = 2 sigmoid(mix * scales[1] + base)
//   comb   = mix * scales[2] + base; softmax over each row, + hc_eps; divide by (column sum +
//   hc_eps);
//            then sinkhorn_iters - 1 times: by (row sum + hc_eps), by (column sum + hc_eps)
// out = RMSNorm(sum over j of pre_j X_j; norm_weight), or without the norm when norm_weight is
// null.
struct HcPreParams {
  static constexpr std::string_view kOpName = "hc_pre";
  MatrixView x;  // [tokens, copies * dim], kF32 or kBf16
  int copies = 0;
  MatrixView mix_weight;          // [(2 + copies) * copies, copies * dim], kF32
  const float* scales = nullptr;  // [3]
  const float* base = nullptr;    // [(2 + copies) * copies]
  int sinkhorn_iters = 0;
  float hc_eps = 0;
  float norm_eps = 0;
  MatrixView norm_weight;                   // [1, dim]; data null: no norm
  MutableMatrixView out;                    // [tokens, dim], kF32 or kBf16
  float* post = nullptr;                    // out [tokens, copies]
  float* comb = nullptr;                    // out [tokens, copies, copies]
  const std::int32_t* row_count = nullptr;  // [1] active tokens; null: all
};
void check(const HcPreParams& p);
Cost cost(const HcPreParams& p);

// out_j = post_j * y + sum over i of comb[i][j] * X_i. out may be x.
struct HcPostParams {
  static constexpr std::string_view kOpName = "hc_post";
  MatrixView x;  // [tokens, copies * dim]
  MatrixView y;  // [tokens, dim], the sublayer's output
  int copies = 0;
  const float* post = nullptr;  // [tokens, copies]
  const float* comb = nullptr;  // [tokens, copies, copies]
  MutableMatrixView out;        // [tokens, copies * dim], kF32 or kBf16
  const std::int32_t* row_count = nullptr;
};
void check(const HcPostParams& p);
Cost cost(const HcPostParams& p);

// The trunk's end: pre_j = sigmoid((mix_weight . flat)_j * r * scale + base_j) + hc_eps;
// out = RMSNorm(sum over j of pre_j X_j; norm_weight), norm as above.
struct HcHeadParams {
  static constexpr std::string_view kOpName = "hc_head";
  MatrixView x;  // [tokens, copies * dim]
  int copies = 0;
  MatrixView mix_weight;         // [copies, copies * dim], kF32
  const float* scale = nullptr;  // [1]
  const float* base = nullptr;   // [copies]
  float hc_eps = 0;
  float norm_eps = 0;
  MatrixView norm_weight;  // [1, dim]; data null: no norm
  MutableMatrixView out;   // [tokens, dim]
  const std::int32_t* row_count = nullptr;
};
void check(const HcHeadParams& p);
Cost cost(const HcHeadParams& p);

}  // namespace dsv4
