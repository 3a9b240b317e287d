// weights.h: gigabytes of random weights of any format, and the judge's value of one output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/matrix_view.h"
#include "testing/test_matrix.h"

namespace dsv4::bench {

// `count` distinct matrices [rows, cols] of random codes, finite and of moderate size.
class RandomWeights {
 public:
  RandomWeights(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols,
                std::int64_t count);
  std::int64_t count() const { return count_; }
  MatrixView view(std::int64_t idx) const;
  // Bytes of one matrix, scales included.
  static double bytes(const testing::MatrixSpec& spec, std::int64_t rows, std::int64_t cols);

 private:
  testing::MatrixSpec spec_;
  std::int64_t rows_, cols_, count_;
  std::vector<std::uint64_t> data_;  // matrix after matrix
  std::vector<std::uint64_t> scales_;
  float global_scale_ = 0.25f;
};

// Empty if |got - x . w[row]| is within the FP32 accumulation bound, x [cols] as FP32.
std::string compare_dot(const float* x, const MatrixView& w, std::int64_t row, float got);
// The same for silu(gate . x) * (up . x).
std::string compare_swiglu(const float* x, const MatrixView& gate, const MatrixView& up,
                           std::int64_t row, float got);

}  // namespace dsv4::bench
