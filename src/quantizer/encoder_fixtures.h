// encoder_fixtures.h: what the tests of the encoder share: FP4 matrices made of given codes and
// scales, an encoding with all that came of it, and an error tally computed once more, plainly.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/backends.h"
#include "numerics/nvfp4.h"
#include "quantizer/group_encoder.h"
#include "tensor/matrix_codec.h"

namespace dsv4 {

inline NamedMatrix named(const std::string& name, const MatrixView& view) {
  NamedMatrix matrix;
  matrix.name = name;
  matrix.view = view;
  return matrix;
}

// An FP4 matrix that owns its bytes; all codes 0 and all scales 1 (of NVFP4: global scale 1).
struct Fp4Matrix {
  Fp4Matrix(Format format_, std::int64_t rows_, std::int64_t cols_)
      : format(format_),
        rows(rows_),
        cols(cols_),
        block_cols(format == Format::kMxfp4 ? 32 : 16),
        codes(static_cast<std::size_t>(rows * cols / 2)),
        scales(static_cast<std::size_t>(rows * blocks()),
               format == Format::kMxfp4 ? kE8m0One : encode_e4m3(1.0f)) {}

  std::int64_t blocks() const { return (cols + block_cols - 1) / block_cols; }
  std::uint8_t& scale(std::int64_t row, std::int64_t block) {
    return scales[static_cast<std::size_t>(row * blocks() + block)];
  }
  void set_code(std::int64_t row, std::int64_t col, std::uint8_t code) {
    std::uint8_t& pair = codes[static_cast<std::size_t>((row * cols + col) / 2)];
    pair = col % 2 == 0 ? pack_e2m1(code, unpack_e2m1_high(pair))
                        : pack_e2m1(unpack_e2m1_low(pair), code);
  }
  // Every code there is, again and again, also 8 (-0).
  void fill_codes() {
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      set_code(i / cols, i % cols, static_cast<std::uint8_t>((i * 7 + i / 16) % 16));
    }
  }
  void set_block_codes(std::int64_t row, std::int64_t block, std::uint8_t code) {
    const std::int64_t end = std::min(cols, (block + 1) * block_cols);
    for (std::int64_t col = block * block_cols; col < end; ++col) set_code(row, col, code);
  }
  MatrixView view() const {
    MatrixView view;
    view.data = codes.data();
    view.format = format;
    view.rows = rows;
    view.cols = view.row_stride = cols;
    view.block_scales = scales.data();
    view.scale_dtype = format == Format::kMxfp4 ? DType::kE8M0 : DType::kE4M3;
    view.block_cols = block_cols;
    view.scale_stride = blocks();
    view.global_scales = format == Format::kNvfp4 ? &global_scale : nullptr;
    return view;
  }

  Format format;
  std::int64_t rows, cols, block_cols;
  float global_scale = 1;
  std::vector<std::uint8_t> codes, scales;
};

// One member of a group, encoded.
struct EncodedMatrix {
  Fp4Matrix matrix;  // NVFP4
  ErrorTally tally;
};

struct EncoderSetup {
  std::string backend = "reference";
  int num_threads = 1;
  std::int64_t rows_per_call = 1 << 30;
};

inline std::vector<EncodedMatrix> encode_group(const MatrixGroup& group,
                                               const EncodingOptions& options = {},
                                               const EncoderSetup& setup = {}) {
  const std::unique_ptr<Backend> backend = open_backend(setup.backend, setup.num_threads);
  ThreadPool pool(setup.num_threads);
  GroupEncoder encoder(*backend, pool, group, options);
  std::vector<EncodedMatrix> result;
  for (std::size_t i = 0; i < group.members.size(); ++i) {
    const MatrixView& view = group.members[i].view;
    EncodedMatrix& encoded =
        result.emplace_back(EncodedMatrix{{Format::kNvfp4, view.rows, view.cols}, {}});
    encoded.matrix.global_scale = encoder.global_scale();
    for (std::int64_t begin = 0; begin < view.rows; begin += setup.rows_per_call) {
      encoder.encode(static_cast<int>(i), begin, std::min(view.rows, begin + setup.rows_per_call),
                     encoded.matrix.codes.data() + begin * view.cols / 2,
                     encoded.matrix.scales.data() + begin * view.cols / 16, encoded.tally);
    }
  }
  return result;
}
inline EncodedMatrix encode_one(const MatrixView& view, const EncodingOptions& options = {},
                                const EncoderSetup& setup = {}) {
  return encode_group({{named("m", view)}}, options, setup)[0];
}

inline std::vector<float> decoded_values(const MatrixView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.cols));
  for (std::int64_t row = 0; row < view.rows; ++row) {
    decode_matrix_row(view, row, values.data() + row * view.cols);
  }
  return values;
}

// What decodes to the same bits, the sign of zero included.
inline std::int64_t count_exact(const MatrixView& source, const MatrixView& encoded) {
  const std::vector<float> x = decoded_values(source), y = decoded_values(encoded);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += f32_bits(x[i]) == f32_bits(y[i]) ? 1 : 0;
  return count;
}

// The figures of a tally from the decoded values alone, in FP64, summed from the first value to the
// last. What depends on the rule of encoding (cast, encoded again) is left 0.
inline ErrorTally plain_tally(const std::string& name, const MatrixView& source,
                              const EncodedMatrix& encoded) {
  const std::vector<float> x = decoded_values(source);
  const std::vector<float> y = decoded_values(encoded.matrix.view());
  const double global_scale = encoded.matrix.global_scale;
  ErrorTally tally;
  tally.values = std::ssize(x);
  tally.exact_values = count_exact(source, encoded.matrix.view());
  tally.quant_blocks = tally.values / 16;
  for (std::int64_t b = 0; b < tally.quant_blocks; ++b) {
    double squares = 0, errors = 0, largest = 0, largest_decoded = 0;
    const double scale = decode_e4m3(encoded.matrix.scales[static_cast<std::size_t>(b)]);
    for (auto i = static_cast<std::size_t>(16 * b); i < static_cast<std::size_t>(16 * b + 16);
         ++i) {
      const double value = x[i], back = y[i];
      squares += value * value;
      errors += (back - value) * (back - value);
      tally.dot += value * back;
      largest = std::max(largest, std::fabs(value));
      largest_decoded = std::max(largest_decoded, std::fabs(back));
      if (scale > 0 && std::fabs(value) > 7 * scale * global_scale) ++tally.saturated_values;
    }
    tally.source_squares += squares;
    tally.error_squares += errors;
    if (largest > 0 && largest_decoded == 0) ++tally.zeroed_blocks;
    if (largest / (6 * global_scale) > 464) ++tally.scales_too_large;
    if (largest > 0 && largest / (6 * global_scale) <= 0x1p-10) ++tally.scales_too_small;
    const double relative = errors > 0 ? std::sqrt(errors / squares) : 0;
    if (relative > tally.worst.relative_error) {
      const std::int64_t blocks_per_row = source.cols / 16;
      tally.worst = {relative, name, b / blocks_per_row, b % blocks_per_row};
    }
  }
  return tally;
}

// Sums of n terms of one sign, in two orders, differ by at most n * 2^-52 of the sum each way; of
// an FP4 source the tally squares exact multiples where FP32 values were rounded once, 2^-24 each.
inline void expect_same_figures(const ErrorTally& tally, const ErrorTally& plain) {
  const double relative = 0x1p-22 + static_cast<double>(tally.values) * 0x1p-51;
  EXPECT_EQ(tally.values, plain.values);
  EXPECT_EQ(tally.exact_values, plain.exact_values);
  EXPECT_EQ(tally.quant_blocks, plain.quant_blocks);
  EXPECT_EQ(tally.zeroed_blocks, plain.zeroed_blocks);
  EXPECT_EQ(tally.saturated_values, plain.saturated_values);
  EXPECT_EQ(tally.scales_too_large, plain.scales_too_large);
  EXPECT_EQ(tally.scales_too_small, plain.scales_too_small);
  EXPECT_NEAR(tally.source_squares, plain.source_squares, relative * plain.source_squares);
  EXPECT_NEAR(tally.error_squares, plain.error_squares, relative * plain.error_squares);
  EXPECT_NEAR(tally.dot, plain.dot, relative * plain.source_squares);
  EXPECT_EQ(tally.worst.matrix, plain.worst.matrix);
  EXPECT_EQ(tally.worst.row, plain.worst.row);
  EXPECT_EQ(tally.worst.quant_block, plain.worst.quant_block);
  EXPECT_NEAR(tally.worst.relative_error, plain.worst.relative_error,
              relative * plain.worst.relative_error);
}

}  // namespace dsv4
