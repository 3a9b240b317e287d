// test_matrix.h: matrices of any format for tests: in host memory with poisoned padding, and their
// copies on a device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/matrix_view.h"
#include "testing/device_array.h"

namespace dsv4::testing {

// How the elements of a matrix are stored, and how much padding stands behind each row.
struct MatrixSpec {
  std::string name = "f32";  // for SCOPED_TRACE
  Format format = Format::kF32;
  DType scale_dtype = DType::kE8M0;
  std::int64_t block_rows = 1;
  std::int64_t block_cols = 0;
  bool row_global_scales = false;  // kNvfp4: one global scale a row
  std::int64_t row_padding = 0;    // elements; even when packed
  std::int64_t scale_padding = 0;  // scales

  // The same elements with `elements` of padding behind each row and three scales behind its own.
  MatrixSpec padded(std::int64_t elements) const;
};
MatrixSpec f32_spec();
MatrixSpec bf16_spec();
MatrixSpec fp8_spec(std::int64_t block_rows, std::int64_t block_cols, DType scale_dtype);
MatrixSpec mxfp4_spec();
MatrixSpec nvfp4_spec(bool row_global_scales = false);
// F32, BF16, FP8 128 x 128 with E8M0 and with F32 scales, MXFP4, NVFP4.
std::vector<MatrixSpec> weight_specs();
// F32, BF16, FP8 1 x 128 with E8M0 scales, NVFP4 with a global scale a row.
std::vector<MatrixSpec> activation_specs();

// A matrix in host memory that owns its bytes. All padding is poison.
struct HostMatrix {
  // A matrix of poison, for outputs.
  HostMatrix(const MatrixSpec& spec, std::int64_t rows, std::int64_t cols);
  // `values` [rows, cols], rounded or quantised to the format by the rules of MODEL arithmetic
  // (docs/numerics.md); F32 tile scales are amax / 448.
  HostMatrix(const MatrixSpec& spec, std::int64_t rows, std::int64_t cols,
             const std::vector<float>& values);

  MatrixView view() const;
  MutableMatrixView mutable_view();
  // The same shape over other memory, e.g. a device's.
  MutableMatrixView view_on(std::uint8_t* other_data, std::uint8_t* other_block_scales,
                            float* other_global_scales) const;
  // Decoded elements [rows, cols].
  std::vector<float> values() const;
  // One row as a matrix of its own. Not for tiles of several rows.
  HostMatrix row(std::int64_t row_idx) const;
  // Bytes of padding that are not poison any more; 0 after any correct op.
  std::int64_t damaged_padding_bytes() const;

  MatrixSpec spec;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;
  std::int64_t scale_stride;
  std::vector<std::uint8_t> data;
  std::vector<std::uint8_t> block_scales;
  std::vector<float> global_scales;

 private:
  void encode(const std::vector<float>& values);
};

// A HostMatrix on a backend's device, between guards.
class DeviceMatrix {
 public:
  DeviceMatrix(Backend& backend, HostMatrix host);

  MatrixView view() const;
  MutableMatrixView mutable_view() const;
  // Makes all of it poison, padding included.
  void poison();
  // The matrix as the device has it now. Fails the test if padding was written to.
  HostMatrix read() const;
  std::vector<float> values() const { return read().values(); }

 private:
  HostMatrix host_;
  DeviceArray<std::uint8_t> data_;
  DeviceArray<std::uint8_t> block_scales_;
  DeviceArray<float> global_scales_;
};

}  // namespace dsv4::testing
