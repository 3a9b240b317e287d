// binder.cc: the accounts, and the entries of the table; see binder.h. Matrices: bind_matrix.cc.
#include "checkpoint/binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstring>
#include <iterator>

#include "base/check.h"
#include "base/error.h"
#include "base/math.h"
#include "checkpoint/json_fields.h"
#include "numerics/bf16.h"

namespace dsv4 {
namespace {

constexpr std::size_t kMaxNamesShown = 6;
// Copies below this size share chunks: a Pro checkpoint has 140,000 scalars.
constexpr std::int64_t kCopyChunkBytes = 1 << 20;
// Tensors from one call of the progress to the next.
constexpr std::size_t kProgressTensors = 256;

std::string formats_text(unsigned formats) {
  std::vector<std::string_view> names;
  for (Format format :
       {Format::kBf16, Format::kF32, Format::kE4m3, Format::kMxfp4, Format::kNvfp4}) {
    if ((formats >> static_cast<unsigned>(format)) & 1u) names.push_back(to_string(format));
  }
  return fmt::format("{}", fmt::join(names, "+"));
}

unsigned format_bit(const MatrixView& view) { return 1u << static_cast<unsigned>(view.format); }

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

// ---- accounting

void Binder::report_progress(std::int64_t tensors_done) {
  if (!progress_) return;
  progress_({.stage = LoadProgress::Stage::kTensors,
             .done = tensors_done,
             .total = std::ssize(names_.entries())});
}

std::optional<StoredTensor> Binder::take(const std::string& name, std::string_view label) {
  std::optional<StoredTensor> tensor = names_.find(name);
  if (!tensor) {
    missing_.add(name);
    return std::nullopt;
  }
  const bool is_first_use = used_.insert(tensor->info).second;
  DSV4_CHECK(is_first_use, "{} is bound twice", name);
  if (used_.size() % kProgressTensors == 0) report_progress(std::ssize(used_));
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

const void* Binder::data(const StoredTensor& tensor) {
  if (!store_.has_data() || tensor.bytes.empty()) return nullptr;
  if (tensor.aligned()) return tensor.bytes.data();
  const auto size = static_cast<std::int64_t>(tensor.bytes.size());
  std::byte* copy = allocate(size);
  std::memcpy(copy, tensor.bytes.data(), tensor.bytes.size());
  if (size >= kCopyChunkBytes) store_.release(tensor);
  return copy;
}

// For the F32 and BF16 parameters that are small. A NaN in a router's bias or in the indexer's
// weights_proj, or an infinite sink, would only choose other experts or rows or empty a head, and
// no logit would tell. Null `values`: no data.
void Binder::check_finite(const StoredTensor& tensor, const void* values) const {
  if (values == nullptr) return;
  const bool is_bf16 = tensor.info->dtype == DType::kBF16;
  const std::int64_t count = tensor.info->shape.num_elements();
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = is_bf16 ? decode_bf16(static_cast<const std::uint16_t*>(values)[i])
                                : static_cast<const float*>(values)[i];
    if (std::isfinite(value)) continue;
    fail(ErrorCode::kBadCheckpoint,
         "tensor {} in {}: value {} is {}; it must be finite, so the checkpoint is damaged",
         tensor.info->name,
         store_.shard_paths()[static_cast<std::size_t>(tensor.shard)].filename().string(), i,
         value);
  }
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

// ---- the visitor

void Binder::begin_layer(const std::string& name, bool is_draft) {
  if (is_draft) check_input_scales();  // of the trunk, which ends here
  out_.report.layers.emplace_back().name = name;
  linear_formats_ = expert_formats_ = 0;
}

void Binder::end_layer(const LayerWeights& layer) {
  LayerSummary& summary = out_.report.layers.back();
  summary.compress_ratio = layer.compress_ratio;
  summary.routed_by_hash = layer.router.by_hash;
  summary.num_experts = layer.num_experts;
  summary.linear_formats = formats_text(linear_formats_);
  summary.expert_formats = formats_text(expert_formats_);
}

// What the tensors say, if there can be so many experts: a layer's memory must not exceed what its
// tensors pay for. Otherwise the config's, by which the router's shape is then refused.
int Binder::num_experts(const std::string& router, int by_config) {
  const auto found = names_.find(router);
  if (!found || found->info->shape.rank() != 2) return by_config;
  const std::int64_t rows = found->info->shape[0];
  const auto tensors = static_cast<std::int64_t>(names_.entries().size());
  if (rows < out_.config.experts_per_token || rows > tensors / 3 - experts_seen_) return by_config;
  experts_seen_ += rows;
  return static_cast<int>(rows);
}

void Binder::linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                    MatrixView& view) {
  view = bind_matrix(matrix, rows, cols);
  linear_formats_ |= format_bit(view);
  if (view.format != Format::kNvfp4) return;
  const std::string_view input_scale = nvfp4_names(matrix).input_scale;
  if (const auto scale = names_.find(fmt::format("{}.{}", matrix, input_scale))) {
    unused_input_scales_.insert(scale->info);
  }
}

void Binder::plain_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                          MatrixView& view) {
  const unsigned formats = linear_formats_;
  linear(matrix, rows, cols, view);
  if (is_quantized(view.format)) return;
  linear_formats_ = formats;
  if (!matrix.ends_with(".indexer.weights_proj")) return;
  if (const auto weight = names_.find(matrix + ".weight")) check_finite(*weight, view.data);
}

void Binder::expert_linear(const std::string& matrix, std::int64_t rows, std::int64_t cols,
                           MatrixView& view, std::optional<float>& input_scale) {
  view = bind_matrix(matrix, rows, cols);
  expert_formats_ |= format_bit(view);
  if (view.format != Format::kNvfp4) return;
  const Nvfp4Names& names = nvfp4_names(matrix);
  const std::string name = fmt::format("{}.{}", matrix, names.input_scale);
  if (names_.find(name)) {
    has_input_scales_ = true;
    input_scale = take_scalar(name, names.is_reciprocal, nullptr);
  } else {
    absent_input_scales_.add(name);
  }
}

void Binder::check_shared_input(const std::string& expert, std::optional<float> of_gate,
                                std::optional<float> of_up) {
  if (!of_gate || !of_up || *of_gate == *of_up) return;
  fail(
      ErrorCode::kBadCheckpoint,
      "{}: the input scale of w1 is {} and that of w3 is {}; they must be equal, because both take "
      "the same input",
      expert, *of_gate, *of_up);
}

void Binder::plain(const std::string& name, std::int64_t rows, std::int64_t cols,
                   MatrixView& view) {
  const auto found = names_.find(name);
  const auto weight = take(name, found ? dtype_name(found->info->dtype) : "BF16");
  if (weight) view = bind_plain(*weight, {rows, cols});
}

void Binder::norm(const std::string& name, std::int64_t size, MatrixView& view) {
  const auto found = names_.find(name);
  const auto weight = take(name, found ? dtype_name(found->info->dtype) : "BF16");
  if (!weight) return;
  view = bind_plain(*weight, {size});
  check_finite(*weight, view.data);
}

void Binder::f32_matrix(const std::string& name, std::int64_t rows, std::int64_t cols,
                        MatrixView& view) {
  const auto weight = take_checked(name, "F32", DType::kF32, {rows, cols});
  if (!weight) return;
  view = bind_plain(*weight, {rows, cols});
  check_finite(*weight, view.data);
}

void Binder::f32(const std::string& name, const Shape& shape, const float*& values) {
  const auto tensor = take_checked(name, "F32", DType::kF32, shape);
  if (!tensor) return;
  values = static_cast<const float*>(data(*tensor));
  check_finite(*tensor, values);
}

void Binder::hash_table(const std::string& name, std::int64_t vocab, std::int64_t experts_per_token,
                        int num_experts, const std::int32_t*& values) {
  const auto tensor = take_checked(name, "I64", DType::kI64, {vocab, experts_per_token});
  if (!tensor || !store_.has_data()) return;
  const std::int64_t count = vocab * experts_per_token;
  auto* ids = reinterpret_cast<std::int32_t*>(
      allocate(count * static_cast<std::int64_t>(sizeof(std::int32_t))));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t id;
    std::memcpy(&id, tensor->bytes.data() + i * 8, sizeof(id));
    if (id < 0 || id >= num_experts) {
      fail(ErrorCode::kBadCheckpoint,
           "tensor {}: token {} is sent to expert {}; the layer's experts are 0 to {}",
           tensor->info->name, i / experts_per_token, id, num_experts - 1);
    }
    ids[i] = static_cast<std::int32_t>(id);
  }
  store_.release(*tensor);
  values = ids;
}

void Binder::check_input_scales() {
  if (has_input_scales_ && absent_input_scales_.count > 0) {
    fail(ErrorCode::kBadCheckpoint,
         "{} NVFP4 expert matrices have no input_scale while others have one: {}; the checkpoint "
         "is damaged",
         absent_input_scales_.count, absent_input_scales_.to_string());
  }
  has_input_scales_ = false;
  absent_input_scales_ = {};
}

void Binder::finish(std::string_view why_no_draft) {
  check_input_scales();
  NameList unknown;
  for (const NamedTensors::Entry& entry : names_.entries()) {
    const TensorInfo& info = *entry.tensor.info;
    if (used_.count(&info) > 0) continue;
    std::string_view reason;
    if (unused_input_scales_.count(&info) > 0) {
      reason = "input scale of a linear whose inputs are not quantised to NVFP4";
    } else if (is_draft_copy(entry.official)) {
      reason = "the draft block's copy of the embedding or the head";
    } else if (entry.official.starts_with(kDraftPrefix)) {
      reason = why_no_draft;
    }
    if (reason.empty()) {
      unknown.add(info.name);
    } else {
      out_.report.unused.push_back({info.name, info.size_bytes(), reason});
    }
  }
  std::string faults;
  if (missing_.count > 0)
    faults = fmt::format("{} missing ({}{})", missing_.count, missing_.to_string(),
                         names_.is_renamed() ? "; in DeepSeek's spelling" : "");
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
  report_progress(std::ssize(names_.entries()));
}

}  // namespace dsv4
