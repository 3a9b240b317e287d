// module_choice_test.cc: words and patterns against nano's matrices.
#include "quantizer/module_choice.h"

#include <gtest/gtest.h>

#include <set>

#include "checkpoint/checkpoint_test_files.h"

namespace dsv4 {
namespace {

// The kinds that `modules` choose wholly; a kind that is chosen in part fails the test.
std::set<MatrixKind> chosen_kinds(const std::vector<std::string>& modules) {
  const auto weights = load_checkpoint(nano_dir());
  const std::vector<NamedMatrix> matrices = list_matrices(*weights);
  const std::vector<bool> chosen = choose_matrices(matrices, modules);
  std::set<MatrixKind> kinds, others;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    EXPECT_FALSE(matrices[i].is_draft && chosen[i]) << matrices[i].name;
    if (matrices[i].is_draft) continue;
    (chosen[i] ? kinds : others).insert(matrices[i].kind);
  }
  for (const MatrixKind kind : kinds) EXPECT_EQ(others.count(kind), 0u);
  return kinds;
}

TEST(ModuleChoice, WordsNameKinds) {
  using Kinds = std::set<MatrixKind>;
  const Kinds experts{MatrixKind::kExpertGate, MatrixKind::kExpertUp, MatrixKind::kExpertDown};
  EXPECT_EQ(chosen_kinds({"experts"}), experts);
  EXPECT_EQ(chosen_kinds({"attention"}), Kinds{MatrixKind::kAttention});
  EXPECT_EQ(chosen_kinds({"shared_experts", "head"}),
            (Kinds{MatrixKind::kSharedExpert, MatrixKind::kHead}));
  Kinds all = experts;
  all.insert({MatrixKind::kAttention, MatrixKind::kSharedExpert, MatrixKind::kHead});
  EXPECT_EQ(chosen_kinds({"all"}), all);
  EXPECT_EQ(chosen_kinds({"experts", "experts", "*.ffn.experts.*"}), experts);
  all.insert(MatrixKind::kCompressor);
  EXPECT_EQ(chosen_kinds({"*"}), all);
}

TEST(ModuleChoice, PatternsAndNamesChooseSingleMatrices) {
  const auto weights = load_checkpoint(nano_dir());
  const std::vector<NamedMatrix> matrices = list_matrices(*weights);
  const auto names = [&](const std::vector<std::string>& modules) {
    std::vector<std::string> chosen_names;
    const std::vector<bool> chosen = choose_matrices(matrices, modules);
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      if (chosen[i]) chosen_names.push_back(matrices[i].name);
    }
    return chosen_names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({"layers.3.ffn.experts.7.w1"}), Names{"layers.3.ffn.experts.7.w1"});
  EXPECT_EQ(names({"layers.1.ffn.experts.0.*"}),
            (Names{"layers.1.ffn.experts.0.w1", "layers.1.ffn.experts.0.w3",
                   "layers.1.ffn.experts.0.w2"}));
  EXPECT_EQ(names({"*.2.attn.wq_a"}), Names{"layers.2.attn.wq_a"});
}

// Engines take one global scale for both.
TEST(ModuleChoice, GateAndUpOfAnExpertShareTheirGlobalScale) {
  constexpr Format kBf16 = Format::kBf16, kMxfp4 = Format::kMxfp4, kNvfp4 = Format::kNvfp4;
  struct Case {
    Format gate, up;
    float up_scale;  // the gate's is 1
    std::vector<std::string> modules;
    bool is_refused;
  };
  const Case cases[] = {
      {kNvfp4, kNvfp4, 2, {"head"}, true},        {kNvfp4, kNvfp4, 1, {"head"}, false},
      {kNvfp4, kNvfp4, 2, {"*.w1"}, true},        {kNvfp4, kNvfp4, 1, {"*.w1"}, false},
      {kNvfp4, kNvfp4, 2, {"*.w3"}, true},        {kNvfp4, kNvfp4, 2, {"*.w1", "*.w3"}, false},
      {kNvfp4, kNvfp4, 2, {"experts"}, false},    {kBf16, kNvfp4, 1, {"*.w1"}, true},
      {kNvfp4, kMxfp4, 1, {"*.w3"}, true},        {kBf16, kNvfp4, 1, {"*.w3"}, false},
      {kBf16, kNvfp4, 1, {"head"}, false},        {kMxfp4, kMxfp4, 1, {"*.w1"}, false},
      {kBf16, kNvfp4, 1, {"*.w1", "head"}, true}, {kNvfp4, kNvfp4, 2, {"*.w1", "*.w2"}, true},
  };
  const float one = 1;
  for (const Case& c : cases) {
    std::vector<NamedMatrix> matrices(4);
    matrices[0].name = "head";
    matrices[0].kind = MatrixKind::kHead;
    matrices[1].name = "layers.0.ffn.experts.5.w1";
    matrices[1].kind = MatrixKind::kExpertGate;
    matrices[1].view.format = c.gate;
    matrices[1].view.global_scales = &one;
    matrices[2].name = "layers.0.ffn.experts.5.w3";
    matrices[2].kind = MatrixKind::kExpertUp;
    matrices[2].view.format = c.up;
    matrices[2].view.global_scales = &c.up_scale;
    matrices[3].name = "layers.0.ffn.experts.5.w2";
    matrices[3].kind = MatrixKind::kExpertDown;
    const auto choose = [&] { choose_matrices(matrices, c.modules); };
    if (c.is_refused) {
      expect_error(ErrorCode::kBadRequest, {"experts.5.w1", "experts.5.w3", "choose both"}, choose);
    } else {
      EXPECT_NO_THROW(choose()) << c.modules[0];
    }
    // A draft block is kept as it is.
    for (NamedMatrix& matrix : matrices) matrix.is_draft = matrix.kind != MatrixKind::kHead;
    const std::vector<std::string> head{"head"};
    EXPECT_NO_THROW(choose_matrices(matrices, head));
  }
}

}  // namespace
}  // namespace dsv4
