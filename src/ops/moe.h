// moe.h: the experts of one layer: dispatch to expert-major rows, the two GEMMs, combine.
//
// A shared expert is the case of one expert that owns all rows, without routing weights.
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Sorts the (token, choice) pairs by expert, stable, so rows of an expert ascend by token.
// Pairs with expert_idx -1 (inactive tokens, experts of another device) get no row.
struct MoeDispatchParams {
  static constexpr std::string_view kOpName = "moe_dispatch";
  const std::int32_t* expert_idx = nullptr;  // [tokens, experts_per_token]
  const float* expert_weights = nullptr;     // [tokens, experts_per_token]
  std::int64_t tokens = 0;
  int experts_per_token = 0;
  int num_experts = 0;
  std::int32_t* expert_offsets = nullptr;  // out [num_experts + 1], row ranges, ascending
  std::int32_t* row_tokens = nullptr;      // out [tokens * experts_per_token], token of each row
  std::int32_t* row_experts = nullptr;     // out [tokens * experts_per_token], expert of each row
  float* row_weights = nullptr;            // out [tokens * experts_per_token], routing weights
  std::int32_t* token_rows = nullptr;      // out [tokens, experts_per_token], row of a pair or -1
};
void check(const MoeDispatchParams& p);
Cost cost(const MoeDispatchParams& p);

// The weights of all experts for one expert GEMM, in the layout that this backend's GEMM reads:
// made once, at load. Backends whose packed_bytes (backend.h) is 0 read the matrices as they are.
struct ExpertPackParams {
  static constexpr std::string_view kOpName = "expert_pack";
  // [experts] of [rows, cols], all of one format: gate, or down. The array is host memory.
  const MatrixView* weights = nullptr;
  const MatrixView* up_weights = nullptr;  // [experts] of the same shape: gate and up; null: down
  int num_experts = 0;
  void* out = nullptr;  // [packed_bytes], 256-byte aligned
};
void check(const ExpertPackParams& p);
Cost cost(const ExpertPackParams& p);

// What ExpertPackParams wrote, in place of the matrices, which need not exist any more.
struct PackedExperts {
  const void* data = nullptr;  // null: none
  Format format = Format::kNvfp4;
  std::int64_t rows = 0;  // of one matrix of an expert
  std::int64_t cols = 0;
};

// out[r] = silu(min(gate, L)) * clamp(up, -L, L) * row_weights[r], for every row r of expert e,
// with gate = W_gate[e] x, up = W_up[e] x in FP32 (k ascending; reference in FP64, rounded once to
// FP32; SwiGLU after that by the FP32 steps of numerics/silu.h in the reference, any order of
// about as many roundings elsewhere). The clamp comes before silu, on gate from above only; the
// routing weight before the down GEMM. Rows at and past expert_offsets[num_experts] are inactive.
struct ExpertGateUpParams {
  static constexpr std::string_view kOpName = "expert_gate_up";
  MatrixView x;  // [rows or tokens, hidden]
  const std::int32_t* row_tokens =
      nullptr;  // [rows] row of x for each row; null: x is expert-major
  const MatrixView* gate_weights =
      nullptr;                             // [experts] of [inter, hidden]; the array is host memory
  const MatrixView* up_weights = nullptr;  // [experts] of [inter, hidden]
  PackedExperts packed;                    // or these, of gate and up; then both arrays are null
  int num_experts = 0;
  const std::int32_t* expert_offsets = nullptr;  // [experts + 1]
  const float* row_weights = nullptr;            // [rows]; null: 1
  float swiglu_limit = 0;                        // L; 0: no clamp
  MutableMatrixView out;                         // [rows, inter], kF32, kBf16 or kNvfp4
  // kNvfp4: g of the rows of expert e, copied to out.global_scales[row] (stride 1); blocks are
  // quantised from the FP32 values as QuantizeParams says, rounding to nearest even.
  const float* out_global_scales = nullptr;  // [experts]
};
void check(const ExpertGateUpParams& p);
Cost cost(const ExpertGateUpParams& p);

// out[r] = W_down[e] x[r] for every row r of expert e.
struct ExpertDownParams {
  static constexpr std::string_view kOpName = "expert_down";
  MatrixView x;  // [rows, inter]
  const MatrixView* down_weights =
      nullptr;           // [experts] of [hidden, inter]; the array is host memory
  PackedExperts packed;  // or these; then the array is null
  int num_experts = 0;
  const std::int32_t* expert_offsets = nullptr;  // [experts + 1]
  MutableMatrixView out;                         // [rows, hidden], kF32 or kBf16
};
void check(const ExpertDownParams& p);
Cost cost(const ExpertDownParams& p);

// out[t] = (sum over the token's choices, ascending, of expert_out[token_rows[t, i]]) +
// shared_out[t], in FP32. Choices with row -1 add nothing.
struct MoeCombineParams {
  static constexpr std::string_view kOpName = "moe_combine";
  MatrixView expert_out;                     // [rows, hidden]
  const std::int32_t* token_rows = nullptr;  // [tokens, experts_per_token]
  int experts_per_token = 0;
  MatrixView shared_out;  // [tokens, hidden]; data null: none
  MutableMatrixView out;  // [tokens, hidden], kF32 or kBf16
};
void check(const MoeCombineParams& p);
Cost cost(const MoeCombineParams& p);

}  // namespace dsv4
