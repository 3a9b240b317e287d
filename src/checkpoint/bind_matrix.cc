// bind_matrix.cc: the Binder's matrices: what format one has, by its dtype and siblings, and the
// checks of each format.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/math.h"
#include "checkpoint/binder.h"
#include "numerics/bf16.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"

namespace dsv4 {
namespace {

void check_quant_block(const TensorInfo& info, std::string_view format, std::int64_t cols,
                       std::int64_t quant_block) {
  if (cols % quant_block == 0) return;
  fail(ErrorCode::kBadCheckpoint,
       "tensor {} is {} with {} inputs by config.json; they must be a multiple of {}", info.name,
       format, cols, quant_block);
}

// Weights need no such scales, but E8M0 bytes do look so when they are copied as numbers (2^-7 is
// byte 120): whole and near the exponent's bias of 127.
bool is_like_e8m0_byte(float scale) {
  return scale >= 96 && scale < 160 && scale == std::floor(scale);
}

void check_tile_scales(const TensorInfo& info, const float* scales, std::int64_t count) {
  std::int64_t bytes = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (!(std::isfinite(scales[i]) && scales[i] >= 0)) {
      fail(ErrorCode::kBadCheckpoint, "tensor {} has a scale {}; it must be finite and at least 0",
           info.name, scales[i]);
    }
    if (is_like_e8m0_byte(scales[i])) ++bytes;
  }
  if (bytes == count) {
    fail(ErrorCode::kBadCheckpoint,
         "tensor {}: all scales are whole numbers from 96 to 159, which are E8M0 exponent bytes "
         "stored as numbers (the first is {}); convert the checkpoint again",
         info.name, scales[0]);
  }
}

}  // namespace

// The first spelling that is there; a second one stays unknown.
std::optional<StoredTensor> Binder::take_tile_scales(const std::string& matrix) {
  for (std::string_view spelling : kTileScaleNames) {
    const std::string name = fmt::format("{}.{}", matrix, spelling);
    if (names_.find(name)) return take(name, "scales");
  }
  return take(fmt::format("{}.{}", matrix, kTileScaleNames[0]), "scales");
}

// An FP32 of shape [] (ModelOpt) or [1] (llm-compressor), finite and above 0, or 1 / it, which must
// be so too. *data_out (may be null) points at the value afterwards. Without data in the store the
// value is 1.
std::optional<float> Binder::take_scalar(const std::string& name, bool is_reciprocal,
                                         const float** data_out) {
  const std::optional<StoredTensor> tensor = take(name, "scales");
  if (!tensor) return std::nullopt;
  const TensorInfo& info = *tensor->info;
  check_dtype(info, DType::kF32);
  if (info.shape != Shape{1}) check_shape(info, Shape{});
  const auto* value = static_cast<const float*>(data(*tensor));
  if (value != nullptr) {
    const float decodes = is_reciprocal ? 1.0f / *value : *value;
    if (!(std::isfinite(*value) && *value > 0 && std::isfinite(decodes) && decodes > 0)) {
      fail(ErrorCode::kBadCheckpoint, "tensor {} is {}; it must be finite and above 0{}", info.name,
           *value, is_reciprocal ? ", as must be 1 / it" : "");
    }
    if (is_reciprocal) {
      auto* copy = reinterpret_cast<float*>(allocate(sizeof(float)));
      *copy = decodes;
      value = copy;
    }
  }
  if (data_out != nullptr) *data_out = value;
  return value == nullptr ? 1.0f : *value;
}

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

// The same packing comes under two labels, I8 (MXFP4) and U8 (NVFP4), and nothing in the codes
// tells which it is: a label beside the other format's scales is refused.
void Binder::refuse_other_format(const std::string& matrix, const StoredTensor& weight) {
  const auto scale = names_.find(matrix + ".scale");
  const auto weight_scale = names_.find(matrix + ".weight_scale");
  if (weight.info->dtype == DType::kU8 && !weight_scale && scale) {
    fail(ErrorCode::kBadCheckpoint,
         "tensor {} is U8, which means NVFP4 with a sibling weight_scale, but there is only a {}",
         weight.info->name, scale->info->name);
  }
  if (weight.info->dtype == DType::kI8 && !scale && weight_scale &&
      weight_scale->info->dtype != DType::kE8M0) {
    fail(ErrorCode::kBadCheckpoint,
         "tensor {} is I8, which means MXFP4 with a sibling scale in F8_E8M0, but there is only a "
         "{} in {}",
         weight.info->name, weight_scale->info->name, dtype_name(weight_scale->info->dtype));
  }
}

// FP32 or BF16 scales of an FP8 matrix, as FP32.
const void* Binder::tile_scales(const StoredTensor& tensor, DType& dtype) {
  dtype = DType::kF32;
  const auto count = tensor.info->shape.num_elements();
  if (!store_.has_data() || count == 0) return nullptr;
  const void* stored = data(tensor);
  const auto* scales = static_cast<const float*>(stored);
  if (tensor.info->dtype == DType::kBF16) {
    const auto* bits = static_cast<const std::uint16_t*>(stored);
    auto* wide =
        reinterpret_cast<float*>(allocate(count * static_cast<std::int64_t>(sizeof(float))));
    for (std::int64_t i = 0; i < count; ++i) wide[i] = decode_bf16(bits[i]);
    scales = wide;
  }
  check_tile_scales(*tensor.info, scales, count);
  return scales;
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
  const std::optional<StoredTensor> scales = take_tile_scales(matrix);
  if (!scales) return view;
  check_shape(*scales->info, scale_shape);
  // Base models store FP32, llm-compressor BF16, all others E8M0.
  if (scales->info->dtype == DType::kF32 || scales->info->dtype == DType::kBF16) {
    view.block_scales = tile_scales(*scales, view.scale_dtype);
  } else {
    check_dtype(*scales->info, DType::kE8M0);
    view.scale_dtype = DType::kE8M0;
    view.block_scales = data(*scales);
  }
  return view;
}

MatrixView Binder::bind_mxfp4(const std::string& matrix, const StoredTensor& weight,
                              MatrixView view) {
  refuse_other_format(matrix, weight);
  check_quant_block(*weight.info, "MXFP4", view.cols, kMxfp4QuantBlock);
  check_shape(*weight.info, {view.rows, view.cols / 2});
  view.format = Format::kMxfp4;
  view.block_cols = kMxfp4QuantBlock;
  view.scale_stride = view.cols / kMxfp4QuantBlock;
  view.scale_dtype = DType::kE8M0;
  const std::optional<StoredTensor> scales = take_tile_scales(matrix);
  if (!scales) return view;
  check_dtype(*scales->info, DType::kE8M0);
  check_shape(*scales->info, {view.rows, view.scale_stride});
  view.block_scales = data(*scales);
  return view;
}

MatrixView Binder::bind_nvfp4(const std::string& matrix, const StoredTensor& weight,
                              const Nvfp4Names& names, MatrixView view) {
  refuse_other_format(matrix, weight);
  check_quant_block(*weight.info, "NVFP4", view.cols, kNvfp4QuantBlock);
  check_shape(*weight.info, {view.rows, view.cols / 2});
  view.format = Format::kNvfp4;
  view.block_cols = kNvfp4QuantBlock;
  view.scale_stride = view.cols / kNvfp4QuantBlock;
  view.scale_dtype = DType::kE4M3;
  const std::optional<StoredTensor> scales =
      take_checked(fmt::format("{}.{}", matrix, names.block_scales), "scales", DType::kE4M3,
                   {view.rows, view.scale_stride});
  if (scales) view.block_scales = data(*scales);
  take_scalar(fmt::format("{}.{}", matrix, names.global_scale), names.is_reciprocal,
              &view.global_scales);
  return view;
}

const Nvfp4Names& Binder::nvfp4_names(const std::string& matrix) const {
  const auto packed = names_.find(fmt::format("{}.{}", matrix, kCompressedTensorsNames.codes));
  return packed ? kCompressedTensorsNames : kModelOptNames;
}

MatrixView Binder::bind_matrix(const std::string& matrix, std::int64_t rows, std::int64_t cols) {
  const Nvfp4Names& nvfp4 = nvfp4_names(matrix);
  const std::string name = fmt::format("{}.{}", matrix, nvfp4.codes);
  MatrixView view;
  const std::optional<StoredTensor> found = names_.find(name);
  if (!found) {
    missing_.add(name);
    return view;
  }
  const DType dtype = found->info->dtype;
  if (const auto other = names_.find(matrix + ".weight"); other && other->info != found->info) {
    fail(ErrorCode::kBadCheckpoint, "tensors {} and {} are both there; keep one", found->info->name,
         other->info->name);
  }
  if (nvfp4.is_reciprocal && dtype != DType::kU8) {
    fail(ErrorCode::kUnsupported,
         "tensor {} is {}: of compressed-tensors' packed formats only NVFP4 (U8) is supported",
         found->info->name, dtype_name(dtype));
  }
  view.rows = rows;
  view.cols = view.row_stride = cols;
  switch (dtype) {
    case DType::kBF16:
    case DType::kF32:
      return bind_plain(*take(name, dtype_name(dtype)), {rows, cols});
    case DType::kE4M3:
      view.data = data(*take(name, "FP8"));
      return bind_fp8(matrix, *found, view);
    case DType::kI8:
      view.data = data(*take(name, "MXFP4"));
      return bind_mxfp4(matrix, *found, view);
    case DType::kU8:
      view.data = data(*take(name, "NVFP4"));
      return bind_nvfp4(matrix, *found, nvfp4, view);
    default:
      fail(ErrorCode::kBadCheckpoint,
           "tensor {} is {}; a matrix must be BF16, F32, F8_E4M3 (FP8), I8 (MXFP4) or U8 (NVFP4)",
           found->info->name, dtype_name(dtype));
  }
}

}  // namespace dsv4
