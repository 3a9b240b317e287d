#include "cpu/source.h"

#include "base/math.h"
#include "numerics/e2m1.h"
#include "numerics/e4m3.h"
#include "numerics/e8m0.h"
#include "tensor/matrix_codec.h"

namespace dsv4::cpu {
namespace {

// The fast E4M3 decoder multiplies codes / 256 by 256 times the scale, which must be an FP32.
bool scales_leave_room(const MatrixView& m) {
  const std::int64_t scale_rows = ceil_div(m.rows, m.block_rows);
  const std::int64_t scale_cols = ceil_div(m.cols, m.block_cols);
  for (std::int64_t r = 0; r < scale_rows; ++r) {
    for (std::int64_t c = 0; c < scale_cols; ++c) {
      const float scale = decode_block_scale(m, r, c);
      if (scale >= 0x1p119f || scale <= -0x1p119f) return false;  // NaN may pass: it stays one
    }
  }
  return true;
}

}  // namespace

E2m1Tables::E2m1Tables()
    : mxfp4_(kE2m1TableSize * sizeof(float)), nvfp4_(kE2m1TableSize * sizeof(float)) {
  static_assert(Buffer::kAlignment % (16 * sizeof(float)) == 0);
  auto* mxfp4 = reinterpret_cast<float*>(mxfp4_.data());
  auto* nvfp4 = reinterpret_cast<float*>(nvfp4_.data());
  for (int scale = 0; scale < 256; ++scale) {
    const auto bits = static_cast<std::uint8_t>(scale);
    for (std::uint8_t code = 0; code < 16; ++code) {
      *mxfp4++ = decode_e2m1(code) * decode_e8m0(bits);
      *nvfp4++ = decode_e2m1(code) * decode_e4m3(bits);
    }
  }
}

Source make_source(const MatrixView& view, const E2m1Tables& tables) {
  Source source;
  source.view = view;
  switch (view.format) {
    case Format::kF32:
      source.kind = Source::Kind::kF32;
      break;
    case Format::kBf16:
      source.kind = Source::Kind::kBf16;
      break;
    case Format::kE4m3:
      if (view.block_cols % kLanes == 0 && scales_leave_room(view)) {
        source.kind = Source::Kind::kE4m3;
      }
      break;
    case Format::kMxfp4:
    case Format::kNvfp4:
      source.kind = Source::Kind::kE2m1;
      source.table = tables.of(view.format);
      source.needs_global_scale = view.format == Format::kNvfp4;
      break;
  }
  return source;
}

}  // namespace dsv4::cpu
