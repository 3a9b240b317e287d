// dtype.h: element types as they are stored, and their sizes.
//
// A stored type says nothing of quantisation: packed E2M1 lives in kI8 (official MXFP4) or kU8
// (NVFP4), two codes a byte. What a matrix means is its Format (matrix_view.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace dsv4 {

enum class DType : std::uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kE4M3,
  kE8M0,
  kI8,
  kU8,
  kI32,
  kI64,
  kBool
};

constexpr std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kE4M3:
    case DType::kE8M0:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

// The name that safetensors uses: "F32", "BF16", "F8_E4M3", "F8_E8M0", ...
constexpr std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF64:
      return "F64";
    case DType::kE4M3:
      return "F8_E4M3";
    case DType::kE8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kBool:
      return "BOOL";
  }
  return "?";
}

}  // namespace dsv4
