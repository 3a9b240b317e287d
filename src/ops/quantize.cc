// Refusals and cost of quantisation.
#include "ops/quantize.h"

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {

void check(const QuantizeParams& p) {
  check_matrix("QuantizeParams.x", p.x, kPlainFormats);
  check_activations("QuantizeParams.out", p.out, {Format::kE4m3, Format::kMxfp4, Format::kNvfp4});
  if (p.row_idx == nullptr) check_equal("QuantizeParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_equal("QuantizeParams.out.cols", p.out.cols, "x.cols", p.x.cols);
  if (p.out.format == Format::kE4m3) {
    require(p.out.scale_dtype == DType::kE8M0, ErrorCode::kBadRequest,
            "QuantizeParams.out.scale_dtype is {}, must be {} for FP8",
            dtype_name(p.out.scale_dtype), dtype_name(DType::kE8M0));
  }
  if (p.out.format != Format::kNvfp4) {
    require(p.static_global_scales == nullptr, ErrorCode::kBadRequest,
            "QuantizeParams.static_global_scales is set, must be null for {}, which has none",
            to_string(p.out.format));
  } else if (p.static_global_scales == nullptr) {
    check_equal("QuantizeParams.out.global_scale_stride", p.out.global_scale_stride,
                "one dynamic global scale a row", 1);
  }
  if (p.global_scale_idx == nullptr) return;
  require(p.static_global_scales != nullptr, ErrorCode::kBadRequest,
          "QuantizeParams.global_scale_idx is set, must be null without static_global_scales");
  check_equal("QuantizeParams.out.global_scale_stride", p.out.global_scale_stride,
              "one a row with global_scale_idx", 1);
}

Cost cost(const QuantizeParams& p) {
  // A magnitude, a maximum, a quotient and an encoding an element.
  return {4.0 * static_cast<double>(p.out.rows) * static_cast<double>(p.out.cols),
          matrix_bytes(p.x), matrix_bytes(p.out)};
}

}  // namespace dsv4
