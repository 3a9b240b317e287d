// The golden models pass their recorded values in every mode, and the judgement fails when the
// arithmetic is wrong: each mutation below is a mistake that an implementation could make.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <tuple>

#include "checkpoint/bind.h"
#include "reference/reference_backend.h"
#include "runtime/verify.h"
#include "testing/golden_copy.h"
#include "testing/poisoned_backend.h"

namespace dsv4 {
namespace {

struct GoldenMode {
  const char* model;
  const char* mode;
  Activations activations;
  bool simulate_rows;
  std::size_t num_checks;  // 8 of streams, 16 of sublayers, 12 of logits, 1 of the draft block

  ModelOptions options() const {
    return {.activations = activations,
            .simulate_rows = simulate_rows,
            .kv = simulate_rows ? KvFormat::kFp8 : KvFormat::kF32};
  }
};

const GoldenMode kFp32{"flash-bf16", "fp32", Activations::kA16, false, 37};
const GoldenMode kQat{"flash-bf16", "qat", Activations::kA16, true, 21};
const GoldenMode kOfficialA16{"flash-official", "a16", Activations::kA16, true, 37};
const GoldenMode kOfficialA8{"flash-official", "a8", Activations::kA8, true, 20};
const GoldenMode kNvfp4A16{"flash-nvfp4", "a16", Activations::kA16, true, 37};
const GoldenMode kNvfp4A4{"flash-nvfp4", "a4", Activations::kA4, true, 20};

std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const VerifyCheck& check : report.checks) text += check.to_string() + "\n";
  return text + report.summary();
}

void PrintTo(const GoldenMode& mode, std::ostream* os) { *os << mode.model << " " << mode.mode; }

using GoldenRun = std::tuple<const char*, GoldenMode>;  // device, mode

class Golden : public testing::TestWithParam<GoldenRun> {};

// New memory holds NaN, so a value that is read before it was written fails as well.
TEST_P(Golden, Passes) {
  const auto& [device, mode] = GetParam();
  const std::filesystem::path dir = golden_dir(mode.model);
  const std::unique_ptr<Backend> backend = poisoned_backend(device);
  const VerifyReport report =
      verify_golden(load_checkpoint(dir), *backend, mode.options(),
                    dir / ("golden-" + std::string(mode.mode) + ".safetensors"));
  EXPECT_TRUE(report.passed()) << text_of(report);
  EXPECT_EQ(report.checks.size(), mode.num_checks);
}

std::string run_name(const testing::TestParamInfo<GoldenRun>& info) {
  const auto& [device, mode] = info.param;
  std::string name = std::string(device) + "_" + mode.model + "_" + mode.mode;
  for (char& c : name) {
    if (c == '-') c = '_';
  }
  return name;
}

// Both compute on FP32 activations, so the same limits hold for both.
INSTANTIATE_TEST_SUITE_P(Modes, Golden,
                         testing::Combine(testing::Values("reference", "cpu"),
                                          testing::Values(kFp32, kQat, kOfficialA16, kOfficialA8,
                                                          kNvfp4A16, kNvfp4A4)),
                         run_name);

// A BF16 cache holds every simulated row exactly.
TEST(GoldenCache, Bf16RowsPassAsFp8RowsDo) {
  GoldenCopy golden("flash-bf16", "qat");
  golden.keep_short_prompts();
  const TestFolder folder;
  ReferenceBackend backend(true);
  ModelOptions options = kQat.options();
  options.kv = KvFormat::kBf16;
  const VerifyReport report = verify_golden(load_checkpoint(golden_dir("flash-bf16")), backend,
                                            options, golden.write(folder.path()));
  EXPECT_TRUE(report.passed()) << text_of(report);
}

// Weights that a test may change.
ModelWeights open_weights(std::string_view model) {
  const std::filesystem::path dir = golden_dir(model);
  return bind_weights(load_model_config(dir),
                      std::make_shared<TensorStore>(TensorStore::open(dir)));
}

// Replaces the data of a plain matrix by a copy that `weights` owns, and returns that.
template <class T>
T* own_data(ModelWeights& weights, MatrixView& m) {
  const auto bytes = static_cast<std::size_t>(data_bytes(m.format, m.rows * m.cols));
  weights.copies.emplace_back(bytes);
  std::memcpy(weights.copies.back().data(), m.data, bytes);
  m.data = weights.copies.back().data();
  return weights.copies.back().as<T>();
}

struct Mutation {
  const char* name;
  GoldenMode mode;
  std::optional<int> departs;  // the first layer that must fail; none: the head or the draft block
  std::function<void(ModelWeights&)> change;
  std::function<void(ModelOptions&)> choose = [](ModelOptions&) {};
};

void PrintTo(const Mutation& mutation, std::ostream* os) { *os << mutation.name; }

LayerWeights& layer(ModelWeights& w, std::size_t i) { return w.layers.at(i); }

const Mutation kMutations[] = {
    // One sign of one weight in 16,384.
    {"FlippedWeight", kFp32, 2,
     [](ModelWeights& w) { own_data<std::uint16_t>(w, layer(w, 2).kv)[77] ^= 0x8000; }},
    {"NanWeight", kFp32, 3,
     [](ModelWeights& w) { own_data<std::uint16_t>(w, layer(w, 3).o_b)[5] = 0x7FC0; }},
    {"OtherSwigluLimit", kFp32, 0, [](ModelWeights& w) { w.config.swiglu_limit *= 1.05; }},
    {"NoSwigluLimit", kNvfp4A4, 0, [](ModelWeights& w) { w.config.swiglu_limit = 0; }},
    {"WindowOneShort", kFp32, 0, [](ModelWeights& w) { w.config.window -= 1; }},
    {"WindowOneLong", kQat, 0, [](ModelWeights& w) { w.config.window += 1; }},
    {"OneIndexRowLess", kFp32, 1, [](ModelWeights& w) { w.config.index_top_k -= 1; }},
    {"NoYarn", kFp32, 1, [](ModelWeights& w) { w.config.yarn.factor = 1; }},
    {"CompressedLayersOnPlainTheta", kFp32, 1,
     [](ModelWeights& w) { w.config.compress_rope_theta = w.config.rope_theta; }},
    {"TwoSinkhornIterations", kFp32, 0, [](ModelWeights& w) { w.config.sinkhorn_iters = 2; }},
    {"SoftmaxRouter", kFp32, 0, [](ModelWeights& w) { w.config.scoring = Scoring::kSoftmax; }},
    {"NoRoutedScale", kFp32, 0, [](ModelWeights& w) { w.config.routed_scale = 1; }},
    {"GateAndUpSwapped", kOfficialA8, 1,
     [](ModelWeights& w) { std::swap(layer(w, 1).experts.gate, layer(w, 1).experts.up); }},
    {"ExpertsSwapped", kNvfp4A16, 2,
     [](ModelWeights& w) { std::swap(layer(w, 2).experts.down[0], layer(w, 2).experts.down[1]); }},
    {"InputScalesOfTheWrongProjection", kNvfp4A4, 0,
     [](ModelWeights& w) {
       for (LayerWeights& l : w.layers)
         std::swap(l.experts.gate_up_input_scales, l.experts.down_input_scales);
     }},
    {"A16InsteadOfA8", kOfficialA8, 0, [](ModelWeights&) {},
     [](ModelOptions& options) { options.activations = Activations::kA16; }},
    {"A8InsteadOfA16", kOfficialA16, 0, [](ModelWeights&) {},
     [](ModelOptions& options) { options.activations = Activations::kA8; }},
    {"A16InsteadOfA4", kNvfp4A4, 0, [](ModelWeights&) {},
     [](ModelOptions& options) { options.activations = Activations::kA16; }},
    {"ExactInsteadOfSimulatedRows", kQat, 0, [](ModelWeights&) {},
     [](ModelOptions& options) {
       options.simulate_rows = false;
       options.kv = KvFormat::kF32;
     }},
    {"SimulatedInsteadOfExactRows", kFp32, 0, [](ModelWeights&) {},
     [](ModelOptions& options) {
       options.simulate_rows = true;
       options.kv = KvFormat::kFp8;
     }},
    {"HeadWeightFlipped", kFp32, std::nullopt,
     [](ModelWeights& w) { own_data<std::uint16_t>(w, w.head)[300] ^= 0x8000; }},
    {"DraftNormsSwapped", kFp32, std::nullopt,
     [](ModelWeights& w) { std::swap(w.draft->e_norm, w.draft->h_norm); }},
};

class GoldenMutation : public testing::TestWithParam<Mutation> {};

TEST_P(GoldenMutation, FailsAndNamesTheLayer) {
  const Mutation& mutation = GetParam();
  GoldenCopy golden(mutation.mode.model, mutation.mode.mode);
  golden.keep_short_prompts();
  const TestFolder folder;
  auto weights = std::make_shared<ModelWeights>(open_weights(mutation.mode.model));
  mutation.change(*weights);
  ModelOptions options = mutation.mode.options();
  mutation.choose(options);
  ReferenceBackend backend;
  const VerifyReport report = verify_golden(weights, backend, options, golden.write(folder.path()));
  EXPECT_FALSE(report.passed()) << text_of(report);
  EXPECT_EQ(report.first_departing_layer(), mutation.departs) << text_of(report);
}

std::string mutation_name(const testing::TestParamInfo<Mutation>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, GoldenMutation, testing::ValuesIn(kMutations), mutation_name);

// The last prefilled row and the first decoded one among them. What a layer's attention gave is fed
// to nothing, so no other check may see it.
TEST(GoldenRows, AWrongRowFailsItsOwnCheckAlone) {
  struct Row {
    std::size_t row;
    const char* rows;
  };
  const std::unique_ptr<Backend> backend = poisoned_backend("cpu");
  const auto weights = load_checkpoint(golden_dir(kFp32.model));
  for (const Row& wrong :
       {Row{0, "prefill"}, Row{120, "prefill"}, Row{121, "decode"}, Row{146, "decode"}}) {
    SCOPED_TRACE(wrong.row);
    GoldenCopy golden(kFp32.model, kFp32.mode);
    golden.keep_short_prompts();
    std::vector<std::byte>& bytes = golden.tensor("mid.layers.2.attn_out").bytes;
    const std::size_t row_bytes = bytes.size() / 147;
    std::memset(bytes.data() + wrong.row * row_bytes, 0, row_bytes);
    const TestFolder folder;
    const VerifyReport report =
        verify_golden(weights, *backend, kFp32.options(), golden.write(folder.path()));
    std::vector<std::string> failed;
    for (const VerifyCheck& check : report.checks) {
      if (!check.passed()) failed.push_back(check.name);
    }
    EXPECT_THAT(failed, testing::ElementsAre(testing::AllOf(
                            testing::StartsWith("layer 2 "),
                            testing::EndsWith(std::string("attention, ") + wrong.rows))));
  }
}

TEST(GoldenErrors, DraftLogitsNeedADraftBlock) {
  ReferenceBackend backend;
  const std::filesystem::path dir = golden_dir("flash-bf16");
  const auto weights = load_checkpoint(dir, {.with_draft = false});
  try {
    verify_golden(weights, backend, kFp32.options(), dir / "golden-fp32.safetensors");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadRequest);
    EXPECT_THAT(error.what(), testing::HasSubstr("draft block"));
  }
}

}  // namespace
}  // namespace dsv4
