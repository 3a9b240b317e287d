// bind.cc: the door of checkpoint loading; see bind.h.
#include "checkpoint/bind.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/binder.h"
#include "checkpoint/model_dir.h"
#include "checkpoint/quantization_claims.h"
#include "checkpoint/tensor_names.h"

namespace dsv4 {
namespace {

// Pruned models: what differs from config.json, and a draft block that was left whole.
void note_expert_counts(const ModelConfig& config, const ModelWeights& weights,
                        std::vector<std::string>& notes) {
  int differing = 0, most_of_trunk = 0;
  std::string first;
  const auto count = [&](const LayerWeights& layer, std::size_t row) {
    const int by_config = config.experts_of_layer(layer.router.by_hash);
    if (layer.num_experts == by_config || ++differing > 1) return;
    first = fmt::format("{} has {} instead of {}", weights.report.layers[row].name,
                        layer.num_experts, by_config);
  };
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    count(weights.layers[i], i);
    if (!weights.layers[i].router.by_hash) {
      most_of_trunk = std::max(most_of_trunk, weights.layers[i].num_experts);
    }
  }
  if (weights.draft) count(weights.draft->layer, weights.layers.size());
  if (differing > 0) {
    notes.push_back(fmt::format(
        "{} layers have another number of experts than config.json says ({}); the tensors decide.",
        differing, first));
  }
  if (weights.draft && most_of_trunk > 0 && weights.draft->layer.num_experts > most_of_trunk) {
    notes.push_back(fmt::format(
        "The draft block has {} experts and the layers have at most {}: it was not pruned with "
        "them, and few of its drafts will be accepted.",
        weights.draft->layer.num_experts, most_of_trunk));
  }
}

int most_experts(const ModelWeights& weights) {
  int most = weights.draft ? weights.draft->layer.num_experts : 0;
  for (const LayerWeights& layer : weights.layers) most = std::max(most, layer.num_experts);
  return most;
}

}  // namespace

ModelWeights bind_weights(const ModelConfig& config, std::shared_ptr<const TensorStore> store,
                          const LoadOptions& options) {
  check(config, "config.json");
  const NamedTensors names(*store);
  ModelWeights weights;
  weights.config = config;
  weights.store = std::move(store);
  std::vector<std::string>& notes = weights.report.notes;

  std::string_view why_no_draft;
  bool bind_draft = false;
  if (config.has_dspark || names.find(kDsparkMark)) {
    why_no_draft = "DSpark draft stages";
    if (options.with_draft)
      notes.push_back("The DSpark draft stages are not supported and not used.");
  } else if (config.num_draft_blocks > 0) {
    if (!options.with_draft) {
      why_no_draft = "draft block, switched off";
    } else if (names.has_prefix(kDraftPrefix)) {
      bind_draft = true;
    } else {
      notes.push_back("config.json has a draft block, the tensors have none: it was removed.");
    }
  }

  Binder binder(*weights.store, names, weights, options.progress);
  visit_trunk(config, binder, weights);
  if (bind_draft) visit_draft(config, binder, weights.draft.emplace());
  binder.finish(why_no_draft);
  note_expert_counts(config, weights, notes);
  weights.config.num_experts = most_experts(weights);
  return weights;
}

std::shared_ptr<const ModelWeights> load_checkpoint(const std::filesystem::path& dir,
                                                    const LoadOptions& options) {
  const ModelConfig config = load_model_config(dir);
  refuse_gguf_weights(dir);
  GenerationDefaults generation = load_generation_defaults(dir);
  for (int id : generation.eos_ids) {
    require(id >= 0 && id < config.vocab_size, ErrorCode::kBadCheckpoint,
            "{}: eos_token_id is {}; it must be an integer from 0 to {}",
            (dir / "generation_config.json").string(), id, config.vocab_size - 1);
  }
  auto store = std::make_shared<const TensorStore>(TensorStore::open(dir, options.progress));
  try {
    auto weights = std::make_shared<ModelWeights>(bind_weights(config, std::move(store), options));
    weights->generation = std::move(generation);
    for (std::string& note : check_quantization_claims(dir, weights->report)) {
      weights->report.notes.push_back(std::move(note));
    }
    return weights;
  } catch (const Error& e) {
    fail(e.code(), "{}: {}", dir.string(), e.what());
  }
}

}  // namespace dsv4
