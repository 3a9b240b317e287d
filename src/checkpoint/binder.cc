// binder.cc: one tensor at a time; see binder.h.
#include "checkpoint/binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "checkpoint/json_fields.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

constexpr std::size_t kMaxNamesShown = 6;
// Copies below this size share chunks: a Pro checkpoint has 140,000 scalars.
constexpr std::int64_t kCopyChunkBytes = 1 << 20;

std::string formats_text(unsigned formats) {
  std::vector<std::string_view> names;
  for (Format format :
       {Format::kBf16, Format::kF32, Format::kE4m3, Format::kMxfp4, Format::kNvfp4}) {
    if ((formats >> static_cast<unsigned>(format)) & 1u) names.push_back(to_string(format));
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

unsigned format_bit(const MatrixView& view) { return 1u << static_cast<unsigned>(view.format); }

void check_shape(const TensorInfo& info, const Shape& shape) {
  if (info.shape == shape) return;
  fail(ErrorCode::kBadCheckpoint, "tensor {} has shape {}; it must be {} by config.json", info.name,
       info.shape.to_string(), shape.to_string());
}

void check_dtype(const TensorInfo& info, DType dtype) {
  if (info.dtype == dtype) return;
  fail(ErrorCode::kBadCheckpoint, "tensor {} is {}; it must be {}", info.name,
       dtype_name(info.dtype), dtype_name(dtype));
}

void check_quant_block(const TensorInfo& info, std::string_view format, std::int64_t cols,
                       std::int64_t quant_block) {
  if (cols % quant_block == 0) return;
  fail(ErrorCode::kBadCheckpoint,
       "tensor {} is {} with {} inputs by config.json; they must be a multiple of {}", info.name,
       format, cols, quant_block);
}

}  // namespace

void Binder::NameList::add(const std::string& name) {
  if (first.size() < kMaxNamesShown) first.push_back(in_quotes(name));
  ++count;
}

std::string Binder::NameList::to_string() const {
  std::string text = fmt::format("{}", fmt::join(first, ", "));
  if (count > static_cast<std::int64_t>(first.size())) text += ", ...";
  return text;
}

// ---- accounting

std::optional<StoredTensor> Binder::take(const std::string& name, std::string_view label) {
  std::optional<StoredTensor> tensor = store_.find(name);
  if (!tensor) {
    missing_.add(name);
    return std::nullopt;
  }
  const bool is_first_use = used_.insert(tensor->info).second;
  DSV4_CHECK(is_first_use, "{} is bound twice", name);
  for (FormatTotal& total : totals_) {
    if (total.label != label) continue;
    ++total.tensors;
    total.bytes += tensor->info->size_bytes();
  }
  return tensor;
}

std::optional<StoredTensor> Binder::take_checked(const std::string& name, std::string_view label,
                                                 DType dtype, const Shape& shape) {
  std::optional<StoredTensor> tensor = take(name, label);
  if (tensor) {
    check_dtype(*tensor->info, dtype);
    check_shape(*tensor->info, shape);
  }
  return tensor;
}

// An FP32 of shape [] (ModelOpt) or [1] (others), finite and above 0. *data (may be null) points at
// it afterwards. Without data in the store the value is 1.
std::optional<float> Binder::take_scalar(const std::string& name, const float** data_out) {
  const std::optional<StoredTensor> tensor = take(name, "scales");
  if (!tensor) return std::nullopt;
  check_dtype(*tensor->info, DType::kF32);
  if (tensor->info->shape != Shape{1}) check_shape(*tensor->info, Shape{});
  const auto* value = static_cast<const float*>(data(*tensor));
  if (data_out != nullptr) *data_out = value;
  if (value == nullptr) return 1.0f;
  if (!(std::isfinite(*value) && *value > 0)) {
    fail(ErrorCode::kBadCheckpoint, "tensor {} is {}; it must be finite and above 0", name, *value);
  }
  return *value;
}

const void* Binder::data(const StoredTensor& tensor) {
  if (!store_.has_data() || tensor.bytes.empty()) return nullptr;
  if (tensor.aligned()) return tensor.bytes.data();
  const auto size = static_cast<std::int64_t>(tensor.bytes.size());
  std::byte* copy = allocate(size);
  std::memcpy(copy, tensor.bytes.data(), tensor.bytes.size());
  if (size >= kCopyChunkBytes) store_.release(tensor);
  return copy;
}

std::byte* Binder::allocate(std::int64_t bytes) {
  out_.report.copied_bytes += bytes;
  if (bytes >= kCopyChunkBytes) {
    return out_.copies.emplace_back(static_cast<std::size_t>(bytes)).data();
  }
  const std::int64_t rounded = round_up(bytes, 16);
  if (rounded > small_copies_left_) {
    small_copies_ = out_.copies.emplace_back(static_cast<std::size_t>(kCopyChunkBytes)).data();
    small_copies_left_ = kCopyChunkBytes;
  }
  std::byte* result = small_copies_;
  small_copies_ += rounded;
  small_copies_left_ -= rounded;
  return result;
}

// ---- matrices

MatrixView Binder::bind_plain(const StoredTensor& weight, const Shape& shape) {
  const TensorInfo& info = *weight.info;
  if (info.dtype != DType::kBF16 && info.dtype != DType::kF32) {
    fail(ErrorCode::kBadCheckpoint, "tensor {} is {}; it must be BF16 or F32", info.name,
         dtype_name(info.dtype));
  }
  check_shape(info, shape);
  MatrixView view;
  view.data = data(weight);
  view.format = info.dtype == DType::kBF16 ? Format::kBf16 : Format::kF32;
  view.rows = shape.rank() == 1 ? 1 : shape[0];
  view.cols = view.row_stride = shape[shape.rank() - 1];
  return view;
}

// `weight` cannot be used because its sibling `own` is missing: says so at once if the sibling of
// the other 4-bit format is there, since then the dtype or the siblings are mixed up.
void Binder::refuse_other_scale(const std::string& matrix, const StoredTensor& weight,
                                std::string_view format, std::string_view own,
                                std::string_view other) {
  if (store_.find(fmt::format("{}.{}", matrix, own)) ||
      !store_.find(fmt::format("{}.{}", matrix, other))) {
    return;
  }
  fail(ErrorCode::kBadCheckpoint,
       "tensor {}.weight is {}, which means {} with a sibling {}, but there is only a {}", matrix,
       dtype_name(weight.info->dtype), format, own, other);
}

// The three below complete `view`, which has rows and cols; a missing sibling leaves it incomplete
// and fails in finish().
MatrixView Binder::bind_fp8(const std::string& matrix, const StoredTensor& weight,
                            MatrixView view) {
  check_shape(*weight.info, {view.rows, view.cols});
  view.format = Format::kE4m3;
  view.block_rows = view.block_cols = kWeightTile;
  view.scale_stride = ceil_div(view.cols, kWeightTile);
  const Shape scale_shape{ceil_div(view.rows, kWeightTile), view.scale_stride};
  const std::optional<StoredTensor> scales = take(matrix + ".scale", "scales");
  if (!scales) return view;
  // Base models store FP32; all others E8M0.
  if (scales->info->dtype != DType::kF32) check_dtype(*scales->info, DType::kE8M0);
  check_shape(*scales->info, scale_shape);
  view.scale_dtype = scales->info->dtype;
  view.block_scales = data(*scales);
  return view;
}

MatrixView Binder::bind_mxfp4(const std::string& matrix, const StoredTensor& weight,
                              MatrixView view) {
  refuse_other_scale(matrix, weight, "MXFP4", "scale", "weight_scale");
  check_quant_block(*weight.info, "MXFP4", view.cols, kMxfp4QuantBlock);
  check_shape(*weight.info, {view.rows, view.cols / 2});
  view.format = Format::kMxfp4;
  view.block_cols = kMxfp4QuantBlock;
  view.scale_stride = view.cols / kMxfp4QuantBlock;
  view.scale_dtype = DType::kE8M0;
  const std::optional<StoredTensor> scales =
      take_checked(matrix + ".scale", "scales", DType::kE8M0, {view.rows, view.scale_stride});
  if (scales) view.block_scales = data(*scales);
  return view;
}

MatrixView Binder::bind_nvfp4(const std::string& matrix, const StoredTensor& weight,
                              MatrixView view) {
  refuse_other_scale(matrix, weight, "NVFP4", "weight_scale", "scale");
  check_quant_block(*weight.info, "NVFP4", view.cols, kNvfp4QuantBlock);
  check_shape(*weight.info, {view.rows, view.cols / 2});
  view.format = Format::kNvfp4;
  view.block_cols = kNvfp4QuantBlock;
  view.scale_stride = view.cols / kNvfp4QuantBlock;
  view.scale_dtype = DType::kE4M3;
  const std::optional<StoredTensor> scales = take_checked(
      matrix + ".weight_scale", "scales", DType::kE4M3, {view.rows, view.scale_stride});
  if (scales) view.block_scales = data(*scales);
  take_scalar(matrix + ".weight_scale_2", &view.global_scales);
  return view;
}

MatrixView Binder::bind_matrix(const std::string& matrix, std::int64_t rows, std::int64_t cols) {
  const std::string name = matrix + ".weight";
  MatrixView view;
  const std::optional<StoredTensor> found = store_.find(name);
  if (!found) {
    missing_.add(name);
    return view;
  }
  view.rows = rows;
  view.cols = view.row_stride = cols;
  switch (found->info->dtype) {
    case DType::kBF16:
    case DType::kF32:
      return bind_plain(*take(name, dtype_name(found->info->dtype)), {rows, cols});
    case DType::kE4M3:
      view.data = data(*take(name, "FP8"));
      return bind_fp8(matrix, *found, view);
    case DType::kI8:
      view.data = data(*take(name, "MXFP4"));
      return bind_mxfp4(matrix, *found, view);
    case DType::kU8:
      view.data = data(*take(name, "NVFP4"));
      return bind_nvfp4(matrix, *found, view);
    default:
      fail(ErrorCode::kBadCheckpoint,
           "tensor {} is {}; a matrix must be BF16, F32, F8_E4M3 (FP8), I8 (MXFP4) or U8 (NVFP4)",
           name, dtype_name(found->info->dtype));
  }
}

// ---- the visitor

void Binder::begin_layer(const std::string& name, bool) {
  out_.report.layers.emplace_back().name = name;
  linear_formats_ = expert_formats_ = 0;
}

void Binder::end_layer(const LayerWeights& layer) {
  LayerSummary& summary = out_.report.layers.back();
  summary.compress_ratio = layer.compress_ratio;
  summary.routed_by_hash = layer.router.by_hash;
  summary.linear_formats = formats_text(linear_formats_);
  summary.expert_formats = formats_text(expert_formats_);
}

void Binder::linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                    MatrixView& view) {
  view = bind_matrix(matrix, rows, cols);
  linear_formats_ |= format_bit(view);
  if (view.format != Format::kNvfp4) return;
  if (const auto scale = store_.find(matrix + ".input_scale")) {
    unused_input_scales_.insert(scale->info);
  }
}

void Binder::expert_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                           MatrixView& view, std::optional<float>& input_scale) {
  view = bind_matrix(matrix, rows, cols);
  expert_formats_ |= format_bit(view);
  if (view.format != Format::kNvfp4) return;
  const std::string name = matrix + ".input_scale";
  if (store_.find(name)) {
    has_input_scales_ = true;
    input_scale = take_scalar(name, nullptr);
  } else {
    absent_input_scales_.add(name);
  }
}

void Binder::check_shared_input(const std::string& expert, std::optional<float> of_gate,
                                std::optional<float> of_up) {
  if (!of_gate || !of_up || *of_gate == *of_up) return;
  fail(ErrorCode::kBadCheckpoint,
       "{}: w1.input_scale is {} and w3.input_scale is {}; they must be equal, because both take "
       "the same input",
       expert, *of_gate, *of_up);
}

void Binder::plain(const std::string& name, std::int64_t rows, std::int64_t cols,
                   MatrixView& view) {
  const auto found = store_.find(name);
  const auto weight = take(name, found ? dtype_name(found->info->dtype) : "BF16");
  if (weight) view = bind_plain(*weight, {rows, cols});
}

void Binder::norm(const std::string& name, std::int64_t size, MatrixView& view) {
  const auto found = store_.find(name);
  const auto weight = take(name, found ? dtype_name(found->info->dtype) : "BF16");
  if (weight) view = bind_plain(*weight, {size});
}

void Binder::f32_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                        MatrixView& view) {
  const auto weight = take_checked(name, "F32", DType::kF32, {rows, cols});
  if (weight) view = bind_plain(*weight, {rows, cols});
}

void Binder::f32(const std::string& name, const Shape& shape, const float*& values) {
  const auto tensor = take_checked(name, "F32", DType::kF32, shape);
  if (tensor) values = static_cast<const float*>(data(*tensor));
}

void Binder::hash_table(const std::string& name, std::int64_t vocab, std::int64_t experts_per_token,
                        const std::int32_t*& values) {
  const auto tensor = take_checked(name, "I64", DType::kI64, {vocab, experts_per_token});
  if (!tensor || !store_.has_data()) return;
  const int num_experts = out_.config.num_experts;
  const std::int64_t count = vocab * experts_per_token;
  auto* ids = reinterpret_cast<std::int32_t*>(
      allocate(count * static_cast<std::int64_t>(sizeof(std::int32_t))));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t id;
    std::memcpy(&id, tensor->bytes.data() + i * 8, sizeof(id));
    if (id < 0 || id >= num_experts) {
      fail(ErrorCode::kBadCheckpoint,
           "tensor {}: token {} is sent to expert {}; experts are 0 to {} (n_routed_experts)", name,
           i / experts_per_token, id, num_experts - 1);
    }
    ids[i] = static_cast<std::int32_t>(id);
  }
  store_.release(*tensor);
  values = ids;
}

void Binder::finish(std::string_view why_no_draft) {
  if (has_input_scales_ && absent_input_scales_.count > 0) {
    fail(ErrorCode::kBadCheckpoint,
         "{} NVFP4 expert matrices have no input_scale while others have one: {}; the checkpoint "
         "is damaged",
         absent_input_scales_.count, absent_input_scales_.to_string());
  }
  NameList unknown;
  for (const StoredTensor& tensor : store_.tensors()) {
    if (used_.count(tensor.info) > 0) continue;
    std::string_view reason;
    if (unused_input_scales_.count(tensor.info) > 0) {
      reason = "input scale of a linear whose inputs are not quantised to NVFP4";
    } else if (tensor.info->name.starts_with(kDraftPrefix)) {
      reason = why_no_draft;
    }
    if (reason.empty()) {
      unknown.add(tensor.info->name);
    } else {
      out_.report.unused.push_back({tensor.info->name, tensor.info->size_bytes(), reason});
    }
  }
  std::string faults;
  if (missing_.count > 0)
    faults = fmt::format("{} missing ({})", missing_.count, missing_.to_string());
  if (unknown.count > 0) {
    faults += fmt::format("{}{} unknown ({})", faults.empty() ? "" : ", ", unknown.count,
                          unknown.to_string());
  }
  if (!faults.empty()) {
    fail(ErrorCode::kBadCheckpoint, "the tensors do not fit config.json: {}", faults);
  }
  for (const FormatTotal& total : totals_) {
    if (total.tensors > 0) out_.report.totals.push_back(total);
  }
}

}  // namespace dsv4
