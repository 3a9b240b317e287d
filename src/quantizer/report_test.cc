// report_test.cc: totals by kind and layer, the same bytes from the same figures, a table and a
// plot that never claim more than was kept.
#include "quantizer/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

namespace dsv4 {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

NamedMatrix matrix(MatrixKind kind, int layer, Format format) {
  NamedMatrix result;
  result.kind = kind;
  result.layer = layer;
  result.view.format = format;
  return result;
}

// `errors` of 16 values, each 1, off by 0.5.
ErrorTally tally(std::int64_t errors) {
  ErrorTally result;
  result.values = 16;
  result.exact_values = 16 - errors;
  result.source_squares = 16;
  result.error_squares = 0.25 * static_cast<double>(errors);
  result.dot = 16 - 0.5 * static_cast<double>(errors);
  result.quant_blocks = 1;
  if (errors > 0) result.worst = {std::sqrt(result.error_squares / 16), "m", 3, 5};
  return result;
}

QuantizationReport example() {
  QuantizationReport report;
  report.add(matrix(MatrixKind::kHead, -1, Format::kBf16), tally(4));
  report.add(matrix(MatrixKind::kExpertGate, 1, Format::kMxfp4), tally(0));
  report.add(matrix(MatrixKind::kExpertGate, 0, Format::kMxfp4), tally(1));
  report.add(matrix(MatrixKind::kExpertGate, 1, Format::kE4m3), tally(2));
  return report;
}

TEST(Report, TotalsByKindAndLayer) {
  const QuantizationReport report = example();
  EXPECT_EQ(report.kinds(), (std::vector{MatrixKind::kExpertGate, MatrixKind::kHead}));
  const ReportEntry& layer = report.entries().at({MatrixKind::kExpertGate, 1});
  EXPECT_EQ(layer.matrices, 2);
  EXPECT_EQ(layer.tally.exact_values, 30);
  const ReportEntry experts = report.total(MatrixKind::kExpertGate);
  EXPECT_EQ(experts.matrices, 3);
  EXPECT_EQ(experts.sources, (std::set{Format::kMxfp4, Format::kE4m3}));
  EXPECT_EQ(experts.tally.values, 48);
  EXPECT_EQ(report.total().matrices, 4);
  EXPECT_EQ(report.total().tally.exact_values, 57);
  EXPECT_EQ(report.total(MatrixKind::kAttention).matrices, 0);
}

TEST(Report, JsonHasEveryEntryAndEveryFigure) {
  const nlohmann::ordered_json json = to_json(example());
  EXPECT_EQ(json.dump(), to_json(example()).dump());
  const auto expect = [](const nlohmann::ordered_json& entry, const ReportEntry& want) {
    EXPECT_EQ(entry["matrices"], want.matrices);
    EXPECT_EQ(entry["sources"].size(), want.sources.size());
    EXPECT_EQ(entry["exact_share"], want.tally.exact_share());
    EXPECT_EQ(entry["relative_error"], want.tally.relative_error());
    EXPECT_EQ(entry["cosine"], want.tally.cosine());
    EXPECT_EQ(error_tally_from_json(entry), want.tally);
  };
  const QuantizationReport report = example();
  expect(json["total"], report.total());
  ASSERT_EQ(json["kinds"].size(), 2u);
  EXPECT_EQ(json["kinds"][0]["kind"].get<std::string>(), "expert gate");
  EXPECT_EQ(json["kinds"][0]["sources"].get<std::vector<std::string>>(),
            (std::vector<std::string>{"FP8", "MXFP4"}));
  expect(json["kinds"][0], report.total(MatrixKind::kExpertGate));
  ASSERT_EQ(json["kinds"][0]["layers"].size(), 2u);
  EXPECT_EQ(json["kinds"][0]["layers"][1]["layer"], 1);
  expect(json["kinds"][0]["layers"][1], report.entries().at({MatrixKind::kExpertGate, 1}));
  EXPECT_EQ(json["kinds"][1]["layers"][0]["layer"], -1);
}

TEST(Report, TheTableSaysThatNothingWasLostOnlyWhereItIsSo) {
  QuantizationReport report;
  report.add(matrix(MatrixKind::kExpertDown, 0, Format::kMxfp4), tally(0));
  EXPECT_THAT(report_table(report), HasSubstr("Nothing was lost"));
  EXPECT_THAT(report_table(report), HasSubstr("100 %"));
  EXPECT_THAT(report_table(report), Not(HasSubstr("total")));
  // One value of many is no reason to round.
  ErrorTally lossy = tally(0);
  lossy.values = 1000000000;
  lossy.exact_values = lossy.values - 1;
  lossy.error_squares = 1e-20;
  report.add(matrix(MatrixKind::kExpertDown, 0, Format::kMxfp4), lossy);
  EXPECT_THAT(report_table(report), Not(HasSubstr("Nothing was lost")));
  EXPECT_THAT(report_table(report), Not(HasSubstr("100 %")));
  EXPECT_THAT(report_table(report), HasSubstr("99.99 %"));
}

TEST(Report, TheTableNamesWhatWasLost) {
  QuantizationReport report = example();
  ErrorTally odd = tally(16);
  odd.quant_blocks = 9;
  odd.cast_blocks = 1;
  odd.reencoded_blocks = 2;
  odd.zeroed_blocks = 3;
  odd.saturated_values = 4;
  odd.scales_too_large = 5;
  odd.scales_too_small = 6;
  odd.worst = {0.75, "layers.2.ffn.experts.1.w1", 30, 7};
  report.add(matrix(MatrixKind::kExpertGate, 2, Format::kMxfp4), odd);
  const std::string table = report_table(report);
  for (const char* part :
       {"expert gate  FP8+MXFP4", "head", "total", "1 of 13 blocks of 16 were cast",
        "2 blocks of FP4 sources were encoded again", "3 blocks became zero",
        "4 values were cut off", "5 blocks wanted a scale above 448",
        "6 blocks wanted a scale below E4M3's smallest",
        "scales too large  too small  zeroed blocks  values cut off\n"
        "expert gate                 5          6              3               4\n",
        "Worst block: layers.2.ffn.experts.1.w1, row 30, block 7", "error 0.750"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
  // Columns are columns.
  const std::size_t width = table.find('\n');
  for (std::size_t line = 0, begin = 0; line < 4; ++line, begin += width + 1) {
    EXPECT_EQ(table.find('\n', begin), begin + width);
  }
}

TEST(Report, TheTableSaysThatNoLimitWasReachedOnlyWhereItIsSo) {
  const std::string sentence = "No scale was out of range, no block became zero, no value was cut";
  EXPECT_THAT(report_table(example()), HasSubstr(sentence));
  EXPECT_THAT(report_table(example()), Not(HasSubstr("zeroed")));
  for (std::int64_t ErrorTally::*count :
       {&ErrorTally::scales_too_large, &ErrorTally::scales_too_small, &ErrorTally::zeroed_blocks,
        &ErrorTally::saturated_values}) {
    QuantizationReport report = example();
    ErrorTally one = tally(1);
    one.*count = 1;
    report.add(matrix(MatrixKind::kHead, -1, Format::kBf16), one);
    const std::string table = report_table(report);
    EXPECT_THAT(table, Not(HasSubstr(sentence)));
    EXPECT_THAT(table, HasSubstr("zeroed blocks"));
    EXPECT_THAT(table, Not(HasSubstr("1 blocks"))) << table;
    EXPECT_THAT(table, Not(HasSubstr("1 values"))) << table;
  }
}

// Of all kinds, in more than one format, with as many blocks as Pro has.
TEST(Report, TheTablesFitIntoAHundredColumns) {
  QuantizationReport report;
  ErrorTally large = tally(4);
  large.reencoded_blocks = large.zeroed_blocks = large.saturated_values = 100'000'000'000;
  large.scales_too_large = large.scales_too_small = 100'000'000'000;
  for (const MatrixKind kind :
       {MatrixKind::kAttention, MatrixKind::kCompressor, MatrixKind::kExpertGate,
        MatrixKind::kExpertUp, MatrixKind::kExpertDown, MatrixKind::kSharedExpert,
        MatrixKind::kHead}) {
    report.add(matrix(kind, 0, Format::kMxfp4), large);
    report.add(matrix(kind, 0, Format::kBf16), large);
  }
  std::istringstream lines(report_table(report));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Report, OfNothing) {
  const QuantizationReport report;
  EXPECT_EQ(to_json(report)["total"]["matrices"], 0);
  EXPECT_EQ(to_json(report)["kinds"].size(), 0u);
  EXPECT_THAT(report_table(report), HasSubstr("total"));
  EXPECT_THAT(report_plot_svg(report), HasSubstr("</svg>"));
}

// The y of every marker, from the top.
std::vector<double> marker_heights(const std::string& svg) {
  std::vector<double> heights;
  const std::regex marker("cy=\"([0-9.]+)\"");
  for (std::sregex_iterator it(svg.begin(), svg.end(), marker), end; it != end; ++it) {
    heights.push_back(std::stod((*it)[1]));
  }
  return heights;
}

TEST(Report, ThePlotHasAMarkerForEveryEntryAtItsHeight) {
  const std::string svg = report_plot_svg(example());
  EXPECT_EQ(svg, report_plot_svg(example()));
  const std::vector<double> heights = marker_heights(svg);
  ASSERT_EQ(heights.size(), 3u);  // gate 0, gate 1, head
  const double bottom = 340;
  const double gate = bottom - heights[0], next_gate = bottom - heights[1];
  const double head = bottom - heights[2];
  // Errors are sqrt(1/64), sqrt(2/128), sqrt(4/64); heights have a tenth of a point.
  EXPECT_NEAR(next_gate, gate, 0.11);
  EXPECT_NEAR(head, 2 * gate, 0.3);
  EXPECT_GE(heights[2], 50);
  EXPECT_THAT(svg, HasSubstr(">head</text>"));
  EXPECT_THAT(svg, HasSubstr(">expert gate</text>"));
}

TEST(Report, ThePlotOfALosslessCastLiesOnTheAxis) {
  QuantizationReport report;
  for (int layer = 0; layer < 3; ++layer) {
    report.add(matrix(MatrixKind::kExpertUp, layer, Format::kMxfp4), tally(0));
  }
  const std::string svg = report_plot_svg(report);
  EXPECT_EQ(marker_heights(svg), (std::vector<double>{340, 340, 340}));
  EXPECT_THAT(svg, HasSubstr("nothing was lost"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace dsv4
