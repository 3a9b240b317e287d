// dequantize_cases.h: matrices on which decoding and the largest magnitude are tested.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ops/quantize.h"
#include "testing/each_backend.h"
#include "testing/generators.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {

struct DequantizeCase {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  MatrixSpec x;
  bool any_bits = false;  // random codes and scales, NaN among them, not those of a real matrix
};

// Every quantised format, tiles that hold whole steps of sixteen columns and tiles that cut them,
// FP8 rows that end anywhere, one global scale and one a row, with padding.
inline std::vector<DequantizeCase> dequantize_cases() {
  std::vector<DequantizeCase> cases;
  const std::vector<MatrixSpec> specs = {fp8_spec(128, 128, DType::kE8M0),
                                         fp8_spec(128, 128, DType::kF32),
                                         fp8_spec(1, 128, DType::kE8M0),
                                         fp8_spec(3, 48, DType::kE8M0),
                                         fp8_spec(2, 40, DType::kF32),
                                         mxfp4_spec(),
                                         nvfp4_spec(),
                                         nvfp4_spec(true)};
  for (const MatrixSpec& x : specs) {
    for (const bool any_bits : {false, true}) {
      for (const std::int64_t cols : {1, 15, 17, 32, 128, 160, 2880, 4096 + 32}) {
        if (is_packed(x.format) && cols % x.block_cols != 0) continue;
        const std::string name = x.name + "_" + std::to_string(cols) + (any_bits ? "_any" : "");
        cases.push_back({name, 5, cols, x, any_bits});
        cases.push_back({name + "_padded", x.block_rows + 3, cols, x.padded(6), any_bits});
      }
    }
  }
  for (const std::int64_t cols : {16, 48, 80}) {  // an odd number of quant blocks
    for (const MatrixSpec& x : {nvfp4_spec(), nvfp4_spec(true).padded(2)}) {
      cases.push_back({x.name + "_" + std::to_string(cols), 7, cols, x, true});
    }
  }
  return cases;
}

// FP32 scales in any_bits reach from the largest to the subnormal numbers, with infinity and NaN.
inline HostMatrix dequantize_input(const DequantizeCase& c) {
  if (!c.any_bits) {
    return HostMatrix(c.x, c.rows, c.cols, heavy_tailed_values(21, c.rows * c.cols));
  }
  HostMatrix x(c.x, c.rows, c.cols, std::vector<float>(static_cast<std::size_t>(c.rows * c.cols)));
  Random random(22);
  for (std::uint8_t& byte : x.data) byte = static_cast<std::uint8_t>(random.bits());
  for (std::uint8_t& byte : x.block_scales) byte = static_cast<std::uint8_t>(random.bits());
  if (c.x.scale_dtype == DType::kF32) {
    for (std::size_t i = 0; i < x.block_scales.size() / 4; ++i) {
      const float scale = std::ldexp(static_cast<float>(random.uniform(-2, 2)),
                                     static_cast<int>(random.index(277)) - 149);
      const float scales[] = {scale, INFINITY, NAN};
      std::memcpy(&x.block_scales[4 * i], &scales[i % 7 == 5 ? 1 + i % 2 : 0], 4);
    }
  }
  for (std::size_t i = 0; i < x.global_scales.size(); ++i) {
    x.global_scales[i] = std::ldexp(1.7f, static_cast<int>(i) * 20 % 240 - 130);
  }
  return x;
}

// The values, as the backend leaves them.
inline HostMatrix run_dequantize(Backend& backend, const HostMatrix& x, const MatrixSpec& out) {
  const DeviceMatrix x_on_device(backend, x);
  const DeviceMatrix values(backend, HostMatrix(out, x.rows, x.cols));
  run_op(backend, DequantizeParams{x_on_device.view(), values.mutable_view()});
  return values.read();
}

inline float run_amax(Backend& backend, const HostMatrix& x) {
  const DeviceMatrix x_on_device(backend, x);
  const DeviceArray<float> out(backend, 1);
  run_op(backend, AmaxParams{x_on_device.view(), out.data()});
  return out.read()[0];
}

}  // namespace dsv4::testing
