// binder.h: binds the entries of the tensor table to a store's tensors, one by one, and keeps
// account of what was used and what is missing. Internal to checkpoint/; the door is bind.h.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checkpoint/tensor_names.h"
#include "checkpoint/tensor_table.h"
#include "dsv4/types.h"

namespace dsv4 {

// Throw Error kBadCheckpoint naming the tensor, unless it has this shape, or dtype.
void check_shape(const TensorInfo& info, const Shape& shape);
void check_dtype(const TensorInfo& info, DType dtype);

// Views go into the store's files, or into copies appended to out.copies where data is unaligned.
// Throws at once for a tensor of the wrong dtype, shape or value; missing and unknown ones are
// collected for finish(). Summaries of layers are appended to out.report.
class Binder final : public TensorVisitor {
 public:
  // All outlive the binder; `names` is of `store`. `progress` may be null.
  Binder(const TensorStore& store, const NamedTensors& names, ModelWeights& out,
         const LoadProgressCallback& progress)
      : store_(store), names_(names), out_(out), progress_(progress) {}

  void begin_layer(const std::string& name, bool is_draft) override;
  void end_layer(const LayerWeights& layer) override;
  void linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
              MatrixView& view) override;
  void expert_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                     MatrixView& view, std::optional<float>& input_scale) override;
  void check_shared_input(const std::string& expert, std::optional<float> of_gate,
                          std::optional<float> of_up) override;
  void plain_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                    MatrixView& view) override;
  int num_experts(const std::string& router, int by_config) override;
  void plain(const std::string& name, std::int64_t rows, std::int64_t cols,
             MatrixView& view) override;
  void norm(const std::string& name, std::int64_t size, MatrixView& view) override;
  void f32_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                  MatrixView& view) override;
  void f32(const std::string& name, const Shape& shape, const float*& data) override;
  void hash_table(const std::string& name, std::int64_t vocab, std::int64_t experts_per_token,
                  int num_experts, const std::int32_t*& data) override;

  // Throws Error kBadCheckpoint naming what is missing and what is unknown; fills out.report.
  // Draft tensors that were not bound are known if `why_no_draft` gives a reason.
  void finish(std::string_view why_no_draft);

 private:
  // Names for a message: the first few, and how many there are.
  struct NameList {
    std::vector<std::string> first;
    std::int64_t count = 0;
    void add(const std::string& name);
    std::string to_string() const;
  };

  void report_progress(std::int64_t tensors_done);
  std::optional<StoredTensor> take(const std::string& name, std::string_view label);
  std::optional<StoredTensor> take_checked(const std::string& name, std::string_view label,
                                           DType dtype, const Shape& shape);
  std::optional<StoredTensor> take_tile_scales(const std::string& matrix);
  std::optional<float> take_scalar(const std::string& name, bool is_reciprocal,
                                   const float** data_out);
  const void* tile_scales(const StoredTensor& tensor, DType& dtype);
  void refuse_other_format(const std::string& matrix, const StoredTensor& weight);

  MatrixView bind_matrix(const std::string& matrix, std::int64_t rows, std::int64_t cols);
  MatrixView bind_plain(const StoredTensor& weight, const Shape& shape);
  void check_finite(const StoredTensor& tensor, const void* values) const;
  MatrixView bind_fp8(const std::string& matrix, const StoredTensor& weight, MatrixView view);
  MatrixView bind_mxfp4(const std::string& matrix, const StoredTensor& weight, MatrixView view);
  MatrixView bind_nvfp4(const std::string& matrix, const StoredTensor& weight,
                        const Nvfp4Names& names, MatrixView view);
  const Nvfp4Names& nvfp4_names(const std::string& matrix) const;
  void check_input_scales();

  const void* data(const StoredTensor& tensor);
  std::byte* allocate(std::int64_t bytes);

  const TensorStore& store_;
  const NamedTensors& names_;
  ModelWeights& out_;
  const LoadProgressCallback& progress_;

  std::unordered_set<const TensorInfo*> used_;
  std::unordered_set<const TensorInfo*> unused_input_scales_;
  NameList missing_;
  bool has_input_scales_ = false;  // of the trunk or the draft block, whichever is being bound
  NameList absent_input_scales_;
  std::int64_t experts_seen_ = 0;  // of all layers so far

  std::array<FormatTotal, 7> totals_{
      {{"BF16"}, {"F32"}, {"FP8"}, {"MXFP4"}, {"NVFP4"}, {"I64"}, {"scales"}}};
  unsigned linear_formats_ = 0, expert_formats_ = 0;  // bit per Format, of the current layer
  std::byte* small_copies_ = nullptr;                 // free part of the current chunk
  std::int64_t small_copies_left_ = 0;
};

}  // namespace dsv4
