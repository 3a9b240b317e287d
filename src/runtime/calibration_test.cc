// calibration_test.cc: what is recorded of each expert's inputs, against products computed row by
// row from the layers' outputs, and what calibration says nothing about.
#include "runtime/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "checkpoint/checkpoint_test_files.h"
#include "numerics/bf16.h"

namespace dsv4 {
namespace {

ModelOpenOptions open_options(const std::filesystem::path& dir, const std::string& device = "cpu",
                              std::int64_t max_step_tokens = 512) {
  ModelOpenOptions options;
  options.model_dir = dir;
  options.device = device;
  options.model.activations = Activations::kA16;
  options.model.max_step_tokens = max_step_tokens;
  options.with_tokenizer = false;
  return options;
}

std::vector<TokenId> some_tokens(int count) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(3 + (i * 37 + i * i) % 60);
  return tokens;
}

// Gives `tokens` in parts of `part`.
TokenSource source_of(std::vector<TokenId> tokens, std::size_t part = 1000000) {
  return [tokens = std::move(tokens), part, used = std::size_t{0}]() mutable {
    const std::size_t begin = used;
    used = std::min(used + part, tokens.size());
    return std::vector<TokenId>(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                tokens.begin() + static_cast<std::ptrdiff_t>(used));
  };
}

InputAmaxes calibrate_dir(const std::filesystem::path& dir, std::vector<TokenId> tokens,
                          std::int64_t window = 64) {
  LoadedModel model(open_options(dir));
  return calibrate(model, source_of(std::move(tokens)), {.window = window});
}

void expect_same(const InputAmaxes& a, const InputAmaxes& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    ASSERT_EQ(a.layers[layer].size(), b.layers[layer].size());
    for (std::size_t i = 0; i < a.layers[layer].size(); ++i) {
      SCOPED_TRACE(fmt::format("layer {} expert {}", layer, i));
      EXPECT_EQ(a.layers[layer][i].gate_up, b.layers[layer][i].gate_up);
      EXPECT_EQ(a.layers[layer][i].down, b.layers[layer][i].down);
      EXPECT_EQ(a.layers[layer][i].tokens, b.layers[layer][i].tokens);
    }
  }
}

// Computes each token's expert inputs alone from what an observer sees without the hook: the
// residual copies before a layer and its attention's output.
class BruteForce final : public LayerObserver {
 public:
  explicit BruteForce(LoadedModel& model) : model_(model) {
    for (const LayerWeights& layer : model.weights().layers)
      layers.emplace_back(static_cast<std::size_t>(layer.num_experts));
  }
  void before_layer(int, const MutableMatrixView& streams) override {
    const auto* data = static_cast<const float*>(streams.data);
    streams_.assign(data, data + streams.rows * streams.cols);
  }
  void after_attention(int layer_idx, const MatrixView& out) override {
    const auto* data = static_cast<const float*>(out.data);
    const std::int64_t width = std::ssize(streams_) / out.rows;
    for (std::int64_t t = 0; t < out.rows; ++t) {
      const auto begin = streams_.begin() + t * width;
      token({begin, begin + width}, data + t * out.cols, layer_idx, token_ids[t]);
    }
  }

  std::vector<std::vector<ExpertAmaxes>> layers;
  std::span<const TokenId> token_ids;  // of the step

 private:
  template <class Params>
  void run(const Params& params) {
    Backend& backend = model_.backend();
    workspace_.resize(static_cast<std::size_t>(backend.workspace_bytes(params)));
    backend.run(params, {.workspace = workspace_.data(),
                         .workspace_bytes = static_cast<std::int64_t>(workspace_.size())});
  }

  // x [h] of one sublayer, and the mixes that lead out of it.
  std::vector<float> mix_in(const HcWeights& hc, const MatrixView& norm,
                            const std::vector<float>& streams) {
    const ModelConfig& c = model_.config();
    std::vector<float> x(static_cast<std::size_t>(c.hidden_size));
    post_.resize(static_cast<std::size_t>(c.hc_copies));
    comb_.resize(static_cast<std::size_t>(c.hc_copies * c.hc_copies));
    run(HcPreParams{.x = f32_matrix(streams.data(), 1, std::ssize(streams)),
                    .copies = c.hc_copies,
                    .mix_weight = hc.mix_weight,
                    .scales = hc.scales,
                    .base = hc.base,
                    .sinkhorn_iters = c.sinkhorn_iters,
                    .hc_eps = static_cast<float>(c.hc_eps),
                    .norm_eps = static_cast<float>(c.norm_eps),
                    .norm_weight = norm,
                    .out = f32_matrix(x.data(), 1, c.hidden_size),
                    .post = post_.data(),
                    .comb = comb_.data()});
    return x;
  }

  void token(std::vector<float> streams, const float* attention, int layer_idx, TokenId id) {
    const ModelConfig& c = model_.config();
    const LayerWeights& layer = model_.weights().layers[static_cast<std::size_t>(layer_idx)];
    mix_in(layer.hc_attn, layer.attn_norm, streams);
    const auto view = f32_matrix(streams.data(), 1, std::ssize(streams));
    run(HcPostParams{.x = view,
                     .y = f32_matrix(attention, 1, c.hidden_size),
                     .copies = c.hc_copies,
                     .post = post_.data(),
                     .comb = comb_.data(),
                     .out = view});
    const std::vector<float> x = mix_in(layer.hc_ffn, layer.ffn_norm, streams);
    std::vector<std::int32_t> expert_idx(static_cast<std::size_t>(c.experts_per_token));
    std::vector<float> expert_weights(expert_idx.size());
    run(RouterParams{.x = f32_matrix(x.data(), 1, c.hidden_size),
                     .weight = layer.router.weight,
                     .bias = layer.router.bias,
                     .hash_table = layer.router.hash_table,
                     .token_ids = &id,
                     .vocab = c.vocab_size,
                     .scoring = ScoringFunction::kSqrtSoftplus,
                     .routed_scale = static_cast<float>(c.routed_scale),
                     .experts_per_token = c.experts_per_token,
                     .expert_idx = expert_idx.data(),
                     .expert_weights = expert_weights.data()});
    for (std::size_t i = 0; i < expert_idx.size(); ++i)
      expert(layer_idx, static_cast<std::size_t>(expert_idx[i]), x, expert_weights[i]);
  }

  void expert(int layer_idx, std::size_t idx, const std::vector<float>& x, float weight) {
    const LayerWeights& layer = model_.weights().layers[static_cast<std::size_t>(layer_idx)];
    const std::int32_t offsets[] = {0, 1};
    std::vector<float> inter(static_cast<std::size_t>(layer.experts.gate[idx].rows));
    run(ExpertGateUpParams{.x = f32_matrix(x.data(), 1, std::ssize(x)),
                           .gate_weights = &layer.experts.gate[idx],
                           .up_weights = &layer.experts.up[idx],
                           .num_experts = 1,
                           .expert_offsets = offsets,
                           .row_weights = &weight,
                           .swiglu_limit = static_cast<float>(model_.config().swiglu_limit),
                           .out = f32_matrix(inter.data(), 1, std::ssize(inter))});
    ExpertAmaxes& seen = layers[static_cast<std::size_t>(layer_idx)][idx];
    for (const float value : x) seen.gate_up = std::max(seen.gate_up, std::abs(value));
    for (const float value : inter) seen.down = std::max(seen.down, std::abs(value));
    ++seen.tokens;
  }

  LoadedModel& model_;
  std::vector<float> streams_, post_, comb_;
  std::vector<std::byte> workspace_;
};

// Windows of 12: a begin mark and 11 tokens; the last has 6 tokens of the text.
TEST(Calibration, RecordsWhatEntersEachExpert) {
  for (const char* name : {"flash-bf16", "flash-official"}) {
    SCOPED_TRACE(name);
    LoadedModel model(open_options(golden_dir(name), "reference"));
    const std::vector<TokenId> tokens = some_tokens(28);
    const InputAmaxes got = calibrate(model, source_of(tokens), {.window = 12});

    BruteForce want(model);
    for (const auto& [begin, end] : {std::pair{0, 11}, {11, 22}, {22, 28}}) {
      std::vector<TokenId> window = {model.config().bos_id};
      window.insert(window.end(), tokens.begin() + begin, tokens.begin() + end);
      SequenceCache cache(model.cache());
      const StepSequence sequence{.cache = &cache, .num_tokens = std::ssize(window)};
      want.token_ids = window;
      model.model().forward(model.cache(), {.token_ids = window, .sequences = {&sequence, 1}},
                            &want);
    }
    expect_same(got, {.layers = want.layers, .tokens = 28});
  }
}

TEST(Calibration, StepsSourcesPartsAndBackendsDoNotChangeTheResult) {
  const auto dir = golden_dir("flash-official");
  const std::vector<TokenId> tokens = some_tokens(50);
  const InputAmaxes want = calibrate_dir(dir, tokens, 20);
  for (const std::int64_t step : {1, 7, 19, 20, 21}) {
    LoadedModel model(open_options(dir, "cpu", step));
    expect_same(calibrate(model, source_of(tokens, static_cast<std::size_t>(step)), {.window = 20}),
                want);
  }
}

TEST(Calibration, WindowsBeginWithTheBeginMark) {
  const auto dir = golden_dir("flash-official");
  LoadedModel model(open_options(dir));
  std::vector<TokenId> with_mark = some_tokens(19);
  const InputAmaxes added = calibrate(model, source_of(with_mark), {.window = 20});
  with_mark.insert(with_mark.begin(), model.config().bos_id);
  InputAmaxes given = calibrate(model, source_of(with_mark), {.window = 20});
  EXPECT_EQ(added.tokens, 19);
  EXPECT_EQ(given.tokens, 20);  // the mark is the text's own, and is not doubled
  given.tokens = 19;
  expect_same(given, added);
}

TEST(Calibration, OneTokenLeavesExpertsWithoutAny) {
  const InputAmaxes amaxes = calibrate_dir(golden_dir("flash-bf16"), {5});
  EXPECT_EQ(amaxes.tokens, 1);
  for (const std::vector<ExpertAmaxes>& experts : amaxes.layers) {
    std::int64_t routed = 0, unused = 0;
    for (const ExpertAmaxes& expert : experts) {
      routed += expert.tokens;
      unused += expert.tokens == 0 ? 1 : 0;
      EXPECT_EQ(expert.tokens == 0, expert.gate_up == 0 && expert.down == 0);
    }
    EXPECT_EQ(routed, 2 * 2);  // the begin mark and the token, two experts each
    EXPECT_GE(unused, 2);
  }
}

TEST(Calibration, AnExpertWhoseSwigluIsZeroHasNoAmaxOfDown) {
  EditableModel edited(golden_dir("flash-bf16"));
  auto& up = edited.tensor("layers.2.ffn.experts.1.w3.weight");
  std::fill(up.bytes.begin(), up.bytes.end(), std::byte{0});
  edited.load();
  const InputAmaxes amaxes = calibrate_dir(edited.dir().path(), some_tokens(60));
  const ExpertAmaxes& expert = amaxes.layers[2][1];
  ASSERT_GT(expert.tokens, 0);
  EXPECT_GT(expert.gate_up, 0.0f);
  EXPECT_EQ(expert.down, 0.0f);
}

// Gate and up of expert 1 give NaN where one of their weights is; everything gives it where the
// attention's output does.
TEST(Calibration, NanIsAnErrorThatNamesThePlace) {
  const std::uint16_t nan = encode_bf16(std::numeric_limits<float>::quiet_NaN());
  EditableModel expert(golden_dir("flash-bf16"));
  expert.tensor("layers.2.ffn.experts.1.w1.weight").set(0, nan);
  expert.load();
  expect_error(ErrorCode::kBadCheckpoint,
               {"what enters down of expert 1 in layer 2", "position", "window 0"},
               [&] { calibrate_dir(expert.dir().path(), some_tokens(60)); });
  EditableModel attention(golden_dir("flash-bf16"));
  attention.tensor("layers.1.attn.wo_b.weight").set(0, nan);
  attention.load();
  expect_error(ErrorCode::kBadCheckpoint, {"gate and up", "in layer 1", "position", "window 0"},
               [&] { calibrate_dir(attention.dir().path(), some_tokens(60)); });
}

TEST(Calibration, RefusesWhatItCannotMeasure) {
  const auto dir = golden_dir("flash-official");
  LoadedModel model(open_options(dir));
  const auto refusal = [&](std::vector<TokenId> tokens, std::int64_t window,
                           const std::vector<std::string>& parts) {
    expect_error(ErrorCode::kBadRequest, parts,
                 [&] { calibrate(model, source_of(tokens), {.window = window}); });
  };
  refusal({}, 64, {"empty"});
  refusal({5}, 1, {"window of 1 "});
  refusal({5}, model.max_session_tokens() + 1, {"window"});
  refusal({5, 1 << 30}, 64, {"vocabulary"});
  EXPECT_EQ(calibrate(model, source_of({5}), {.window = 2}).tokens, 1);
  ModelOpenOptions a8 = open_options(dir);
  a8.model.activations = Activations::kAuto;
  LoadedModel rounded(a8);
  expect_error(ErrorCode::kBadRequest, {"a16"}, [&] { calibrate(rounded, source_of({5})); });
}

TEST(Calibration, ProgressCountsTheTextsTokensAndMayEndIt) {
  LoadedModel model(open_options(golden_dir("flash-official"), "cpu", 4));
  std::vector<std::int64_t> seen;
  calibrate(model, source_of(some_tokens(9)),
            {.window = 6, .progress = [&](std::int64_t tokens) { seen.push_back(tokens); }});
  EXPECT_EQ(seen, (std::vector<std::int64_t>{3, 5, 8, 9}));
  EXPECT_THROW(calibrate(model, source_of({5}), {.progress = [](std::int64_t) { throw 1; }}), int);
  EXPECT_EQ(calibrate(model, source_of({5})).tokens, 1);  // the session was given back
}

}  // namespace
}  // namespace dsv4
