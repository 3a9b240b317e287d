#include "model/step_buffers.h"

#include <algorithm>

#include "base/check.h"
#include "base/math.h"
#include "numerics/fp8_block.h"
#include "numerics/nvfp4.h"

namespace dsv4 {

StepBuffers::StepBuffers(Backend& backend, const ModelConfig& config, const ModelOptions& options)
    : backend_(backend) {
  const std::int64_t tokens = options.max_step_tokens;
  const std::int64_t expert_rows = tokens * config.experts_per_token;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t head_values = config.num_heads * config.head_dim;
  const std::int64_t o_values = config.num_output_groups * config.o_low_rank;
  const std::int64_t index_values = config.index_heads * config.index_head_dim;

  residuals = matrix(tokens, config.hc_copies * hidden);
  x = matrix(tokens, hidden);
  sublayer_out = matrix(tokens, hidden);
  hc_post = array<float>(tokens * config.hc_copies);
  hc_comb = array<float>(tokens * config.hc_copies * config.hc_copies);

  q_low = matrix(tokens, config.q_low_rank);
  q = matrix(tokens, head_values);
  kv = matrix(tokens, config.head_dim);
  attention = matrix(tokens, head_values);
  o_low = matrix(tokens, o_values);

  const std::int64_t comp_width = 2 * std::max(config.head_dim, config.index_head_dim);
  comp_values = matrix(tokens, comp_width);
  comp_scores = matrix(tokens, comp_width);
  comp_rows = matrix(tokens, comp_width / 2);
  index_q = matrix(tokens, index_values);
  index_head_weights = matrix(tokens, config.index_heads);
  const RowLayout query_layout{options.simulate_rows ? RowKind::kIndexerFp4 : RowKind::kF32,
                               config.index_head_dim, 0};
  const std::int64_t num_queries = tokens * config.index_heads;
  index_queries = {{array<std::byte>(num_queries * query_layout.row_bytes()), query_layout,
                    num_queries, num_queries * query_layout.row_bytes(), 1}};
  row_indices = array<std::int32_t>(tokens * config.index_top_k);

  expert_idx = array<std::int32_t>(expert_rows);
  token_rows = array<std::int32_t>(expert_rows);
  expert_weights = array<float>(expert_rows);
  expert_offsets = array<std::int32_t>(config.num_experts + 1);
  row_tokens = array<std::int32_t>(expert_rows);
  row_experts = array<std::int32_t>(expert_rows);
  row_weights = array<float>(expert_rows);
  expert_inter = matrix(expert_rows, config.expert_inter);
  expert_out = matrix(expert_rows, hidden);
  shared_inter = matrix(tokens, config.shared_inter());
  shared_out = matrix(tokens, hidden);

  // The largest inputs of quantised linears; the draft block quantises all residual copies at once.
  max_code_rows_ = std::max(expert_rows, tokens * config.hc_copies);
  const std::int64_t token_values =
      std::max({hidden * config.hc_copies, config.q_low_rank, o_values, config.shared_inter()});
  max_code_values_ =
      std::max(tokens * token_values, expert_rows * std::max(hidden, config.expert_inter));
  codes_ = array<std::uint8_t>(max_code_values_);
  block_scales_ = array<std::uint8_t>(max_code_values_ / kNvfp4QuantBlock + max_code_rows_);
  global_scales_ = array<float>(max_code_rows_);
}

MutableMatrixView StepBuffers::quantized(Format format, std::int64_t rows,
                                         std::int64_t cols) const {
  DSV4_CHECK(rows <= max_code_rows_ && rows * cols <= max_code_values_, "{} x {}", rows, cols);
  MutableMatrixView m;
  m.data = codes_;
  m.format = format;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = cols;
  m.block_scales = block_scales_;
  m.block_rows = 1;
  if (format == Format::kNvfp4) {
    m.scale_dtype = DType::kE4M3;
    m.block_cols = kNvfp4QuantBlock;
    m.global_scales = global_scales_;
    m.global_scale_stride = 1;
  } else {
    DSV4_CHECK(format == Format::kE4m3);
    m.scale_dtype = DType::kE8M0;
    m.block_cols = kWeightTile;
  }
  m.scale_stride = ceil_div(cols, m.block_cols);
  return m;
}

MutableMatrixView StepBuffers::part(const MutableMatrixView& buffer, std::int64_t rows,
                                    std::int64_t cols) {
  DSV4_CHECK(rows * cols <= buffer.rows * buffer.cols, "{} x {} of {} x {}", rows, cols,
             buffer.rows, buffer.cols);
  MutableMatrixView m = buffer;
  m.rows = rows;
  m.cols = cols;
  m.row_stride = cols;
  return m;
}

MutableMatrixView StepBuffers::matrix(std::int64_t rows, std::int64_t cols) {
  return f32_matrix(array<float>(rows * cols), rows, cols);
}

template <class T>
T* StepBuffers::array(std::int64_t count) {
  memory_.push_back(backend_.allocate(count * static_cast<std::int64_t>(sizeof(T))));
  return memory_.back().as<T>();
}

}  // namespace dsv4
