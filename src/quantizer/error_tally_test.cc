// error_tally_test.cc: figures derived from sums, merging, and the way through JSON.
#include "quantizer/error_tally.h"

#include <gtest/gtest.h>

#include <cmath>

#include "io/io_test_files.h"

namespace dsv4 {
namespace {

ErrorTally example() {
  ErrorTally tally;
  tally.values = 32;
  tally.exact_values = 24;
  tally.source_squares = 0.1 + 0.2;  // seventeen digits
  tally.error_squares = 1e-300;
  tally.dot = -1.0 / 3;
  tally.quant_blocks = 2;
  tally.cast_blocks = 3;
  tally.reencoded_blocks = 4;
  tally.zeroed_blocks = 5;
  tally.saturated_values = 6;
  tally.scales_too_large = 7;
  tally.scales_too_small = 8;
  tally.worst = {0.7, "layers.0.ffn.experts.1.w2", 9, 10};
  return tally;
}

TEST(ErrorTally, NothingCountedIsNothingLost) {
  const ErrorTally tally;
  EXPECT_TRUE(tally.lossless());
  EXPECT_EQ(tally.exact_share(), 1);
  EXPECT_EQ(tally.relative_error(), 0);
  EXPECT_EQ(tally.cosine(), 1);
}

// x = (3, 4), decoded (3, 0).
TEST(ErrorTally, FiguresOfTwoValues) {
  ErrorTally tally;
  tally.values = 2;
  tally.exact_values = 1;
  tally.source_squares = 25;
  tally.error_squares = 16;
  tally.dot = 9;
  EXPECT_FALSE(tally.lossless());
  EXPECT_EQ(tally.exact_share(), 0.5);
  EXPECT_EQ(tally.relative_error(), 0.8);
  EXPECT_EQ(tally.cosine(), 0.6);
}

// Sums that were rounded apart by a bit.
TEST(ErrorTally, ACosineIsNeverAboveOne) {
  for (int i = 1; i < 100; ++i) {
    ErrorTally tally;
    tally.source_squares = i / 7.0;
    tally.error_squares = 1e-40;
    tally.dot = std::nextafter(tally.source_squares, 0.0);
    EXPECT_LE(tally.cosine(), 1) << i;
    EXPECT_GT(tally.cosine(), 0.999) << i;
  }
}

TEST(ErrorTally, AllZeroedHasNoDirection) {
  ErrorTally tally;
  tally.values = tally.exact_values = 16;
  tally.exact_values = 0;
  tally.source_squares = tally.error_squares = 7;
  EXPECT_EQ(tally.relative_error(), 1);
  EXPECT_EQ(tally.cosine(), 0);
}

TEST(ErrorTally, MergesEveryFigureAndKeepsTheFirstOfEqualWorstBlocks) {
  ErrorTally sum = example();
  ErrorTally other = example();
  other.worst = {0.7, "another", 1, 1};
  sum.merge(other);
  const nlohmann::ordered_json one = to_json(example());
  const nlohmann::ordered_json two = to_json(sum);
  for (const auto& [name, value] : two.items()) {
    if (name == "worst_block") continue;
    EXPECT_EQ(value.get<double>(), 2 * one.at(name).get<double>()) << name;
  }
  EXPECT_EQ(sum.worst, example().worst);
  other.worst.relative_error = 0.75;
  sum.merge(other);
  EXPECT_EQ(sum.worst.matrix, "another");
}

TEST(ErrorTally, JsonKeepsEveryBit) {
  for (const ErrorTally& tally : {ErrorTally(), example()}) {
    const std::string text = to_json(tally).dump();
    EXPECT_EQ(error_tally_from_json(nlohmann::json::parse(text)), tally) << text;
  }
}

TEST(ErrorTally, RefusesJsonThatIsNone) {
  const auto refused = [](const nlohmann::json& json, const std::string& part) {
    expect_error(ErrorCode::kBadRequest, {part}, [&] { error_tally_from_json(json); });
  };
  refused(nlohmann::json::array(), "values");
  const nlohmann::json good = to_json(example());
  for (const auto& [name, value] : good.items()) {
    if (name == "worst_block") continue;
    nlohmann::json bad = good;
    bad.erase(name);
    refused(bad, name);
    bad[name] = "1";
    refused(bad, name);
  }
  nlohmann::json bad = good;
  bad["values"] = -1;
  refused(bad, "values");
  bad = good;
  bad["values"] = 1.5;
  refused(bad, "values");
  for (const char* name : {"matrix", "row", "quant_block", "relative_error"}) {
    bad = good;
    bad["worst_block"][name] = nullptr;
    refused(bad, name);
  }
}

}  // namespace
}  // namespace dsv4
