// expert_gemm_judge.h: the output of an expert GEMM against the formula, all of it or sampled.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tensor/matrix_codec.h"
#include "testing/cases/expert_gemm_cases.h"
#include "testing/expert_oracle.h"

namespace dsv4::testing {

// Every `rows`-th row of an expert and its last, every `blocks`-th 16 columns and the last.
struct Sampling {
  std::int64_t rows = 1;
  std::int64_t blocks = 1;
};

inline std::vector<float> decoded(const MatrixView& m, std::int64_t row) {
  std::vector<float> values(static_cast<std::size_t>(m.cols));
  decode_matrix_row(m, row, values.data());
  return values;
}

// Sixteen columns of rows of one expert; empty, or what differs.
inline std::string compare_block(const ExpertGemmCase& c, const ExpertGemmInputs& in,
                                 const HostMatrix& got, int expert,
                                 const std::vector<std::int64_t>& rows, std::int64_t col_begin) {
  std::vector<std::vector<float>> weights, up;
  for (std::int64_t n = col_begin; n < col_begin + 16; ++n) {
    weights.push_back(decoded(in.weights[expert].view(), n));
    if (c.gate_up) up.push_back(decoded(in.up[expert].view(), n));
  }
  for (const std::int64_t row : rows) {
    const std::vector<float> x = decoded(in.x.view(), in.x_row(row));
    const double row_weight = in.row_weights.empty() ? 1.0 : double{in.row_weights[row]};
    Judged want[16];
    for (int i = 0; i < 16; ++i) {
      want[i] = judged_dot(x.data(), weights[i].data(), c.k);
      if (!c.gate_up) continue;
      want[i] = judged_swiglu(want[i], judged_dot(x.data(), up[i].data(), c.k), c.swiglu_limit,
                              row_weight);
    }
    const std::string where =
        fmt::format("row {} of expert {}, columns from {}: ", row, expert, col_begin);
    if (got.spec.format == Format::kNvfp4) {
      const std::string wrong =
          compare_nvfp4_block(want, in.out_global_scales[expert],
                              got.data.data() + (row * got.row_stride + col_begin) / 2,
                              got.block_scales[row * got.scale_stride + col_begin / 16]);
      if (!wrong.empty()) return where + wrong;
      continue;
    }
    const std::vector<float> values = decoded(got.view(), row);
    for (int i = 0; i < 16; ++i) {
      if (want[i].allows(values[col_begin + i], got.spec.format)) continue;
      return where + fmt::format("{} at {}, must be {} within {}", values[col_begin + i], i,
                                 want[i].value, want[i].stored_as(got.spec.format).error);
    }
  }
  return {};
}

// The first difference of sampled outputs to the formula, of any global scale to its expert's, or a
// spare row that was written to; empty if there is none.
inline std::string first_difference(const ExpertGemmCase& c, const ExpertGemmInputs& in,
                                    const HostMatrix& got, Sampling sampling = {}) {
  for (int e = 0; e < c.num_experts(); ++e) {
    const std::int64_t begin = in.expert_offsets[e], end = in.expert_offsets[e + 1];
    std::vector<std::int64_t> rows;
    for (std::int64_t r = begin; r < end; ++r) {
      if (got.spec.format == Format::kNvfp4 && got.global_scales[r] != in.out_global_scales[e]) {
        return fmt::format("the global scale of row {} is {}, must be {}", r, got.global_scales[r],
                           in.out_global_scales[e]);
      }
      if ((r - begin) % sampling.rows == 0 || r == end - 1) rows.push_back(r);
    }
    if (rows.empty()) continue;
    for (std::int64_t block = 0; block < c.n / 16; ++block) {
      if (block % sampling.blocks != 0 && block != c.n / 16 - 1) continue;
      const std::string wrong = compare_block(c, in, got, e, rows, 16 * block);
      if (!wrong.empty()) return wrong;
    }
  }
  const auto is_poison = [](const auto& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](auto b) { return b == kPoisonByte; });
  };
  for (std::int64_t r = c.active_rows(); r < c.rows(); ++r) {
    const HostMatrix row = got.row(r);
    const bool clean = is_poison(row.data) && is_poison(row.block_scales) &&
                       (row.global_scales.empty() || std::isnan(row.global_scales[0]));
    if (!clean) return fmt::format("row {}, past all experts, was written to", r);
  }
  return {};
}

inline void expect_follows_formula(const ExpertGemmCase& c, const ExpertGemmInputs& in,
                                   const HostMatrix& got, Sampling sampling = {}) {
  EXPECT_EQ(first_difference(c, in, got, sampling), "");
}

}  // namespace dsv4::testing
