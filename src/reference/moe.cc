// The experts, plainly: a stable counting sort, two GEMMs that decode each weight row once, a sum.
#include "ops/moe.h"

#include <algorithm>
#include <vector>

#include "numerics/silu.h"
#include "reference/quantize.h"
#include "reference/reference_backend.h"
#include "reference/rows.h"

namespace dsv4 {
namespace {

// An expert's rows of x, decoded: [rows, x.cols].
std::vector<float> expert_inputs(const MatrixView& x, const std::int32_t* row_tokens,
                                 std::int64_t begin, std::int64_t end) {
  std::vector<float> inputs(static_cast<std::size_t>((end - begin) * x.cols));
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t source = row_tokens == nullptr ? r : row_tokens[r];
    DSV4_CHECK(source >= 0 && source < x.rows, "row {} reads row {} of {}", r, source, x.rows);
    decode_matrix_row(x, source, inputs.data() + (r - begin) * x.cols);
  }
  return inputs;
}

// Writes values [inter] into row `row` of p.out, a row of expert `expert`.
void store_activated(const ExpertGateUpParams& p, int expert, std::int64_t row,
                     const float* values) {
  const MutableMatrixView& out = p.out;
  if (out.format != Format::kNvfp4) return store_matrix_row(out, row, values);
  out.global_scales[row] = p.out_global_scales[expert];
  encode_matrix_row(out, row, values, out.global_scales[row], E2m1Rounding::kNearestEven);
}

}  // namespace

void ReferenceBackend::compute(const MoeDispatchParams& p, const OpContext&) {
  const std::int64_t pairs = p.tokens * p.experts_per_token;
  std::fill_n(p.expert_offsets, p.num_experts + 1, 0);
  for (std::int64_t i = 0; i < pairs; ++i) {
    DSV4_CHECK(p.expert_idx[i] < p.num_experts, "expert {} of {}", p.expert_idx[i], p.num_experts);
    if (p.expert_idx[i] >= 0) ++p.expert_offsets[p.expert_idx[i] + 1];
  }
  for (int e = 0; e < p.num_experts; ++e) p.expert_offsets[e + 1] += p.expert_offsets[e];
  std::vector<std::int32_t> next_row(p.expert_offsets, p.expert_offsets + p.num_experts);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const std::int32_t expert = p.expert_idx[i];
    p.token_rows[i] = expert < 0 ? -1 : next_row[expert]++;
    if (expert < 0) continue;
    const std::int32_t row = p.token_rows[i];
    p.row_tokens[row] = static_cast<std::int32_t>(i / p.experts_per_token);
    p.row_experts[row] = expert;
    p.row_weights[row] = p.expert_weights[i];
  }
}

void ReferenceBackend::compute(const ExpertGateUpParams& p, const OpContext&) {
  const std::int64_t hidden = p.x.cols;
  const std::int64_t inter = p.out.cols;
  for (int e = 0; e < p.num_experts; ++e) {
    const std::int64_t begin = p.expert_offsets[e];
    const std::int64_t end = p.expert_offsets[e + 1];
    if (begin == end) continue;  // its weights stay untouched: they may be unread pages of a file
    DSV4_CHECK(begin < end && end <= p.out.rows, "rows {} to {} of {}", begin, end, p.out.rows);
    const std::vector<float> inputs = expert_inputs(p.x, p.row_tokens, begin, end);
    std::vector<float> out(static_cast<std::size_t>((end - begin) * inter));
    for (std::int64_t n = 0; n < inter; ++n) {
      const std::vector<float> gate_row = decoded_row(p.gate_weights[e], n);
      const std::vector<float> up_row = decoded_row(p.up_weights[e], n);
      for (std::int64_t r = begin; r < end; ++r) {
        const float* const x = inputs.data() + (r - begin) * hidden;
        const auto gate = static_cast<float>(dot(x, gate_row.data(), hidden));
        const auto up = static_cast<float>(dot(x, up_row.data(), hidden));
        out[(r - begin) * inter + n] =
            swiglu(gate, up, p.swiglu_limit, p.row_weights == nullptr ? 1.0f : p.row_weights[r]);
      }
    }
    for (std::int64_t r = begin; r < end; ++r) {
      store_activated(p, e, r, out.data() + (r - begin) * inter);
    }
  }
}

void ReferenceBackend::compute(const ExpertDownParams& p, const OpContext&) {
  const std::int64_t inter = p.x.cols;
  const std::int64_t hidden = p.out.cols;
  for (int e = 0; e < p.num_experts; ++e) {
    const std::int64_t begin = p.expert_offsets[e];
    const std::int64_t end = p.expert_offsets[e + 1];
    if (begin == end) continue;
    DSV4_CHECK(begin < end && end <= p.out.rows, "rows {} to {} of {}", begin, end, p.out.rows);
    const std::vector<float> inputs = expert_inputs(p.x, nullptr, begin, end);
    std::vector<float> out(static_cast<std::size_t>((end - begin) * hidden));
    for (std::int64_t n = 0; n < hidden; ++n) {
      const std::vector<float> down_row = decoded_row(p.down_weights[e], n);
      for (std::int64_t r = begin; r < end; ++r) {
        out[(r - begin) * hidden + n] =
            static_cast<float>(dot(inputs.data() + (r - begin) * inter, down_row.data(), inter));
      }
    }
    for (std::int64_t r = begin; r < end; ++r) {
      store_matrix_row(p.out, r, out.data() + (r - begin) * hidden);
    }
  }
}

void ReferenceBackend::compute(const MoeCombineParams& p, const OpContext&) {
  for (std::int64_t t = 0; t < p.out.rows; ++t) {
    std::vector<float> sum(static_cast<std::size_t>(p.out.cols));
    for (std::int64_t i = 0; i < p.experts_per_token; ++i) {
      const std::int64_t row = p.token_rows[t * p.experts_per_token + i];
      if (row < 0) continue;
      DSV4_CHECK(row < p.expert_out.rows, "row {} of {}", row, p.expert_out.rows);
      const std::vector<float> part = decoded_row(p.expert_out, row);
      for (std::int64_t k = 0; k < p.out.cols; ++k) sum[k] += part[k];
    }
    if (p.shared_out.data != nullptr) {
      const std::vector<float> shared = decoded_row(p.shared_out, t);
      for (std::int64_t k = 0; k < p.out.cols; ++k) sum[k] += shared[k];
    }
    store_matrix_row(p.out, t, sum.data());
  }
}

}  // namespace dsv4
