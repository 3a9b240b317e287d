// Encoding of test matrices, and their way to a device and back.
#include "testing/test_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "numerics/fp8_block.h"
#include "numerics/mxfp4.h"
#include "numerics/nvfp4.h"
#include "tensor/matrix_codec.h"

namespace dsv4::testing {
namespace {

std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count); }

// Poison between row_bytes and stride_bytes of every row that is not poison any more.
std::int64_t count_damage(const std::vector<std::uint8_t>& data, std::int64_t row_bytes,
                          std::int64_t stride_bytes) {
  if (stride_bytes == 0) return 0;
  std::int64_t damaged = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const bool is_padding = static_cast<std::int64_t>(i) % stride_bytes >= row_bytes;
    damaged += is_padding && data[i] != kPoisonByte ? 1 : 0;
  }
  return damaged;
}

float largest_magnitude(const std::vector<float>& values, std::int64_t stride,
                        std::int64_t row_begin, std::int64_t row_end, std::int64_t col_begin,
                        std::int64_t col_end) {
  float largest = 0;
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    largest = std::max(largest, amax(values.data() + r * stride + col_begin, col_end - col_begin));
  }
  return largest;
}

// The scale of an E4M3 tile, written to `to`; returns its value.
float store_tile_scale(float tile_amax, DType scale_dtype, std::uint8_t* to) {
  if (scale_dtype == DType::kE8M0) {
    *to = e4m3_block_exponent(tile_amax);
    return decode_e8m0(*to);
  }
  const float tile_scale = tile_amax > 0 ? tile_amax / kE4m3Max : 1.0f;
  std::memcpy(to, &tile_scale, sizeof(tile_scale));
  return tile_scale;
}

}  // namespace

MatrixSpec MatrixSpec::padded(std::int64_t elements) const {
  MatrixSpec spec = *this;
  spec.name += "_padded";
  spec.row_padding = elements;
  spec.scale_padding = is_quantized(format) ? 3 : 0;
  return spec;
}

MatrixSpec f32_spec() { return {}; }
MatrixSpec bf16_spec() {
  MatrixSpec spec;
  spec.name = "bf16";
  spec.format = Format::kBf16;
  return spec;
}
MatrixSpec fp8_spec(std::int64_t block_rows, std::int64_t block_cols, DType scale_dtype) {
  MatrixSpec spec;
  spec.name = fmt::format("fp8_{}x{}_{}", block_rows, block_cols, dtype_name(scale_dtype));
  spec.format = Format::kE4m3;
  spec.scale_dtype = scale_dtype;
  spec.block_rows = block_rows;
  spec.block_cols = block_cols;
  return spec;
}
MatrixSpec mxfp4_spec() {
  MatrixSpec spec;
  spec.name = "mxfp4";
  spec.format = Format::kMxfp4;
  spec.block_cols = kMxfp4QuantBlock;
  return spec;
}
MatrixSpec nvfp4_spec(bool row_global_scales) {
  MatrixSpec spec;
  spec.name = row_global_scales ? "nvfp4_row_globals" : "nvfp4";
  spec.format = Format::kNvfp4;
  spec.scale_dtype = DType::kE4M3;
  spec.block_cols = kNvfp4QuantBlock;
  spec.row_global_scales = row_global_scales;
  return spec;
}

std::vector<MatrixSpec> weight_specs() {
  return {f32_spec(),
          bf16_spec(),
          fp8_spec(kWeightTile, kWeightTile, DType::kE8M0),
          fp8_spec(kWeightTile, kWeightTile, DType::kF32),
          mxfp4_spec(),
          nvfp4_spec()};
}
std::vector<MatrixSpec> activation_specs() {
  return {f32_spec(), bf16_spec(), fp8_spec(1, kActivationQuantBlock, DType::kE8M0),
          nvfp4_spec(true)};
}

HostMatrix::HostMatrix(const MatrixSpec& matrix_spec, std::int64_t num_rows, std::int64_t num_cols)
    : spec(matrix_spec),
      rows(num_rows),
      cols(num_cols),
      row_stride(num_cols + matrix_spec.row_padding),
      scale_stride(is_quantized(matrix_spec.format)
                       ? ceil_div(num_cols, matrix_spec.block_cols) + matrix_spec.scale_padding
                       : 0),
      data(bytes(num_rows * data_bytes(matrix_spec.format, row_stride)), kPoisonByte),
      block_scales(bytes(ceil_div(num_rows, matrix_spec.block_rows) * scale_stride *
                         dtype_bytes(matrix_spec.scale_dtype)),
                   kPoisonByte) {
  if (spec.format != Format::kNvfp4) return;
  const float poison = f32_from_bits(0xFFFFFFFFu);
  global_scales.assign(spec.row_global_scales ? bytes(rows) : 1, poison);
}

HostMatrix::HostMatrix(const MatrixSpec& matrix_spec, std::int64_t num_rows, std::int64_t num_cols,
                       const std::vector<float>& values)
    : HostMatrix(matrix_spec, num_rows, num_cols) {
  DSV4_CHECK(static_cast<std::int64_t>(values.size()) == rows * cols, "{} values for {} x {}",
             values.size(), rows, cols);
  encode(values);
}

void HostMatrix::encode(const std::vector<float>& values) {
  if (!is_quantized(spec.format)) {
    for (std::int64_t r = 0; r < rows; ++r) {
      store_matrix_row(mutable_view(), r, values.data() + r * cols);
    }
    return;
  }
  if (spec.format == Format::kNvfp4) {
    const std::int64_t extent = spec.row_global_scales ? 1 : rows;
    for (std::size_t i = 0; i < global_scales.size(); ++i) {
      const auto begin = static_cast<std::int64_t>(i) * extent;
      global_scales[i] =
          nvfp4_global_scale(largest_magnitude(values, cols, begin, begin + extent, 0, cols));
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    std::uint8_t* codes = data.data() + r * data_bytes(spec.format, row_stride);
    for (std::int64_t c = 0; c < cols; c += spec.block_cols) {
      const std::int64_t col_end = std::min(c + spec.block_cols, cols);
      const std::int64_t scale_idx = r / spec.block_rows * scale_stride + c / spec.block_cols;
      const float* x = values.data() + r * cols + c;
      std::uint8_t* block_codes = codes + data_bytes(spec.format, c);
      if (spec.format == Format::kMxfp4) {
        block_scales[bytes(scale_idx)] = encode_mxfp4_block(x, block_codes);
        continue;
      }
      if (spec.format == Format::kNvfp4) {
        const float global_scale = global_scales[spec.row_global_scales ? bytes(r) : 0];
        block_scales[bytes(scale_idx)] = encode_nvfp4_block(x, global_scale, block_codes);
        continue;
      }
      const std::int64_t tile_begin = r / spec.block_rows * spec.block_rows;
      const float block_scale = store_tile_scale(
          largest_magnitude(values, cols, tile_begin, std::min(tile_begin + spec.block_rows, rows),
                            c, col_end),
          spec.scale_dtype, block_scales.data() + scale_idx * dtype_bytes(spec.scale_dtype));
      for (std::int64_t k = c; k < col_end; ++k) codes[k] = encode_e4m3(x[k - c] / block_scale);
    }
  }
}

MutableMatrixView HostMatrix::view_on(std::uint8_t* other_data, std::uint8_t* other_block_scales,
                                      float* other_global_scales) const {
  MutableMatrixView view;
  view.data = other_data;
  view.format = spec.format;
  view.rows = rows;
  view.cols = cols;
  view.row_stride = row_stride;
  if (is_quantized(spec.format)) {
    view.block_scales = other_block_scales;
    view.scale_dtype = spec.scale_dtype;
    view.block_rows = spec.block_rows;
    view.block_cols = spec.block_cols;
    view.scale_stride = scale_stride;
  }
  if (spec.format == Format::kNvfp4) {
    view.global_scales = other_global_scales;
    view.global_scale_stride = spec.row_global_scales ? 1 : 0;
  }
  return view;
}

MatrixView HostMatrix::view() const {
  // The const view that this becomes keeps the promise of the cast.
  return const_cast<HostMatrix*>(this)->mutable_view();
}
MutableMatrixView HostMatrix::mutable_view() {
  return view_on(data.data(), block_scales.data(), global_scales.data());
}

std::vector<float> HostMatrix::values() const {
  std::vector<float> result(bytes(rows * cols));
  for (std::int64_t r = 0; r < rows; ++r) decode_matrix_row(view(), r, result.data() + r * cols);
  return result;
}

HostMatrix HostMatrix::row(std::int64_t row_idx) const {
  DSV4_CHECK(spec.block_rows == 1);
  HostMatrix one(spec, 1, cols);
  const auto copy_row = [row_idx](const std::vector<std::uint8_t>& from,
                                  std::vector<std::uint8_t>& to) {
    const auto begin = from.begin() + row_idx * static_cast<std::ptrdiff_t>(to.size());
    std::copy(begin, begin + static_cast<std::ptrdiff_t>(to.size()), to.begin());
  };
  copy_row(data, one.data);
  copy_row(block_scales, one.block_scales);
  if (!global_scales.empty()) {
    one.global_scales = {global_scales[spec.row_global_scales ? bytes(row_idx) : 0]};
  }
  return one;
}

std::int64_t HostMatrix::damaged_padding_bytes() const {
  std::int64_t damaged =
      count_damage(data, data_bytes(spec.format, cols), data_bytes(spec.format, row_stride));
  if (is_quantized(spec.format)) {
    const std::int64_t scale_bytes = dtype_bytes(spec.scale_dtype);
    damaged += count_damage(block_scales, scale_bytes * ceil_div(cols, spec.block_cols),
                            scale_bytes * scale_stride);
  }
  return damaged;
}

DeviceMatrix::DeviceMatrix(Backend& backend, HostMatrix host)
    : host_(std::move(host)),
      data_(backend, host_.data),
      block_scales_(backend, host_.block_scales),
      global_scales_(backend, host_.global_scales) {}

MutableMatrixView DeviceMatrix::mutable_view() const {
  return host_.view_on(data_.data(), block_scales_.data(), global_scales_.data());
}

MatrixView DeviceMatrix::view() const { return mutable_view(); }

void DeviceMatrix::poison() {
  data_.poison();
  block_scales_.poison();
  global_scales_.poison();
}

HostMatrix DeviceMatrix::read() const {
  HostMatrix result = host_;
  result.data = data_.read();
  result.block_scales = block_scales_.read();
  result.global_scales = global_scales_.read();
  EXPECT_EQ(result.damaged_padding_bytes(), 0) << "padding of a matrix was written to";
  return result;
}

}  // namespace dsv4::testing
