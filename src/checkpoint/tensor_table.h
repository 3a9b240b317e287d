// tensor_table.h: the table of all tensors of a model: published name, shape, and the place in
// ModelWeights that each one fills, under DeepSeek's own names. Other spellings: tensor_names.h.
//
// What to do with an entry (list it, bind it) is the visitor's business: layout.cc, binder.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/weights.h"
#include "tensor/shape.h"

namespace dsv4 {

// One call an entry. A `matrix` name is without ".weight": the tensor NAME.weight and, when it is
// quantised, its siblings; other names are whole.
class TensorVisitor {
 public:
  virtual ~TensorVisitor() = default;

  // A layer begins (name "layers.3" or "mtp.0"), and ends.
  virtual void begin_layer(const std::string& name, bool is_draft) = 0;
  virtual void end_layer(const LayerWeights& layer) = 0;

  // Perhaps quantised: [rows, cols].
  virtual void linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                      MatrixView& out) = 0;
  virtual void expert_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                             MatrixView& out, std::optional<float>& input_scale) = 0;
  // The input scales of the gate and up matrices of one expert, which share their input.
  virtual void check_shared_input(const std::string& expert, std::optional<float> of_gate,
                                  std::optional<float> of_up) = 0;
  // A linear that DeepSeek keeps in BF16 and that others quantise: [rows, cols].
  virtual void plain_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                            MatrixView& out) = 0;
  // How many experts the layer of this router has, where the config says `by_config`.
  virtual int num_experts(const std::string& router, int by_config) = 0;
  // Never quantised: BF16 in published models, [rows, cols].
  virtual void plain(const std::string& name, std::int64_t rows, std::int64_t cols,
                     MatrixView& out) = 0;
  // The same, a vector [size] in the file, [1, size] for us.
  virtual void norm(const std::string& name, std::int64_t size, MatrixView& out) = 0;
  // FP32.
  virtual void f32_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                          MatrixView& out) = 0;
  virtual void f32(const std::string& name, const Shape& shape, const float*& out) = 0;
  // I64 [vocab, experts_per_token], ids below num_experts.
  virtual void hash_table(const std::string& name, std::int64_t vocab,
                          std::int64_t experts_per_token, int num_experts,
                          const std::int32_t*& out) = 0;
};

// Visits the trunk and fills `out` (whose vectors are resized), or the draft block. Over weights
// that are filled already, with the numbers of experts that they have, the visitor sees what is
// there.
void visit_trunk(const ModelConfig& config, TensorVisitor& visitor, ModelWeights& out);
void visit_draft(const ModelConfig& config, TensorVisitor& visitor, DraftWeights& out);

// Names that tell variants apart.
inline constexpr std::string_view kDraftPrefix = "mtp.";
inline constexpr std::string_view kDsparkMark = "mtp.0.main_proj.weight";

}  // namespace dsv4
