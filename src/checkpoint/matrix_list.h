// matrix_list.h: every matrix of a model that a checkpoint may quantise, under DeepSeek's name and
// with what it is: for those who convert or describe checkpoints. Computing with them: weights.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weights.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

enum class MatrixKind : std::uint8_t {
  kAttention,   // wq_a, wq_b, wkv, wo_a, wo_b and the indexer's wq_b
  kCompressor,  // projections of the compressors, and the indexer's weights_proj: BF16 as released
  kExpertGate,  // w1 of a routed expert
  kExpertUp,    // w3
  kExpertDown,  // w2
  kSharedExpert,  // w1, w3, w2
  kDraftInput,    // the draft block's e_proj, h_proj
  kHead,
};

constexpr bool is_expert(MatrixKind kind) {
  return kind == MatrixKind::kExpertGate || kind == MatrixKind::kExpertUp ||
         kind == MatrixKind::kExpertDown;
}

// "attention", "expert gate", "shared expert": for people, and for JSON.
std::string_view to_string(MatrixKind kind);

struct NamedMatrix {
  std::string name;  // without ".weight": "layers.3.ffn.experts.7.w1"
  MatrixKind kind = MatrixKind::kAttention;
  bool is_draft = false;
  int layer = -1;                    // of the trunk; -1: the head, or the draft block
  int expert = -1;                   // of a routed expert
  MatrixView view;                   // into the weights that were listed
  std::optional<float> input_scale;  // weights.h; of routed experts in NVFP4
};

// In the order of the tensor table: the head, then layer after layer, the draft block last. An
// expert's gate, up and down follow each other.
std::vector<NamedMatrix> list_matrices(const ModelWeights& weights);

}  // namespace dsv4
