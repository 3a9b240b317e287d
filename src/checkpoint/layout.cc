// layout.cc: lists the tensor table; see layout.h.
#include "checkpoint/layout.h"

#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "checkpoint/tensor_table.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

class Lister final : public TensorVisitor {
 public:
  explicit Lister(const LayoutFormats& formats) : formats_(formats) {}

  std::vector<TensorInfo> take() { return std::move(tensors_); }

  void begin_layer(const std::string&, bool is_draft) override { is_draft_ = is_draft; }
  void end_layer(const LayerWeights&) override {}
  void check_shared_input(const std::string&, std::optional<float>, std::optional<float>) override {
  }

  void linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
              MatrixView&) override {
    add_matrix(matrix, formats_.linears, DType::kE8M0, rows, cols);
  }
  void expert_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols, MatrixView&,
                     std::optional<float>&) override {
    const Format format = is_draft_ ? formats_.draft_experts : formats_.experts;
    add_matrix(matrix, format, formats_.fp8_expert_scale, rows, cols);
    if (format == Format::kNvfp4) add(matrix + ".input_scale", DType::kF32, {});
  }
  void plain_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                    MatrixView&) override {
    add(matrix + ".weight", DType::kBF16, {rows, cols});
  }
  int num_experts(const std::string&, int by_config) override { return by_config; }
  void plain(const std::string& name, std::int64_t rows, std::int64_t cols, MatrixView&) override {
    add(name, DType::kBF16, {rows, cols});
  }
  void norm(const std::string& name, std::int64_t size, MatrixView&) override {
    add(name, DType::kBF16, {size});
  }
  void f32_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                  MatrixView&) override {
    add(name, DType::kF32, {rows, cols});
  }
  void f32(const std::string& name, const Shape& shape, const float*&) override {
    add(name, DType::kF32, shape);
  }
  void hash_table(const std::string& name, std::int64_t vocab, std::int64_t experts_per_token, int,
                  const std::int32_t*&) override {
    add(name, DType::kI64, {vocab, experts_per_token});
  }

 private:
  void add(std::string name, DType dtype, const Shape& shape) {
    tensors_.push_back({std::move(name), dtype, shape});
  }

  void add_matrix(const std::string& matrix, Format format, DType fp8_scale, std::int64_t rows,
                  std::int64_t cols) {
    const std::string name = matrix + ".weight";
    switch (format) {
      case Format::kF32:
        return add(name, DType::kF32, {rows, cols});
      case Format::kBf16:
        return add(name, DType::kBF16, {rows, cols});
      case Format::kE4m3:
        add(name, DType::kE4M3, {rows, cols});
        return add(matrix + ".scale", fp8_scale,
                   {ceil_div(rows, kWeightTile), ceil_div(cols, kWeightTile)});
      case Format::kMxfp4:
        check_quant_block(name, cols, kMxfp4QuantBlock);
        add(name, DType::kI8, {rows, cols / 2});
        return add(matrix + ".scale", DType::kE8M0, {rows, cols / kMxfp4QuantBlock});
      case Format::kNvfp4:
        check_quant_block(name, cols, kNvfp4QuantBlock);
        add(name, DType::kU8, {rows, cols / 2});
        add(matrix + ".weight_scale", DType::kE4M3, {rows, cols / kNvfp4QuantBlock});
        return add(matrix + ".weight_scale_2", DType::kF32, {});
    }
  }

  static void check_quant_block(const std::string& name, std::int64_t cols,
                                std::int64_t quant_block) {
    if (cols % quant_block == 0) return;
    fail(ErrorCode::kBadRequest, "tensor {} has {} inputs; 4-bit formats need a multiple of {}",
         name, cols, quant_block);
  }

  LayoutFormats formats_;
  bool is_draft_ = false;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

std::vector<TensorInfo> expected_tensors(const ModelConfig& config, const LayoutFormats& formats) {
  Lister lister(formats);
  ModelWeights unfilled;
  visit_trunk(config, lister, unfilled);
  if (config.num_draft_blocks > 0 && !config.has_dspark) {
    DraftWeights unfilled_draft;
    visit_draft(config, lister, unfilled_draft);
  }
  return lister.take();
}

}  // namespace dsv4
