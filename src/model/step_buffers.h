// step_buffers.h: scratch of one forward pass, allocated once for the largest step and shared by
// all layers.
#pragma once

#include <cstdint>
#include <vector>

#include "checkpoint/model_config.h"
#include "model/options.h"
#include "ops/backend.h"

namespace dsv4 {

// T = max_step_tokens, R = T * experts_per_token. All FP32. Sizes: see the constructor.
class StepBuffers {
 public:
  StepBuffers(Backend& backend, const ModelConfig& config, const ModelOptions& options);

  MutableMatrixView residuals;                   // [T, hc * h], the residual copies
  MutableMatrixView x, sublayer_out;             // [T, h]
  float *hc_post = nullptr, *hc_comb = nullptr;  // [T, hc], [T, hc, hc]
  MutableMatrixView q_low, q, kv, attention,
      o_low;  // [T, q_low_rank], [T, H D], [T, D], [T, H D], [T, G o]
  MutableMatrixView comp_values, comp_scores;  // [T, 2 D or more]
  MutableMatrixView comp_rows;                 // [T, max(D, index_head_dim)]
  MutableMatrixView index_q;                   // [T, index_heads * index_head_dim]
  MutableMatrixView index_head_weights;        // [T, index_heads]
  MutablePagedRowsView index_queries;          // T * index_heads rows, one page
  std::int32_t* row_indices = nullptr;         // [T, index_top_k]

  std::int32_t *expert_idx = nullptr, *token_rows = nullptr;   // [T, experts_per_token]
  float* expert_weights = nullptr;                             // [T, experts_per_token]
  std::int32_t* expert_offsets = nullptr;                      // [experts + 1]
  std::int32_t *row_tokens = nullptr, *row_experts = nullptr;  // [R]
  float* row_weights = nullptr;                                // [R]
  MutableMatrixView expert_inter, expert_out;                  // [R, inter], [R, h]
  MutableMatrixView shared_inter, shared_out;                  // [T, shared_inter], [T, h]

  // A quantised copy of up to R rows of `cols` values in the given format.
  MutableMatrixView quantized(Format format, std::int64_t rows, std::int64_t cols) const;

  // The first `rows` rows and `cols` columns of a buffer, contiguous.
  static MutableMatrixView part(const MutableMatrixView& buffer, std::int64_t rows,
                                std::int64_t cols);
  static MutableMatrixView rows(const MutableMatrixView& buffer, std::int64_t rows) {
    return part(buffer, rows, buffer.cols);
  }

 private:
  MutableMatrixView matrix(std::int64_t rows, std::int64_t cols);
  template <class T>
  T* array(std::int64_t count);

  Backend& backend_;
  std::vector<DeviceBuffer> memory_;
  std::uint8_t* codes_ = nullptr;
  std::uint8_t* block_scales_ = nullptr;
  float* global_scales_ = nullptr;
  std::int64_t max_code_values_ = 0;
  std::int64_t max_code_rows_ = 0;
};

}  // namespace dsv4
