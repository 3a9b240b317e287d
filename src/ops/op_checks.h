// op_checks.h: the vocabulary in which every op's check() refuses: field, value, requirement.
//
// Fields are written with their struct ("LinearParams.w.rows"). Every op calls these each time it
// runs, so what passes neither formats nor allocates (op_checks_test.cc counts). Looks at shapes,
// strides, formats and null pointers only, never at what a pointer points to: that may be on a
// device.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/field_path.h"
#include "tensor/matrix_view.h"

namespace dsv4 {

// The formats that an operand may have.
class FormatSet {
 public:
  constexpr FormatSet(std::initializer_list<Format> formats) {
    for (Format format : formats) bits_ |= bit(format);
  }
  constexpr bool contains(Format format) const { return (bits_ & bit(format)) != 0; }
  // "F32, BF16".
  std::string to_string() const;

 private:
  static constexpr unsigned bit(Format format) { return 1u << static_cast<unsigned>(format); }
  unsigned bits_ = 0;
};

inline constexpr FormatSet kPlainFormats = {Format::kF32, Format::kBf16};
inline constexpr FormatSet kF32Format = {Format::kF32};
inline constexpr FormatSet kActivationFormats = {Format::kF32, Format::kBf16, Format::kE4m3,
                                                 Format::kNvfp4};
inline constexpr FormatSet kQuantizedFormats = {Format::kE4m3, Format::kMxfp4, Format::kNvfp4};
inline constexpr FormatSet kWeightFormats = {Format::kF32, Format::kBf16, Format::kE4m3,
                                             Format::kMxfp4, Format::kNvfp4};

// Each throws Error(kBadRequest) unless it holds.
//
// A matrix that an op can follow: format among `allowed`, extents not negative and addressable in
// 64 bits, strides that cover a row, data and scales present unless it is empty, and the quant
// block of its format: MXFP4 1 x 32 E8M0, NVFP4 1 x 16 E4M3 with global scales, E4M3 any tile with
// E8M0 or FP32 scales. Packed rows hold whole quant blocks.
void check_matrix(const FieldPath& field, const MatrixView& m, FormatSet allowed);
// Also that quantised rows are independent of each other, as activations are: E4M3 1 x 128, NVFP4.
void check_activations(const FieldPath& field, const MatrixView& m, FormatSet allowed);
void check_equal(const FieldPath& field, std::int64_t value, std::string_view requirement,
                 std::int64_t required);
void check_at_least(const FieldPath& field, std::int64_t value, std::int64_t minimum);
void check_at_most(const FieldPath& field, std::int64_t value, std::string_view requirement,
                   std::int64_t maximum);
// Neither negative nor NaN nor infinite.
void check_not_negative(const FieldPath& field, double value);
// `shape` names what it must point to, e.g. "[tokens]".
void check_pointer(const FieldPath& field, const void* pointer, std::string_view shape);

// Bytes of `rows` rows of m and of their scales, without padding.
std::int64_t matrix_bytes(const MatrixView& m, std::int64_t rows);
inline std::int64_t matrix_bytes(const MatrixView& m) { return matrix_bytes(m, m.rows); }

}  // namespace dsv4
