// Whole models: decoding of one session as a share of the memory that its weights are read from,
// prompts as a share of the FMAs that their matrix products need, and both against the reference.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "bench/bench.h"
#include "bench/files.h"
#include "checkpoint/bind.h"
#include "io/tensor_store.h"
#include "kv/handle.h"
#include "model/model.h"
#include "ops/op_checks.h"
#include "ops/sampling.h"
#include "reference/reference_backend.h"
#include "testing/random_checkpoint.h"

namespace dsv4::bench {
namespace {

constexpr std::int64_t kPromptTokens = 512;
constexpr std::int64_t kContext = 128;  // tokens before the decoded ones: a full window
constexpr std::int64_t kMaxSteps = 2048;

using Weights = std::shared_ptr<const ModelWeights>;

// Calls visit(matrix, share) for every matrix that a token is multiplied by; share: of the experts,
// those that one token is sent to.
template <class Visit>
void visit_matrices(const LayerWeights& layer, int experts_per_token, const Visit& visit) {
  for (const MatrixView* m :
       {&layer.hc_attn.mix_weight, &layer.hc_ffn.mix_weight, &layer.q_a, &layer.q_b, &layer.kv,
        &layer.o_a, &layer.o_b, &layer.router.weight, &layer.shared_expert.gate,
        &layer.shared_expert.up, &layer.shared_expert.down}) {
    visit(*m, 1.0);
  }
  const auto visit_compressor = [&](const CompressorWeights& compressor) {
    visit(compressor.value_proj, 1.0);
    visit(compressor.score_proj, 1.0);
  };
  if (layer.compressor) visit_compressor(*layer.compressor);
  if (layer.indexer) {
    visit(layer.indexer->q_b, 1.0);
    visit(layer.indexer->head_weights_proj, 1.0);
    visit_compressor(layer.indexer->compressor);
  }
  for (const auto* matrices : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
    for (const MatrixView& m : *matrices) {
      visit(m, static_cast<double>(experts_per_token) / static_cast<double>(matrices->size()));
    }
  }
}

struct TokenCost {
  double bytes = 0;       // of weights that a decoded token reads, scales included
  double flops = 0;       // of its matrix products; attention and norms are not counted
  double head_flops = 0;  // of the logits, for the last token of a prompt only
};
TokenCost token_cost(const ModelWeights& weights) {
  TokenCost cost;
  const auto visit = [&](const MatrixView& m, double share) {
    if (m.data == nullptr) return;  // the router of a hash layer may have none
    cost.bytes += share * static_cast<double>(matrix_bytes(m));
    cost.flops += share * 2 * static_cast<double>(m.rows) * static_cast<double>(m.cols);
  };
  for (const LayerWeights& layer : weights.layers) {
    visit_matrices(layer, weights.config.experts_per_token, visit);
  }
  visit(weights.hc_head.mix_weight, 1);
  const double before = cost.flops;
  visit(weights.head, 1);
  cost.head_flops = cost.flops - before;
  cost.flops = before;
  return cost;
}

// One session of a model on a backend.
class Runner {
 public:
  Runner(const Weights& weights, Backend& backend, const ModelOptions& options)
      : backend_(backend),
        vocab_(weights->config.vocab_size),
        model_(weights, backend, options),
        cache_(model_.make_cache(kContext + kMaxSteps, 1)),
        sequence_(*cache_) {}

  void clear() { sequence_.clear(); }
  std::int64_t length() const { return sequence_.length(); }
  // Appends `count` pseudo-random tokens in one step; the last one's logits are computed.
  void append(std::int64_t count) {
    tokens_.resize(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const auto position = static_cast<std::uint64_t>(length()) + i;
      tokens_[i] =
          static_cast<std::int32_t>(mix_bits(position + 1) % static_cast<std::uint64_t>(vocab_));
    }
    const StepSequence sequence{
        .cache = &sequence_, .first_position = length(), .num_tokens = count};
    const auto last_row = static_cast<std::int32_t>(count - 1);
    model_.forward(
        *cache_,
        {.token_ids = tokens_, .sequences = {&sequence, 1}, .logits_rows = {&last_row, 1}});
  }
  std::vector<float> logits() {
    std::vector<float> values(static_cast<std::size_t>(vocab_));
    backend_.copy_to_host(values.data(), model_.logits().data, 4 * vocab_);
    backend_.synchronize();
    return values;
  }

 private:
  Backend& backend_;
  std::int64_t vocab_;
  Model model_;
  std::unique_ptr<KvCache> cache_;
  SequenceCache sequence_;
  std::vector<std::int32_t> tokens_;
};

// Empty if both backends give the same logits where no rounding on the way could hide or enlarge a
// difference: exact rows, activations as they are. The limit is tests/golden_test.cc's for a layer.
std::string compare_backends(const Weights& weights, Backend& cpu, Backend& reference) {
  ModelOptions exact;
  exact.activations = Activations::kA16;
  exact.simulate_rows = false;
  exact.kv = KvFormat::kF32;
  const auto logits_of = [&](Backend& backend) {
    Runner runner(weights, backend, exact);
    runner.append(2);
    return runner.logits();
  };
  const std::vector<float> got = logits_of(cpu);
  const std::vector<float> want = logits_of(reference);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(double{got[i]} - want[i], 2);
    size += std::pow(double{want[i]}, 2);
  }
  const double error = std::sqrt(difference / size);
  if (error <= 1e-4) return {};
  return fmt::format("the logits of two tokens are {} apart, relative to their size", error);
}

// A model's two rows. The reference decodes as many tokens as `reference_tokens` after as long a
// context, and takes a prompt of `reference_prompt`: what it needs for a token counts.
struct ModelCase {
  std::string name;
  std::string format;
  std::int64_t reference_tokens;
  std::int64_t reference_prompt;
};

void bench_weights(Bench& bench, const Weights& weights, const ModelCase& c) {
  const TokenCost token = token_cost(*weights);
  const bool cpu_time = bench.options().cpu_time;
  ReferenceBackend reference;
  const ModelOptions options;
  Runner runner(weights, bench.backend(), options);

  Benchmark decode{"decode", c.name, c.format, 1};
  decode.bytes = token.bytes;
  decode.flops = token.flops + token.head_flops;
  decode.check = [&] { return compare_backends(weights, bench.backend(), reference); };
  decode.call = [&](std::int64_t) {
    if (runner.length() == 0 || runner.length() == kContext + kMaxSteps) {
      runner.clear();
      runner.append(kContext);
    }
    runner.append(1);
  };
  Benchmark prompt{"prompt", c.name, c.format, kPromptTokens};
  prompt.bytes = token.bytes;
  prompt.flops = kPromptTokens * token.flops + token.head_flops;
  prompt.check = [&] { return std::string(); };  // decode's
  prompt.call = [&](std::int64_t) {
    runner.clear();
    runner.append(kPromptTokens);
  };
  if (bench.wants(decode) || bench.wants(prompt)) {
    Runner slow(weights, reference, options);
    const double prompt_seconds = seconds_of([&] { slow.append(c.reference_prompt); }, 1, cpu_time);
    prompt.reference_seconds =
        prompt_seconds * kPromptTokens / static_cast<double>(c.reference_prompt);
    slow.clear();
    slow.append(1);
    const double decode_seconds = seconds_of(
        [&] {
          for (std::int64_t i = 0; i < c.reference_tokens; ++i) slow.append(1);
        },
        1, cpu_time);
    decode.reference_seconds = decode_seconds / static_cast<double>(c.reference_tokens);
  }
  // The first calls, with the context's prompt, are no measurement.
  if (bench.wants(decode)) decode.call(0);
  bench.run(decode);
  runner.clear();
  bench.run(prompt);
}

}  // namespace

void bench_model(Bench& bench) {
  const auto wanted = [&bench](const ModelCase& c) {
    return bench.wants({"decode", c.name, c.format, 1}) ||
           bench.wants({"prompt", c.name, c.format, kPromptTokens});
  };
  const ModelCase nano{"nano", "FP8+MXFP4", 20, kPromptTokens};
  if (wanted(nano) && !bench.options().nano_dir.empty()) {
    bench_weights(bench, load_checkpoint(bench.options().nano_dir, {}), nano);
  }
  constexpr std::int64_t kPayloadBytes = 1'000'000'000;
  const std::pair<const char*, LayoutFormats> formats[] = {
      {"BF16", kBf16Formats},
      {"FP8", kFp8ExpertFormats},
      {"FP8+MXFP4", kOfficialFormats},
      {"FP8+NVFP4", kModelOptNvfp4Formats},
  };
  for (const auto& [label, layout] : formats) {
    const ModelCase c{"random1GB", label, 1, 8};
    if (!wanted(c)) continue;
    const TemporaryDirectory dir;
    write_random_checkpoint(dir.path(), scaled_flash_config(kPayloadBytes, layout), layout, 1);
    forget_file(dir.path() / kSingleFileName);
    bench_weights(bench, load_checkpoint(dir.path(), {}), c);
  }
}

}  // namespace dsv4::bench
