// Refusals and cost of quantisation.
#include "ops/quantize.h"

#include "base/error.h"
#include "ops/op_checks.h"

namespace dsv4 {

namespace {

// The output and the global scales of either op.
template <class Params>
void check_quantized(const FieldPath& params, const Params& p) {
  const FieldPath out = params.member("out");
  check_activations(out, p.out, kQuantizedFormats);
  if (p.out.format == Format::kE4m3) {
    require(p.out.scale_dtype == DType::kE8M0, ErrorCode::kBadRequest,
            "{}.scale_dtype is {}, must be {} for FP8", out, dtype_name(p.out.scale_dtype),
            dtype_name(DType::kE8M0));
  }
  if (p.out.format != Format::kNvfp4) {
    require(p.static_global_scales == nullptr, ErrorCode::kBadRequest,
            "{}.static_global_scales is set, must be null for {}, which has none", params,
            to_string(p.out.format));
  } else if (p.static_global_scales == nullptr) {
    check_equal(out.member("global_scale_stride"), p.out.global_scale_stride,
                "one dynamic global scale a row", 1);
  }
  if (p.global_scale_idx == nullptr) return;
  require(p.static_global_scales != nullptr, ErrorCode::kBadRequest,
          "{}.global_scale_idx is set, must be null without static_global_scales", params);
  check_equal(out.member("global_scale_stride"), p.out.global_scale_stride,
              "one a row with global_scale_idx", 1);
}

// Products that decode one element.
double decoding_flops(Format format) {
  if (!is_quantized(format)) return 0;
  return format == Format::kNvfp4 ? 2 : 1;
}

// `flops` operations an element.
double element_flops(const MatrixView& m, double flops) {
  return flops * static_cast<double>(m.rows) * static_cast<double>(m.cols);
}

}  // namespace

void check(const QuantizeParams& p) {
  check_matrix("QuantizeParams.x", p.x, kPlainFormats);
  check_quantized("QuantizeParams", p);
  if (p.row_idx == nullptr) check_equal("QuantizeParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_equal("QuantizeParams.out.cols", p.out.cols, "x.cols", p.x.cols);
  if (!p.four_over_six) return;
  require(p.out.format == Format::kNvfp4, ErrorCode::kBadRequest,
          "QuantizeParams.four_over_six is set, must be false for {}", to_string(p.out.format));
  require(p.static_global_scales != nullptr, ErrorCode::kBadRequest,
          "QuantizeParams.four_over_six is set, must be false without static_global_scales");
}

Cost cost(const QuantizeParams& p) {
  // A magnitude, a maximum, a quotient and an encoding an element.
  // Four over six: one magnitude and maximum, and twice a quotient, an encoding, a decoding (two
  // products), a difference, a square and a sum.
  return {element_flops(p.out, p.four_over_six ? 16 : 4), matrix_bytes(p.x), matrix_bytes(p.out)};
}

void check(const SwigluQuantizeParams& p) {
  check_matrix("SwigluQuantizeParams.gate", p.gate, kPlainFormats);
  check_matrix("SwigluQuantizeParams.up", p.up,
               p.gate.format == Format::kF32 ? kF32Format : FormatSet{Format::kBf16});
  check_quantized("SwigluQuantizeParams", p);
  check_equal("SwigluQuantizeParams.up.rows", p.up.rows, "gate.rows", p.gate.rows);
  check_equal("SwigluQuantizeParams.up.cols", p.up.cols, "gate.cols", p.gate.cols);
  check_equal("SwigluQuantizeParams.out.rows", p.out.rows, "gate.rows", p.gate.rows);
  check_equal("SwigluQuantizeParams.out.cols", p.out.cols, "gate.cols", p.gate.cols);
  check_not_negative("SwigluQuantizeParams.swiglu_limit", p.swiglu_limit);
}

Cost cost(const SwigluQuantizeParams& p) {
  // As QuantizeParams, after the six operations that expert_gate_up counts for the activation.
  return {
      element_flops(p.out, 10),
      matrix_bytes(p.gate) + matrix_bytes(p.up) + (p.row_weights == nullptr ? 0 : 4 * p.out.rows),
      matrix_bytes(p.out)};
}

void check(const AmaxParams& p) {
  check_matrix("AmaxParams.x", p.x, kWeightFormats);
  check_pointer("AmaxParams.out", p.out, "[1]");
}

Cost cost(const AmaxParams& p) {
  // A magnitude and a maximum an element, after its decoding.
  return {element_flops(p.x, 2 + decoding_flops(p.x.format)), matrix_bytes(p.x), 4};
}

void check(const DequantizeParams& p) {
  check_matrix("DequantizeParams.x", p.x, kQuantizedFormats);
  check_matrix("DequantizeParams.out", p.out, kPlainFormats);
  check_equal("DequantizeParams.out.rows", p.out.rows, "x.rows", p.x.rows);
  check_equal("DequantizeParams.out.cols", p.out.cols, "x.cols", p.x.cols);
}

Cost cost(const DequantizeParams& p) {
  return {element_flops(p.x, decoding_flops(p.x.format)), matrix_bytes(p.x), matrix_bytes(p.out)};
}

}  // namespace dsv4
