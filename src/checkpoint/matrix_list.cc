#include "checkpoint/matrix_list.h"

#include "base/check.h"
#include "checkpoint/tensor_table.h"

namespace dsv4 {
namespace {

// Walks the table over weights that are bound already and writes down the matrices on its way.
class MatrixLister final : public TensorVisitor {
 public:
  explicit MatrixLister(const ModelWeights& weights) : weights_(weights) {}

  std::vector<NamedMatrix> take() { return std::move(matrices_); }

  void begin_layer(const std::string&, bool is_draft) override {
    is_draft_ = is_draft;
    layer_ = is_draft ? -1 : layer_ + 1;
  }
  void end_layer(const LayerWeights&) override {}
  void linear(const std::string& matrix, std::int64_t, std::int64_t, MatrixView& view) override {
    add(matrix, kind_of_linear(matrix), view);
  }
  void expert_linear(const std::string& matrix, std::int64_t, std::int64_t, MatrixView& view,
                     std::optional<float>& input_scale) override {
    const MatrixKind kind = matrix.ends_with(".w1")   ? MatrixKind::kExpertGate
                            : matrix.ends_with(".w3") ? MatrixKind::kExpertUp
                                                      : MatrixKind::kExpertDown;
    if (kind == MatrixKind::kExpertGate) {
      ++expert_;
      gate_input_scale_ = input_scale;
    }
    NamedMatrix& added = add(matrix, kind, view);
    added.expert = expert_;
    // Gate and up share an input, and the weights keep the gate's.
    added.input_scale = kind == MatrixKind::kExpertUp ? gate_input_scale_ : input_scale;
  }
  void check_shared_input(const std::string&, std::optional<float>, std::optional<float>) override {
  }
  void plain_linear(const std::string& matrix, std::int64_t, std::int64_t,
                    MatrixView& view) override {
    add(matrix, matrix == "head" ? MatrixKind::kHead : MatrixKind::kCompressor, view);
  }
  int num_experts(const std::string&, int) override {
    expert_ = -1;
    const LayerWeights& layer =
        is_draft_ ? weights_.draft->layer : weights_.layers[static_cast<std::size_t>(layer_)];
    return layer.num_experts;
  }
  void plain(const std::string&, std::int64_t, std::int64_t, MatrixView&) override {}
  void norm(const std::string&, std::int64_t, MatrixView&) override {}
  void f32_matrix(const std::string&, std::int64_t, std::int64_t, MatrixView&) override {}
  void f32(const std::string&, const Shape&, const float*&) override {}
  void hash_table(const std::string&, std::int64_t, std::int64_t, int,
                  const std::int32_t*&) override {}

 private:
  MatrixKind kind_of_linear(const std::string& matrix) const {
    if (matrix.find(".ffn.shared_experts.") != matrix.npos) return MatrixKind::kSharedExpert;
    if (matrix.ends_with(".e_proj") || matrix.ends_with(".h_proj")) return MatrixKind::kDraftInput;
    return MatrixKind::kAttention;
  }
  NamedMatrix& add(const std::string& name, MatrixKind kind, const MatrixView& view) {
    NamedMatrix& matrix = matrices_.emplace_back();
    matrix.name = name;
    matrix.kind = kind;
    matrix.is_draft = is_draft_;
    matrix.layer = layer_;
    matrix.view = view;
    return matrix;
  }

  const ModelWeights& weights_;
  std::vector<NamedMatrix> matrices_;
  bool is_draft_ = false;
  int layer_ = -1, expert_ = -1;
  std::optional<float> gate_input_scale_;
};

}  // namespace

std::string_view to_string(MatrixKind kind) {
  switch (kind) {
    case MatrixKind::kAttention:
      return "attention";
    case MatrixKind::kCompressor:
      return "compressor";
    case MatrixKind::kExpertGate:
      return "expert gate";
    case MatrixKind::kExpertUp:
      return "expert up";
    case MatrixKind::kExpertDown:
      return "expert down";
    case MatrixKind::kSharedExpert:
      return "shared expert";
    case MatrixKind::kDraftInput:
      return "draft input";
    case MatrixKind::kHead:
      return "head";
  }
  return "?";
}

std::vector<NamedMatrix> list_matrices(const ModelWeights& weights) {
  // The table wants places to fill; those of a copy, which holds the same views.
  ModelWeights places;
  places.head = weights.head;
  places.layers = weights.layers;
  MatrixLister lister(weights);
  visit_trunk(weights.config, lister, places);
  if (weights.draft) {
    DraftWeights draft = *weights.draft;
    visit_draft(weights.config, lister, draft);
  }
  return lister.take();
}

}  // namespace dsv4
