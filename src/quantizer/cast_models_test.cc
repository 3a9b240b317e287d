// cast_models_test.cc: the experts of the bundled models are cast to NVFP4 without losing a bit.
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/bind.h"
#include "quantizer/encoder_fixtures.h"

namespace dsv4 {
namespace {

// Gate and up of each routed expert together, down alone.
std::vector<MatrixGroup> expert_groups(const ModelWeights& weights) {
  std::vector<MatrixGroup> groups;
  for (const NamedMatrix& matrix : list_matrices(weights)) {
    if (!is_expert(matrix.kind) || !is_packed(matrix.view.format)) continue;
    if (matrix.kind == MatrixKind::kExpertUp) {
      groups.back().members.push_back(matrix);
    } else {
      groups.push_back({{matrix}});
    }
  }
  return groups;
}

void expect_lossless(const std::string& model) {
  const auto weights = load_checkpoint(std::filesystem::path(DSV4_SOURCE_DIR) / model);
  const std::vector<MatrixGroup> groups = expert_groups(*weights);
  ASSERT_FALSE(groups.empty());
  for (const MatrixGroup& group : groups) {
    SCOPED_TRACE(group.members[0].name);
    const auto encoded = encode_group(group, {}, {"cpu", 2});
    for (std::size_t i = 0; i < encoded.size(); ++i) {
      const MatrixView& source = group.members[i].view;
      const ErrorTally& tally = encoded[i].tally;
      EXPECT_EQ(count_exact(source, encoded[i].matrix.view()), source.rows * source.cols);
      EXPECT_EQ(tally.cast_blocks, source.rows * source.cols / 16);
      EXPECT_TRUE(tally.lossless());
      ErrorTally plain = plain_tally(group.members[i].name, source, encoded[i]);
      // Of a cast block nothing is wanted: its scale is what it is.
      plain.scales_too_small = 0;
      expect_same_figures(tally, plain);
    }
  }
}

TEST(CastModels, FlashOfficial) { expect_lossless("tests/data/golden/flash-official"); }
TEST(CastModels, FlashNvfp4) { expect_lossless("tests/data/golden/flash-nvfp4"); }
TEST(CastModels, Nano) { expect_lossless("models/nano"); }

}  // namespace
}  // namespace dsv4
