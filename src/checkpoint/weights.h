// weights.h: the weights of a model in our own names, as views into the checkpoint's files.
//
// Nothing here computes or copies to a device. How the views come about: bind.h.
//
// Views point into the mapped files, or into copies owned by ModelWeights where a file leaves data
// unaligned or stores scales in another form (BF16, reciprocal). In a model bound from headers
// alone every data pointer is null and every input scale 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "io/tensor_store.h"
#include "tensor/buffer.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// Symbols: h hidden_size, D head_dim, H num_heads, G num_output_groups, E num_experts of the layer.
// Matrices are [out, in], contiguous, in any format where none is named. Norm weights are matrices
// [1, n], BF16 or F32.

// Hyper-connection around one sublayer: mixes m = num_hc_mixes(), in the order pre, post, comb.
struct HcWeights {
  MatrixView mix_weight;          // F32 [m, hc_copies * h]
  const float* base = nullptr;    // [m]
  const float* scales = nullptr;  // [3]: of pre, post, comb
};

// Collapses the residual copies before the final norm.
struct HcHeadWeights {
  MatrixView mix_weight;         // F32 [hc_copies, hc_copies * h]
  const float* base = nullptr;   // [hc_copies]
  const float* scale = nullptr;  // [1]
};

// c = compressor_width(compress_ratio, row_dim).
struct CompressorWeights {
  MatrixView value_proj;       // [c, h]; BF16 in official models
  MatrixView score_proj;       // [c, h]; the same
  const float* ape = nullptr;  // [compress_ratio, c], added to the scores
  MatrixView norm;             // [1, row_dim]
};

struct IndexerWeights {
  MatrixView q_b;                // [index_heads * index_head_dim, q_low_rank]
  MatrixView head_weights_proj;  // [index_heads, h]; BF16 in official models
  CompressorWeights compressor;  // row_dim = index_head_dim
};

// Exactly one of bias and hash_table is there.
struct RouterWeights {
  MatrixView weight;                         // BF16 or F32 [E, h]
  const float* bias = nullptr;               // [E]
  const std::int32_t* hash_table = nullptr;  // [vocab, experts_per_token], all in [0, E)
  bool by_hash = false;                      // also set when bound from headers alone
};

// Indexed by expert.
struct ExpertWeights {
  std::vector<MatrixView> gate, up;  // [expert_inter, h]
  std::vector<MatrixView> down;      // [h, expert_inter]
  // NVFP4 only: the global scale of the activations that enter gate and up, and down (they decode:
  // x = code * block_scale * input_scale). Either all NVFP4 experts of the trunk have one or none;
  // so with the draft block.
  std::vector<std::optional<float>> gate_up_input_scales, down_input_scales;
};

struct SharedExpertWeights {
  MatrixView gate, up;  // [shared_inter, h]
  MatrixView down;      // [h, shared_inter]
};

struct LayerWeights {
  int compress_ratio = 0;
  int num_experts = 0;  // pruned models differ from layer to layer
  HcWeights hc_attn, hc_ffn;
  MatrixView attn_norm, ffn_norm;  // [1, h]

  MatrixView q_a;                               // [q_low_rank, h]
  MatrixView q_norm;                            // [1, q_low_rank]
  MatrixView q_b;                               // [H * D, q_low_rank]
  MatrixView kv;                                // [D, h]
  MatrixView kv_norm;                           // [1, D]
  const float* attn_sink = nullptr;             // [H]
  MatrixView o_a;                               // [G * o_low_rank, H / G * D]
  MatrixView o_b;                               // [h, G * o_low_rank]
  std::optional<CompressorWeights> compressor;  // compress_ratio != 0; row_dim = D
  std::optional<IndexerWeights> indexer;        // is_overlapping(compress_ratio)

  RouterWeights router;
  ExpertWeights experts;
  SharedExpertWeights shared_expert;
};

// The draft block: one layer of ratio 0 that predicts the token after the next. Embedding and head
// are the trunk's.
struct DraftWeights {
  LayerWeights layer;
  MatrixView e_proj, h_proj;  // [h, h]
  MatrixView e_norm, h_norm;  // [1, h]
  HcHeadWeights hc_head;
  MatrixView norm;  // [1, h]
};

// A tensor of the checkpoint that we know and do not use.
struct UnusedTensor {
  std::string name;
  std::int64_t bytes = 0;
  std::string_view reason;
};

// Tensors that are used, by what they are: "BF16", "F32", "FP8", "MXFP4", "NVFP4" (codes alone),
// "I64", or "scales" of quantised matrices. Each used tensor counts once.
struct FormatTotal {
  std::string_view label;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

struct LayerSummary {
  std::string name;  // "layers.3", "mtp.0"
  int compress_ratio = 0;
  bool routed_by_hash = false;
  int num_experts = 0;
  std::string linear_formats;  // attention and shared expert: "FP8", "BF16", or several: "FP8+BF16"
  std::string expert_formats;
};

// What binding found, for `inspect`.
struct BindReport {
  std::vector<LayerSummary> layers;  // the draft block last
  std::vector<FormatTotal> totals;   // without empty ones
  std::vector<UnusedTensor> unused;  // in the order of the checkpoint
  std::vector<std::string> notes;    // sentences: what a user should know
  std::int64_t copied_bytes = 0;     // in owned copies, beside the mapped files
};

// Movable, not copyable: views into `copies` and `store` stay valid when it is moved.
struct ModelWeights {
  ModelConfig config;
  GenerationDefaults generation;

  MatrixView embedding;   // BF16 or F32 [vocab, h]
  MatrixView head;        // [vocab, h]; BF16 in official models
  MatrixView final_norm;  // [1, h]
  HcHeadWeights hc_head;
  std::vector<LayerWeights> layers;
  std::optional<DraftWeights> draft;  // none: not wanted, not there, or DSpark

  BindReport report;

  std::shared_ptr<const TensorStore> store;  // owns the mapped files
  std::vector<Buffer> copies;
};

}  // namespace dsv4
