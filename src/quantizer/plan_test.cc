// plan_test.cc: what stands where in the output.
#include "quantizer/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_test_files.h"

namespace dsv4 {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct Planned {
  std::shared_ptr<const ModelWeights> weights;
  std::unique_ptr<NamedTensors> names;
  QuantizePlan plan;
};

Planned plan_of(std::shared_ptr<const ModelWeights> weights, const PlanOptions& options) {
  Planned planned{std::move(weights), nullptr, {}};
  planned.names = std::make_unique<NamedTensors>(*planned.weights->store);
  planned.plan = make_plan(*planned.weights, *planned.names, options);
  return planned;
}

std::vector<std::string> tensor_names(const PlannedShard& shard, const std::string& begin) {
  std::vector<std::string> names;
  for (const PlannedTensor& tensor : shard.tensors) {
    if (tensor.declaration.name.starts_with(begin)) names.push_back(tensor.declaration.name);
  }
  return names;
}

const PlannedTensor& planned_tensor(const QuantizePlan& plan, const std::string& name) {
  for (const PlannedShard& shard : plan.shards) {
    for (const PlannedTensor& tensor : shard.tensors) {
      if (tensor.declaration.name == name) return tensor;
    }
  }
  throw std::runtime_error("no tensor " + name);
}

TEST(Plan, CodesAndBlockScalesInPlaceScalarsLast) {
  const Planned planned =
      plan_of(load_checkpoint(golden_dir("flash-official")), {.modules = {"experts"}});
  const PlannedShard& shard = planned.plan.shards.at(0);
  const std::string expert = "layers.1.ffn.experts.0.w1";
  EXPECT_THAT(tensor_names(shard, expert), ElementsAre(expert + ".weight", expert + ".weight_scale",
                                                       expert + ".weight_scale_2"));
  // The others are the source's, in its order, but for what has an odd size: that comes last.
  std::vector<std::string> kept, scalars, odd;
  for (const PlannedTensor& tensor : shard.tensors) {
    const bool is_copy = tensor.bytes == PlannedTensor::Bytes::kCopy;
    const bool is_odd = is_copy && tensor.stored.info->size_bytes() % 4 != 0;
    if (tensor.bytes == PlannedTensor::Bytes::kGlobalScale) {
      scalars.push_back(tensor.declaration.name);
    } else {
      EXPECT_EQ(is_odd, !scalars.empty()) << tensor.declaration.name;
    }
    if (is_copy) (is_odd ? odd : kept).push_back(tensor.declaration.name);
  }
  std::vector<std::string> want_kept, want_odd;
  for (const StoredTensor& tensor : planned.weights->store->tensors()) {
    const std::string& name = tensor.info->name;
    if (name.find(".ffn.experts.") != name.npos && name.starts_with("layers.")) continue;
    (tensor.info->size_bytes() % 4 != 0 ? want_odd : want_kept).push_back(name);
  }
  EXPECT_EQ(kept, want_kept);
  EXPECT_EQ(odd, want_odd);
  EXPECT_FALSE(odd.empty());
  EXPECT_EQ(scalars.size(), planned.plan.matrices.size());
  EXPECT_THAT(planned.plan.notes, Contains(HasSubstr("no input scales")));
}

TEST(Plan, GateAndUpAreOneGroup) {
  const Planned planned = plan_of(load_checkpoint(nano_dir()), {.modules = {"all"}});
  std::int64_t pairs = 0;
  for (const MatrixGroup& group : planned.plan.groups) {
    if (group.members.size() == 1) {
      EXPECT_NE(group.members[0].kind, MatrixKind::kExpertUp);
      EXPECT_NE(group.members[0].kind, MatrixKind::kExpertGate);
      continue;
    }
    ASSERT_EQ(group.members.size(), 2u);
    EXPECT_EQ(group.members[0].kind, MatrixKind::kExpertGate);
    EXPECT_EQ(group.members[1].kind, MatrixKind::kExpertUp);
    EXPECT_EQ(group.members[0].expert, group.members[1].expert);
    EXPECT_EQ(group.members[0].layer, group.members[1].layer);
    ++pairs;
  }
  EXPECT_EQ(pairs, 6 * 8);
  for (const PlannedMatrix& matrix : planned.plan.matrices) {
    const MatrixGroup& group = planned.plan.groups[static_cast<std::size_t>(matrix.group)];
    EXPECT_EQ(group.members[static_cast<std::size_t>(matrix.member)].name, matrix.matrix.name);
  }
}

// An up matrix that is chosen without its gate is a group of its own.
TEST(Plan, LayersOfExpertsInTwoFormatsAreNoted) {
  const auto weights = load_checkpoint(golden_dir("flash-official"));
  const auto notes = [&](std::vector<std::string> modules) {
    return plan_of(weights, {.modules = std::move(modules)}).plan.notes;
  };
  EXPECT_THAT(notes({"*.experts.*.w1"}),
              ::testing::Contains(::testing::HasSubstr("in 4 of 4 layers, layers.0")));
  EXPECT_THAT(notes({"layers.2.ffn.experts.3.*", "layers.1.ffn.experts.*"}),
              ::testing::Contains(::testing::HasSubstr("in 1 of 4 layers, layers.2")));
  for (const char* whole : {"experts", "layers.1.ffn.experts.*", "attention"}) {
    EXPECT_THAT(
        notes({whole}),
        ::testing::Not(::testing::Contains(::testing::HasSubstr("Only some of the routed"))))
        << whole;
  }
}

TEST(Plan, UpWithoutGate) {
  const Planned planned = plan_of(load_checkpoint(nano_dir()), {.modules = {"layers.*.w3"}});
  for (const MatrixGroup& group : planned.plan.groups) EXPECT_EQ(group.members.size(), 1u);
}

TEST(Plan, Nvfp4ThatIsNotChosenComesInTheLayoutAskedFor) {
  EditableModel model(golden_dir("flash-nvfp4"));
  const std::string expert = "layers.0.ffn.experts.1.w2";
  model.tensor(expert + ".weight_scale_2").set<float>(0, 0.5f);
  model.tensor(expert + ".input_scale").set<float>(0, 0.25f);
  const Planned planned = plan_of(model.load(), {.layout = Nvfp4Layout::kCompressedTensors,
                                                 .modules = {"layers.1.ffn.shared_experts.w1"}});
  EXPECT_THAT(
      tensor_names(planned.plan.shards.at(0), expert),
      UnorderedElementsAre(expert + ".weight_packed", expert + ".weight_scale",
                           expert + ".weight_global_scale", expert + ".input_global_scale"));
  const PlannedTensor global = planned_tensor(planned.plan, expert + ".weight_global_scale");
  EXPECT_EQ(global.scalar, 2.0f);
  EXPECT_EQ(global.declaration.shape, Shape{1});
  EXPECT_EQ(planned_tensor(planned.plan, expert + ".input_global_scale").scalar, 4.0f);
}

TEST(Plan, CalibrationGivesEveryExpertItsInputScale) {
  const Planned planned =
      plan_of(load_checkpoint(nano_dir()),
              {.modules = {"experts"}, .calibrated_input_scale = [](const NamedMatrix& matrix) {
                 return matrix.kind == MatrixKind::kExpertDown ? 3.0f : 1.0f + matrix.expert;
               }});
  EXPECT_EQ(planned_tensor(planned.plan, "layers.2.ffn.experts.5.w1.input_scale").scalar, 6.0f);
  EXPECT_EQ(planned_tensor(planned.plan, "layers.2.ffn.experts.5.w3.input_scale").scalar, 6.0f);
  EXPECT_EQ(planned_tensor(planned.plan, "layers.2.ffn.experts.5.w2.input_scale").scalar, 3.0f);
  EXPECT_THAT(planned.plan.notes, IsEmpty());
  // Instead of those that the source has.
  const Planned again =
      plan_of(load_checkpoint(golden_dir("flash-nvfp4")),
              {.modules = {"layers.0.*"},
               .calibrated_input_scale = [](const NamedMatrix&) { return 7.0f; }});
  EXPECT_EQ(planned_tensor(again.plan, "layers.1.ffn.experts.0.w1.input_scale").scalar, 7.0f);
}

// One expert of an NVFP4 model is BF16: it would be the only one without an input scale.
TEST(Plan, InputScalesOfSomeExpertsAreDroppedAndNoted) {
  EditableModel model(golden_dir("flash-nvfp4"));
  for (const std::string name : {"layers.0.ffn.experts.0.w1", "layers.0.ffn.experts.0.w3"}) {
    const Shape shape = model.tensor(name + ".weight").shape;
    for (const char* tensor : {".weight", ".weight_scale", ".weight_scale_2", ".input_scale"}) {
      model.remove(name + tensor);
    }
    model.add(name + ".weight", DType::kBF16, {shape[0], 2 * shape[1]});
  }
  const Planned planned = plan_of(model.load(), {.modules = {"experts"}});
  EXPECT_THAT(planned.plan.notes, Contains(HasSubstr("Only")));
  for (const PlannedTensor& tensor : planned.plan.shards.at(0).tensors) {
    EXPECT_FALSE(tensor.declaration.name.ends_with("input_scale")) << tensor.declaration.name;
  }
}

}  // namespace
}  // namespace dsv4
