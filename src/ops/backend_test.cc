// What all ops have in common at their door: the check first, then the support, then the workspace,
// each refusal naming the op.
#include "ops/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "testing/check_message.h"

namespace dsv4 {
namespace {

template <class... Params>
std::vector<std::string_view> names_of(const OpSet<Params...>*) {
  return {Params::kOpName...};
}

TEST(Ops, EachHasANameOfItsOwn) {
  const auto names = names_of(static_cast<const AllOps*>(nullptr));
  const std::set<std::string_view> distinct(names.begin(), names.end());
  EXPECT_EQ(distinct.size(), names.size());
  EXPECT_FALSE(distinct.contains(""));
}

MoeCombineParams combine_params() {
  static float values[4] = {};
  static const std::int32_t rows[1] = {0};
  MoeCombineParams params;
  params.expert_out = f32_matrix(values, 1, 2);
  params.token_rows = rows;
  params.experts_per_token = 1;
  params.out = f32_matrix(values + 2, 1, 2);
  return params;
}

template <class Params>
std::string refusal(OpImplementation<Params>&& op, const Params& params) {
  try {
    op.run(params);
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

class OnlyWithReason final : public OpImplementation<MoeCombineParams> {
 public:
  Support supports(const MoeCombineParams&) const override { return {false, "it is Sunday"}; }
};

class WithWorkspace final : public OpImplementation<MoeCombineParams> {
 public:
  Support supports(const MoeCombineParams&) const override { return {}; }
  std::int64_t workspace_bytes(const MoeCombineParams&) const override { return 8; }
};

TEST(Ops, AnUnsupportedOpIsNamedWithTheReason) {
  EXPECT_EQ(refusal(OpImplementation<MoeCombineParams>(), combine_params()),
            "unsupported: the op moe_combine cannot run: this backend has no such op");
  EXPECT_EQ(refusal<MoeCombineParams>(OnlyWithReason(), combine_params()),
            "unsupported: the op moe_combine cannot run: it is Sunday");
}

TEST(Ops, BadParamsAreRefusedBeforeTheOpIs) {
  MoeCombineParams params = combine_params();
  params.experts_per_token = -1;
  EXPECT_THAT(refusal(OpImplementation<MoeCombineParams>(), params),
              testing::StartsWith("bad request: "));
}

TEST(OpsDeathTest, AWorkspaceTooSmallIsABugOfTheCaller) {
  const CheckMessages messages;
  WithWorkspace op;
  EXPECT_DEATH(op.run(combine_params(), {.workspace_bytes = 7}), "moe_combine: workspace of 7");
  op.run(combine_params(), {.workspace_bytes = 8});
}

}  // namespace
}  // namespace dsv4
