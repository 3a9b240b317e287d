// source.h: a matrix as the kernels read it: how its codes decode, sixteen at a time.
//
// The kernels that decode and multiply: dot.h.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"
#include "tensor/matrix_view.h"

namespace dsv4::cpu {

inline constexpr int kLanes = 16;

// table[16 s + c] = value of E2M1 code c under block scale s (MXFP4, or NVFP4 of global scale 1).
// Tables start at a cache line: sixteen values that straddle two cost a quarter of decoding's
// speed.
inline constexpr std::int64_t kE2m1TableSize = 256 * 16;
class E2m1Tables {
 public:
  E2m1Tables();
  const float* of(Format format) const {
    const Buffer& table = format == Format::kMxfp4 ? mxfp4_ : nvfp4_;
    return reinterpret_cast<const float*>(table.data());
  }

 private:
  Buffer mxfp4_, nvfp4_;
};

struct Source {
  // kGeneral: scale tiles that do not hold whole steps of sixteen, or scales that the fast decoder
  // could overflow with; decoded by tensor/matrix_codec.h.
  enum class Kind : std::uint8_t { kF32, kBf16, kE4m3, kE2m1, kGeneral };

  MatrixView view;
  Kind kind = Kind::kGeneral;
  const float* table = nullptr;     // kE2m1: what to decode with
  bool needs_global_scale = false;  // kNvfp4: the table is that of global scale 1

  // Decoded 16-blocks come out interleaved: lanes 2j and 2j + 1 hold elements j and j + 8.
  bool interleaved() const { return kind == Kind::kE2m1; }
  // Whether a table with the global scale (fill_table) would do for all rows.
  bool wants_table() const {
    return needs_global_scale && (view.global_scale_stride == 0 || view.rows == 1);
  }
};

// Reads the block scales of E4M3 matrices (one of 16384 elements) to choose the kind.
Source make_source(const MatrixView& view, const E2m1Tables& tables);

}  // namespace dsv4::cpu
