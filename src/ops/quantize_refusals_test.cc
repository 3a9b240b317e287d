// What the ops that quantise and dequantise refuse, and what they say they cost.
#include <gtest/gtest.h>

#include "ops/quantize.h"
#include "testing/refusals.h"
#include "testing/test_matrix.h"

namespace dsv4::testing {
namespace {

// A valid call over host memory that nothing reads.
struct QuantizeCall {
  HostMatrix x{f32_spec(), 2, 64};
  HostMatrix out{nvfp4_spec(true), 2, 64};
  QuantizeParams params;
  QuantizeCall() {
    params.x = x.view();
    params.out = out.mutable_view();
    check(params);
  }
};

TEST(QuantizeRefuses, ShapesThatDoNotMatch) {
  QuantizeCall call;
  call.params.x.rows = 3;
  expect_refused(call.params, {"QuantizeParams.out.rows", "2", "x.rows = 3"});
  call = {};
  call.params.x.cols = 48;
  expect_refused(call.params, {"QuantizeParams.out.cols", "64", "x.cols = 48"});
  call = {};
  call.params.x.row_stride = 63;
  expect_refused(call.params, {"QuantizeParams.x.row_stride", "63", "at least cols = 64"});
  call = {};
  call.params.x.rows = -1;
  expect_refused(call.params, {"QuantizeParams.x.rows", "-1", "at least 0"});
}

TEST(QuantizeRefuses, FormatsItDoesNotWrite) {
  QuantizeCall call;
  call.params.out.format = Format::kF32;
  expect_refused(call.params, {"QuantizeParams.out.format", "F32", "FP8, MXFP4, NVFP4"});
  call = {};
  call.params.x.format = Format::kE4m3;
  expect_refused(call.params, {"QuantizeParams.x.format", "FP8", "F32, BF16"});
}

TEST(QuantizeRefuses, ColumnsNotAMultipleOfTheQuantBlock) {
  QuantizeCall call;
  call.params.x.cols = 40;
  call.params.out.cols = 40;
  expect_refused(call.params, {"QuantizeParams.out.cols", "40", "multiple of 16"});
}

TEST(QuantizeRefuses, ScalesOfAnotherLayout) {
  QuantizeCall call;
  call.params.out.scale_dtype = DType::kF32;
  expect_refused(call.params, {"QuantizeParams.out.scale_dtype", "F32", "F8_E4M3"});
  call = {};
  call.params.out.block_cols = 32;
  expect_refused(call.params, {"QuantizeParams.out.block_cols", "32", "16"});
  call = {};
  call.params.out.scale_stride = 3;
  expect_refused(call.params, {"QuantizeParams.out.scale_stride", "3", "4 scales"});
  call = {};
  call.params.out.block_scales = nullptr;
  expect_refused(call.params, {"QuantizeParams.out.block_scales", "null"});
  HostMatrix tiles(fp8_spec(128, 128, DType::kE8M0), 2, 64);
  call.params.out = tiles.mutable_view();
  expect_refused(call.params, {"QuantizeParams.out.block_rows", "128", "must be 1"});
  HostMatrix f32_scales(fp8_spec(1, 128, DType::kF32), 2, 64);
  call.params.out = f32_scales.mutable_view();
  expect_refused(call.params, {"QuantizeParams.out.scale_dtype", "F32", "F8_E8M0"});
}

TEST(QuantizeRefuses, GlobalScalesThatCannotBeStored) {
  QuantizeCall call;
  call.params.out.global_scale_stride = 0;
  expect_refused(call.params, {"QuantizeParams.out.global_scale_stride", "0", "a row = 1"});
  call = {};
  const std::int32_t idx[] = {0, 0};
  call.params.global_scale_idx = idx;
  expect_refused(call.params, {"QuantizeParams.global_scale_idx", "static_global_scales"});
  call = {};
  HostMatrix mxfp4(mxfp4_spec(), 2, 64);
  const float scale = 1;
  call.params.out = mxfp4.mutable_view();
  call.params.static_global_scales = &scale;
  expect_refused(call.params, {"QuantizeParams.static_global_scales", "MXFP4"});
}

TEST(QuantizeRefuses, FourOverSixWithoutAGlobalScaleOrBlockScalesToChoose) {
  QuantizeCall call;
  call.params.four_over_six = true;
  expect_refused(call.params, {"QuantizeParams.four_over_six", "static_global_scales"});
  const float scale = 1;
  call.params.static_global_scales = &scale;
  check(call.params);
  call.params.static_global_scales = nullptr;
  HostMatrix mxfp4(mxfp4_spec(), 2, 64);
  call.params.out = mxfp4.mutable_view();
  expect_refused(call.params, {"QuantizeParams.four_over_six", "MXFP4"});
}

TEST(QuantizeCost, CountsBytesOfCodesAndScales) {
  QuantizeCall call;
  EXPECT_EQ(cost(call.params).bytes_read, 2 * 64 * 4);
  EXPECT_EQ(cost(call.params).bytes_written, 2 * (32 + 4 + 4));
  EXPECT_EQ(cost(call.params).flops, 2 * 64 * 4);
  call.params.four_over_six = true;
  EXPECT_EQ(cost(call.params).flops, 2 * 64 * 16);
}

TEST(AmaxRefuses, WhatItCannotReadOrWrite) {
  const HostMatrix x(fp8_spec(128, 128, DType::kF32), 3, 40);
  float out = 0;
  AmaxParams params{x.view(), &out};
  check(params);
  EXPECT_EQ(cost(params).bytes_read, 3 * 40 + 4);
  EXPECT_EQ(cost(params).bytes_written, 4);
  EXPECT_EQ(cost(params).flops, 3 * 40 * 3);
  params.out = nullptr;
  expect_refused(params, {"AmaxParams.out", "null", "[1]"});
  params = {x.view(), &out};
  params.x.rows = -1;
  expect_refused(params, {"AmaxParams.x.rows", "-1", "at least 0"});
  params = {x.view(), &out};
  params.x.block_scales = nullptr;
  expect_refused(params, {"AmaxParams.x.block_scales", "null"});
}

struct DequantizeCall {
  HostMatrix x{nvfp4_spec(), 2, 64};
  HostMatrix out{bf16_spec(), 2, 64};
  DequantizeParams params;
  DequantizeCall() {
    params.x = x.view();
    params.out = out.mutable_view();
    check(params);
  }
};

TEST(DequantizeRefuses, FormatsAndShapesThatDoNotFit) {
  DequantizeCall call;
  call.params.x.format = Format::kBf16;
  expect_refused(call.params, {"DequantizeParams.x.format", "BF16", "FP8, MXFP4, NVFP4"});
  call = {};
  call.params.out.format = Format::kNvfp4;
  expect_refused(call.params, {"DequantizeParams.out.format", "NVFP4", "F32, BF16"});
  call = {};
  call.params.out.rows = 1;
  expect_refused(call.params, {"DequantizeParams.out.rows", "1", "x.rows = 2"});
  call = {};
  call.params.out.cols = 48;
  expect_refused(call.params, {"DequantizeParams.out.cols", "48", "x.cols = 64"});
  call = {};
  call.params.x.global_scales = nullptr;
  expect_refused(call.params, {"DequantizeParams.x.global_scales", "null"});
}

TEST(DequantizeCost, CountsCodesScalesAndValues) {
  const DequantizeCall call;
  EXPECT_EQ(cost(call.params).bytes_read, 2 * (32 + 4) + 4);
  EXPECT_EQ(cost(call.params).bytes_written, 2 * 64 * 2);
  EXPECT_EQ(cost(call.params).flops, 2 * 64 * 2);
}

// The same for SwiGLU.
struct SwigluQuantizeCall {
  HostMatrix gate{f32_spec(), 2, 64};
  HostMatrix out{nvfp4_spec(true), 2, 64};
  SwigluQuantizeParams params;
  SwigluQuantizeCall() {
    params.gate = gate.view();
    params.up = gate.view();
    params.out = out.mutable_view();
    check(params);
  }
};

TEST(SwigluQuantizeRefuses, ShapesThatDoNotMatch) {
  SwigluQuantizeCall call;
  call.params.up.rows = 1;
  expect_refused(call.params, {"SwigluQuantizeParams.up.rows", "1", "gate.rows = 2"});
  call = {};
  call.params.up.cols = 48;
  expect_refused(call.params, {"SwigluQuantizeParams.up.cols", "48", "gate.cols = 64"});
  call = {};
  call.params.out.rows = 3;
  expect_refused(call.params, {"SwigluQuantizeParams.out.rows", "3", "gate.rows = 2"});
  call = {};
  call.params.out.cols = 48;
  expect_refused(call.params, {"SwigluQuantizeParams.out.cols", "48", "gate.cols = 64"});
}

TEST(SwigluQuantizeRefuses, FormatsItDoesNotTake) {
  SwigluQuantizeCall call;
  call.params.gate.format = Format::kE4m3;
  expect_refused(call.params, {"SwigluQuantizeParams.gate.format", "FP8", "F32, BF16"});
  call = {};
  call.params.up.format = Format::kBf16;
  expect_refused(call.params, {"SwigluQuantizeParams.up.format", "BF16", "one of F32"});
  call = {};
  call.params.out.format = Format::kBf16;
  expect_refused(call.params, {"SwigluQuantizeParams.out.format", "BF16", "FP8, MXFP4, NVFP4"});
}

TEST(SwigluQuantizeRefuses, LimitsAndScalesThatMeanNothing) {
  SwigluQuantizeCall call;
  call.params.swiglu_limit = -1;
  expect_refused(call.params, {"SwigluQuantizeParams.swiglu_limit", "-1", "at least 0"});
  call = {};
  call.params.out.global_scale_stride = 0;
  expect_refused(call.params, {"SwigluQuantizeParams.out.global_scale_stride", "0", "a row = 1"});
  call = {};
  const std::int32_t idx[] = {0, 0};
  call.params.global_scale_idx = idx;
  expect_refused(call.params, {"SwigluQuantizeParams.global_scale_idx", "static_global_scales"});
}

TEST(SwigluQuantizeCost, CountsBothInputsTheWeightsAndTheOutput) {
  SwigluQuantizeCall call;
  EXPECT_EQ(cost(call.params).bytes_read, 2 * 2 * 64 * 4);
  EXPECT_EQ(cost(call.params).bytes_written, 2 * (32 + 4 + 4));
  const float weights[] = {1, 1};
  call.params.row_weights = weights;
  EXPECT_EQ(cost(call.params).bytes_read, 2 * 2 * 64 * 4 + 2 * 4);
}

}  // namespace
}  // namespace dsv4::testing
