// Rows of every format against their definition, with padding between rows that is NaN.
#include "tensor/matrix_codec.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/math.h"

namespace dsv4 {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float e2m1_value(int code) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kValues[code & 7] : kValues[code & 7];
}
float e4m3_value(int code) {
  const int exponent = (code >> 3) & 15;
  const auto mantissa = static_cast<float>(code & 7);
  const float magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1 + mantissa / 8, exponent - 7);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// Codes and scales of a quantised matrix in strides wider than needed; what lies between is NaN
// where the format has one.
struct QuantizedMatrix {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scale_bytes;
  std::vector<float> scale_floats;
  std::vector<float> global_scales;
  MatrixView view;
};

QuantizedMatrix make_matrix(Format format, DType scale_dtype, std::int64_t rows, std::int64_t cols,
                            std::int64_t block_rows, std::int64_t block_cols) {
  std::mt19937_64 generator(static_cast<std::uint64_t>(rows * 1000 + cols));
  QuantizedMatrix m;
  const std::int64_t row_stride = round_up(cols, 2) + 32;
  const std::int64_t scale_cols = ceil_div(cols, block_cols);
  const std::int64_t scale_rows = ceil_div(rows, block_rows);
  const std::int64_t scale_stride = scale_cols + 3;
  m.codes.assign(static_cast<std::size_t>(rows * data_bytes(format, row_stride)), 0x7F);
  m.scale_bytes.assign(static_cast<std::size_t>(scale_rows * scale_stride), 0xFF);
  m.scale_floats.assign(static_cast<std::size_t>(scale_rows * scale_stride), kNan);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < data_bytes(format, cols); ++i) {
      auto code = static_cast<std::uint8_t>(generator());
      if (format == Format::kE4m3 && (code & 0x7F) == 0x7F) code = 0x38;
      m.codes[r * data_bytes(format, row_stride) + i] = code;
    }
  }
  for (std::int64_t r = 0; r < scale_rows; ++r) {
    for (std::int64_t i = 0; i < scale_cols; ++i) {
      m.scale_bytes[r * scale_stride + i] = static_cast<std::uint8_t>(100 + generator() % 20);
      m.scale_floats[r * scale_stride + i] = 0.001f * static_cast<float>(1 + generator() % 99);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r)
    m.global_scales.push_back(0.37f * static_cast<float>(r + 1));
  m.view = {m.codes.data(), format, rows, cols, row_stride};
  m.view.block_scales = scale_dtype == DType::kF32 ? static_cast<const void*>(m.scale_floats.data())
                                                   : m.scale_bytes.data();
  m.view.scale_dtype = scale_dtype;
  m.view.block_rows = block_rows;
  m.view.block_cols = block_cols;
  m.view.scale_stride = scale_stride;
  if (format == Format::kNvfp4) {
    m.view.global_scales = m.global_scales.data();
    m.view.global_scale_stride = 1;
  }
  return m;
}

// One element from the definitions of matrix_view.h.
float expected_element(const QuantizedMatrix& m, std::int64_t r, std::int64_t k) {
  const MatrixView& v = m.view;
  const std::int64_t scale_idx = r / v.block_rows * v.scale_stride + k / v.block_cols;
  float block_scale = 0;
  if (v.scale_dtype == DType::kF32) block_scale = m.scale_floats[scale_idx];
  if (v.scale_dtype == DType::kE8M0) block_scale = std::ldexp(1.0f, m.scale_bytes[scale_idx] - 127);
  if (v.scale_dtype == DType::kE4M3) block_scale = e4m3_value(m.scale_bytes[scale_idx]);
  if (v.format == Format::kE4m3) return e4m3_value(m.codes[r * v.row_stride + k]) * block_scale;
  const int pair = m.codes[(r * v.row_stride + k) / 2];
  const float value = e2m1_value(k % 2 == 0 ? pair & 15 : pair >> 4) * block_scale;
  return v.format == Format::kNvfp4 ? value * v.global_scales[r * v.global_scale_stride] : value;
}

void expect_every_row(const QuantizedMatrix& m) {
  std::vector<float> row(static_cast<std::size_t>(m.view.cols) + 1, 123.0f);
  for (std::int64_t r = 0; r < m.view.rows; ++r) {
    decode_matrix_row(m.view, r, row.data());
    for (std::int64_t k = 0; k < m.view.cols; ++k) {
      ASSERT_EQ(row[k], expected_element(m, r, k)) << "row " << r << " column " << k;
    }
    ASSERT_EQ(row.back(), 123.0f) << "written past the row";
  }
}

TEST(MatrixCodec, PlainRowsRespectTheStride) {
  const std::vector<float> f32 = {1, 2, kNan, 3, 4, kNan};
  const MatrixView m{f32.data(), Format::kF32, 2, 2, 3};
  float row[2];
  decode_matrix_row(m, 1, row);
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 4);

  const std::vector<std::uint16_t> bf16 = {0x3F80, 0xC000, 0x7FC0, 0x0001, 0x7F80, 0x7FC0};
  const MatrixView b{bf16.data(), Format::kBf16, 2, 2, 3};
  decode_matrix_row(b, 0, row);
  EXPECT_EQ(row[0], 1.0f);
  EXPECT_EQ(row[1], -2.0f);
  decode_matrix_row(b, 1, row);
  EXPECT_EQ(row[0], 0x1p-133f);
  EXPECT_EQ(row[1], std::numeric_limits<float>::infinity());
}

TEST(MatrixCodec, Fp8TilesThatEndShortInBothDirections) {
  for (DType scale_dtype : {DType::kE8M0, DType::kF32}) {
    expect_every_row(make_matrix(Format::kE4m3, scale_dtype, 131, 300, 128, 128));
    expect_every_row(make_matrix(Format::kE4m3, scale_dtype, 128, 128, 128, 128));
    expect_every_row(make_matrix(Format::kE4m3, scale_dtype, 3, 129, 1, 128));
    expect_every_row(make_matrix(Format::kE4m3, scale_dtype, 33, 31, 32, 32));
    expect_every_row(make_matrix(Format::kE4m3, scale_dtype, 1, 1, 128, 128));
  }
}

TEST(MatrixCodec, Mxfp4RowsOfEveryNumberOfBlocks) {
  for (const std::int64_t cols : {32, 64, 2880}) {
    expect_every_row(make_matrix(Format::kMxfp4, DType::kE8M0, 3, cols, 1, 32));
  }
}

TEST(MatrixCodec, Nvfp4GlobalScaleOfTheMatrixAndOfEachRow) {
  for (const std::int64_t cols : {16, 48, 2880}) {
    QuantizedMatrix m = make_matrix(Format::kNvfp4, DType::kE4M3, 5, cols, 1, 16);
    expect_every_row(m);
    m.view.global_scale_stride = 0;
    expect_every_row(m);
  }
}

// (code * block scale) is exact and rounds once with the global scale; another order rounds twice.
TEST(MatrixCodec, Nvfp4RoundsOnce) {
  for (int scale_code = 1; scale_code < 127; ++scale_code) {
    const std::vector<std::uint8_t> codes(8, 0x53);  // 1.5 and 3
    const auto scale = static_cast<std::uint8_t>(scale_code);
    const float global_scale = 0.1f * static_cast<float>(scale_code);
    const MatrixView m{
        codes.data(), Format::kNvfp4, 1, 16, 16, &scale, DType::kE4M3, 1, 16, 1, &global_scale, 0};
    float row[16];
    decode_matrix_row(m, 0, row);
    const double exact = 1.5 * e4m3_value(scale_code) * double{global_scale};
    ASSERT_EQ(row[0], static_cast<float>(exact)) << scale_code;
    ASSERT_EQ(row[1], static_cast<float>(2 * exact)) << scale_code;
  }
}

TEST(MatrixCodec, NanScalesShowAndDoNotSpread) {
  QuantizedMatrix m = make_matrix(Format::kE4m3, DType::kE8M0, 2, 256, 1, 128);
  m.scale_bytes[1] = 0xFF;
  std::vector<float> row(256);
  decode_matrix_row(m.view, 0, row.data());
  EXPECT_FALSE(std::isnan(row[127]));
  EXPECT_TRUE(std::isnan(row[128]) && std::isnan(row[255]));
  decode_matrix_row(m.view, 1, row.data());
  for (float value : row) EXPECT_FALSE(std::isnan(value));
}

TEST(MatrixCodec, StoresPlainRowsInTheirStrideAndNothingElse) {
  const float x[2] = {1.00390625f, -3.0f};  // the first is a tie of BF16: to even, 1.0
  std::vector<float> f32(6, 9.0f);
  MutableMatrixView m = f32_matrix(f32.data(), 2, 2);
  m.row_stride = 3;
  store_matrix_row(m, 1, x);
  EXPECT_EQ(f32, (std::vector<float>{9, 9, 9, 1.00390625f, -3, 9}));
  std::vector<std::uint16_t> bf16(6, 9);
  MutableMatrixView b = bf16_matrix(bf16.data(), 2, 2);
  b.row_stride = 3;
  store_matrix_row(b, 1, x);
  EXPECT_EQ(bf16, (std::vector<std::uint16_t>{9, 9, 9, 0x3F80, 0xC040, 9}));
}

// The last row begins 3 GiB in, past 2^31 elements; only the pages touched take memory.
TEST(MatrixCodec, OffsetsPast2To31) {
  const std::int64_t row_stride = std::int64_t{1} << 30;
  const std::size_t bytes = static_cast<std::size_t>(3 * row_stride) + 4096;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for a sparse mapping";
  static_cast<std::uint8_t*>(memory)[3 * row_stride + 1] = 0x38;  // 1.0
  const std::uint8_t scale = 128;
  MatrixView m{memory, Format::kE4m3, 4, 2, row_stride, &scale, DType::kE8M0, 4, 2, 1};
  float row[2];
  decode_matrix_row(m, 3, row);
  EXPECT_EQ(row[0], 0.0f);
  EXPECT_EQ(row[1], 2.0f);
  munmap(memory, bytes);
}

}  // namespace
}  // namespace dsv4
