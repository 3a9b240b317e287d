// foldable_test.cc: which 4-bit matrices are exact in FP8. A wrong yes loses bits silently, a wrong
// no costs half the speed.
#include "checkpoint/foldable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_test_files.h"

namespace dsv4 {
namespace {

// An NVFP4 matrix of one row whose block scales are `codes`; its elements are never looked at.
bool folds(std::vector<std::uint8_t> codes) {
  std::vector<std::uint8_t> elements(codes.size() * 8);
  const float global_scale = 1;
  MatrixView m;
  m.data = elements.data();
  m.format = Format::kNvfp4;
  m.rows = 1;
  m.cols = m.row_stride = static_cast<std::int64_t>(codes.size()) * 16;
  m.block_scales = codes.data();
  m.scale_dtype = DType::kE4M3;
  m.block_cols = 16;
  m.scale_stride = static_cast<std::int64_t>(codes.size());
  m.global_scales = &global_scale;
  return is_foldable(m);
}

// E4M3 code of 2^exponent, -6 .. 8.
std::uint8_t power(int exponent) { return static_cast<std::uint8_t>((exponent + 7) << 3); }

TEST(IsFoldable, UpToASpanOfFourteen) {
  EXPECT_TRUE(folds({power(0)}));
  EXPECT_TRUE(folds({power(8), power(-6)}));  // 14, the widest of normal codes
  EXPECT_TRUE(folds({power(5), 1}));          // 2^-9: 14
  EXPECT_FALSE(folds({power(6), 1}));         // 15
  EXPECT_TRUE(folds({power(6), 2}));          // 2^-8: 14
  EXPECT_FALSE(folds({power(7), 2}));         // 15
  EXPECT_TRUE(folds({power(7), 4}));          // 2^-7: 14
  EXPECT_FALSE(folds({power(8), 4}));         // 15
  EXPECT_FALSE(folds({power(8), 1}));         // 17, the widest of all
  EXPECT_FALSE(folds({1, power(0), power(6)}));
}

TEST(IsFoldable, OnlyPowersOfTwo) {
  for (int code = 0; code < 256; ++code) {
    const bool is_power = code == 0 || code == 1 || code == 2 || code == 4 ||
                          (code >= 8 && code < 0x7F && code % 8 == 0);
    EXPECT_EQ(folds({static_cast<std::uint8_t>(code)}), is_power) << code;
    // One bad scale among good ones decides.
    if (!is_power) {
      EXPECT_FALSE(folds({power(0), power(0), static_cast<std::uint8_t>(code)})) << code;
    }
  }
}

TEST(IsFoldable, ZeroScalesDoNotWidenTheSpan) {
  EXPECT_TRUE(folds({0}));
  EXPECT_TRUE(folds({0, 0, power(8), 0, power(-6)}));
  EXPECT_FALSE(folds({0x80}));  // -0 is no scale that we write
}

TEST(IsFoldable, LooksAtEveryRowAndNotAtThePad) {
  std::vector<std::uint8_t> scales = {power(0), power(1), 0x7F, power(2), power(3), 0x7F};
  MatrixView m;
  m.format = Format::kNvfp4;
  m.rows = 2;
  m.cols = m.row_stride = 32;
  m.block_scales = scales.data();
  m.block_cols = 16;
  m.scale_stride = 3;
  EXPECT_TRUE(is_foldable(m));
  scales[4] = 0x51;  // 9
  EXPECT_FALSE(is_foldable(m));
}

TEST(IsFoldable, NothingElseThanNvfp4WithData) {
  MatrixView m;
  for (const Format format :
       {Format::kF32, Format::kBf16, Format::kE4m3, Format::kMxfp4, Format::kNvfp4}) {
    m.format = format;
    m.rows = 1;
    m.cols = 16;
    m.block_cols = 16;
    EXPECT_FALSE(is_foldable(m));
  }
}

// One row of MXFP4 with these E8M0 codes.
ScaleExponents scan_mxfp4(std::vector<std::uint8_t> codes) {
  MatrixView m;
  m.format = Format::kMxfp4;
  m.rows = 1;
  m.block_cols = 32;
  m.cols = m.row_stride = static_cast<std::int64_t>(codes.size()) * 32;
  m.block_scales = codes.data();
  m.scale_stride = static_cast<std::int64_t>(codes.size());
  return scan_block_scales(m);
}

TEST(ScanBlockScales, OfMxfp4ReadsExponents) {
  const ScaleExponents scales = scan_mxfp4({120, 134, 127});
  EXPECT_EQ(scales.low, -7);
  EXPECT_EQ(scales.high, 7);
  EXPECT_TRUE(scales.fold());                    // 14
  EXPECT_FALSE(scan_mxfp4({120, 135}).fold());   // 15
  EXPECT_EQ(scan_mxfp4({112, 126}).span(), 14);  // on one side of 1
  EXPECT_EQ(scan_mxfp4({120}).span(), 0);
  EXPECT_EQ(scan_mxfp4({0, 254}).span(), 254);  // 2^-127 is a scale like others
  EXPECT_FALSE(scan_mxfp4({120, 255}).fold());  // NaN
  EXPECT_TRUE(scan_mxfp4({}).empty());
  EXPECT_EQ(scan_mxfp4({}).span(), 0);
}

const FoldGroup* find_group(const FoldReport& report, MatrixKind kind, bool is_draft = false) {
  for (const FoldGroup& group : report.groups) {
    if (group.kind == kind && group.is_draft == is_draft) return &group;
  }
  return nullptr;
}

TEST(ScanFolds, OfficialWeightsAreExactInFp8) {
  for (const auto& dir : {golden_dir("flash-official"), nano_dir()}) {
    SCOPED_TRACE(dir);
    const FoldReport report = scan_folds(*load_checkpoint(dir));
    EXPECT_EQ(report.answer().substr(0, 17), "exact in FP8: all");
    std::int64_t matrices = 0;
    for (const FoldGroup& group : report.groups) {
      EXPECT_EQ(group.is_exact_in_fp8(), is_quantized(group.format));
      EXPECT_EQ(group.whole_span.has_value(), group.format == Format::kMxfp4);
      if (group.whole_span.has_value()) {
        EXPECT_LE(group.widest_span.value(), *group.whole_span);
      }
      matrices += group.matrices;
    }
    EXPECT_EQ(matrices, std::ssize(report.matrices));
    ASSERT_NE(find_group(report, MatrixKind::kExpertUp), nullptr);
    ASSERT_NE(find_group(report, MatrixKind::kExpertUp, true), nullptr);
    EXPECT_EQ(find_group(report, MatrixKind::kExpertUp)->format, Format::kMxfp4);
    EXPECT_EQ(find_group(report, MatrixKind::kHead)->is_exact_in_fp8(), false);
  }
}

TEST(ScanFolds, DataDerivedScalesNeedBf16) {
  const FoldReport report = scan_folds(*load_checkpoint(golden_dir("flash-nvfp4")));
  for (const MatrixKind kind :
       {MatrixKind::kExpertGate, MatrixKind::kExpertUp, MatrixKind::kExpertDown}) {
    const FoldGroup& group = *find_group(report, kind);
    EXPECT_EQ(group.format, Format::kNvfp4);
    EXPECT_EQ(group.exact_in_fp8, 0);
    EXPECT_FALSE(group.widest_span.has_value());
    EXPECT_FALSE(group.whole_span.has_value());
    EXPECT_TRUE(find_group(report, kind, true)->is_exact_in_fp8());  // MXFP4
  }
  EXPECT_TRUE(find_group(report, MatrixKind::kAttention)->is_exact_in_fp8());
  EXPECT_EQ(report.answer().substr(0, 10), "needs BF16");
}

TEST(ScanFolds, OfAModelWithoutQuantisedMatrices) {
  const FoldReport report = scan_folds(*load_checkpoint(golden_dir("flash-bf16")));
  EXPECT_EQ(report.answer(), "needs BF16: no matrix is quantised");
  for (const MatrixFold& fold : report.matrices) {
    EXPECT_FALSE(fold.exponents.has_value());
    EXPECT_FALSE(fold.is_exact_in_fp8);
  }
}

// A group as it is when all scales of expert 1's gate in layer 2 are 2^-7 but for one of 2^high.
FoldReport with_span(int high) {
  EditableModel model(golden_dir("flash-official"));
  EditableModel::Tensor& scales = model.tensor("layers.2.ffn.experts.1.w1.scale");
  std::fill(scales.bytes.begin(), scales.bytes.end(), std::byte{120});
  scales.bytes.back() = static_cast<std::byte>(127 + high);
  return scan_folds(*model.load());
}

TEST(ScanFolds, OneMatrixWithASpanOfFifteenDecidesForItsGroup) {
  const FoldReport folds = with_span(7), does_not = with_span(8);
  EXPECT_EQ(folds.answer().substr(0, 17), "exact in FP8: all");
  EXPECT_EQ(find_group(folds, MatrixKind::kExpertGate)->widest_span, 14);
  const FoldGroup& group = *find_group(does_not, MatrixKind::kExpertGate);
  EXPECT_EQ(group.widest_span, 15);
  EXPECT_EQ(group.exact_in_fp8, group.matrices - 1);
  EXPECT_TRUE(find_group(does_not, MatrixKind::kExpertUp)->is_exact_in_fp8());
  std::int64_t quantized = 0;
  for (const MatrixFold& fold : does_not.matrices) {
    quantized += is_quantized(fold.matrix.view.format) ? 1 : 0;
    if (is_quantized(fold.matrix.view.format)) {
      EXPECT_EQ(fold.is_exact_in_fp8, fold.matrix.name != "layers.2.ffn.experts.1.w1");
    }
  }
  EXPECT_EQ(does_not.answer(), "needs BF16: 1 of " + std::to_string(quantized) +
                                   " quantised matrices do not fold into FP8");
}

// flash-nvfp4 with block scales of 1 and global scales of 2^-3, and what `edit` makes of it.
template <class Edit>
FoldReport power_of_two_model(Edit&& edit) {
  EditableModel model(golden_dir("flash-nvfp4"));
  for (EditableModel::Tensor& tensor : model.tensors) {
    if (tensor.name.ends_with(".weight_scale"))
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0x38});
    if (tensor.name.ends_with(".weight_scale_2")) tensor.set<float>(0, 0x1p-3f);
  }
  edit(model);
  return scan_folds(*model.load());
}

TEST(ScanFolds, OneScaleThatIsNoPowerOfTwoDecides) {
  const FoldReport all = power_of_two_model([](EditableModel&) {});
  EXPECT_EQ(all.answer().substr(0, 17), "exact in FP8: all");
  EXPECT_EQ(find_group(all, MatrixKind::kExpertDown)->whole_span, 0);
  const FoldReport one = power_of_two_model([](EditableModel& model) {
    model.tensor("layers.1.ffn.experts.3.w2.weight_scale").bytes[5] = std::byte{0x39};  // 1.125
  });
  const FoldGroup& group = *find_group(one, MatrixKind::kExpertDown);
  EXPECT_EQ(group.exact_in_fp8, group.matrices - 1);
  EXPECT_FALSE(group.whole_span.has_value());
  EXPECT_EQ(one.answer().substr(0, 16), "needs BF16: 1 of");
}

// The global scale is the matrix's own and costs nothing, so it counts for the whole group only.
TEST(ScanFolds, GlobalScalesWidenTheWholeNotTheMatrix) {
  const FoldReport apart = power_of_two_model([](EditableModel& model) {
    model.tensor("layers.1.ffn.experts.3.w2.weight_scale_2").set<float>(0, 0x1p-23f);
  });
  EXPECT_TRUE(find_group(apart, MatrixKind::kExpertDown)->is_exact_in_fp8());
  EXPECT_EQ(find_group(apart, MatrixKind::kExpertDown)->widest_span, 0);
  EXPECT_EQ(find_group(apart, MatrixKind::kExpertDown)->whole_span, 20);
  const FoldReport odd = power_of_two_model([](EditableModel& model) {
    model.tensor("layers.1.ffn.experts.3.w2.weight_scale_2").set<float>(0, 0.3f);
  });
  EXPECT_TRUE(find_group(odd, MatrixKind::kExpertDown)->is_exact_in_fp8());
  EXPECT_FALSE(find_group(odd, MatrixKind::kExpertDown)->whole_span.has_value());
}

TEST(ScanFolds, ProgressCountsScaleBytesAndMayEndTheScan) {
  const auto weights = load_checkpoint(golden_dir("flash-official"));
  std::vector<std::int64_t> seen;
  std::int64_t all = 0;
  scan_folds(*weights, [&](std::int64_t done, std::int64_t total) {
    seen.push_back(done);
    all = total;
  });
  ASSERT_FALSE(seen.empty());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), all);
  std::int64_t bytes = 0;
  for (const NamedMatrix& matrix : list_matrices(*weights)) {
    if (matrix.view.format == Format::kMxfp4) bytes += matrix.view.rows * matrix.view.cols / 32;
  }
  EXPECT_EQ(all, bytes);
  EXPECT_THROW(scan_folds(*weights, [](std::int64_t, std::int64_t) { throw 1; }), int);
}

}  // namespace
}  // namespace dsv4
