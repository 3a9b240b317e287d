#include "model/model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/cache_schema.h"
#include "model/layer.h"

namespace dsv4 {
namespace {

DeviceBuffer upload(Backend& backend, std::span<const float> values) {
  const auto bytes = static_cast<std::int64_t>(values.size_bytes());
  DeviceBuffer memory = backend.allocate(bytes);
  backend.copy_to_device(memory.data(), values.data(), bytes);
  backend.synchronize();
  return memory;
}

std::vector<float> comp_frequencies(const ModelConfig& config) {
  return rope_frequencies({.base = config.compress_rope_theta,
                           .factor = config.yarn.factor,
                           .original_length = config.yarn.original_length,
                           .beta_fast = config.yarn.beta_fast,
                           .beta_slow = config.yarn.beta_slow},
                          static_cast<int>(config.rope_dim));
}

// Room for the tokens of all sequences, or of none.
void reserve_all(std::span<const StepSequence> sequences) {
  try {
    for (const StepSequence& sequence : sequences) {
      DSV4_CHECK(sequence.first_position == sequence.cache->length());
      sequence.cache->reserve(sequence.num_tokens);
    }
  } catch (const Error&) {
    for (const StepSequence& sequence : sequences) sequence.cache->unreserve();
    throw;
  }
}

// Before anything is allocated by them. Throws Error kBadRequest.
const ModelOptions& checked(const ModelConfig& config, const ModelOptions& options) {
  make_cache_schema(config, options, /*with_draft=*/false);
  return options;
}

}  // namespace

Model::Model(std::shared_ptr<const ModelWeights> weights, Backend& backend,
             const ModelOptions& options)
    : weights_(std::move(weights)),
      backend_(backend),
      options_(checked(weights_->config, options)),
      buffers_(backend, weights_->config, options),
      arrays_(backend) {
  require(backend.uses_host_memory(), ErrorCode::kUnsupported,
          "device {} needs weights in its own memory, which this build cannot upload",
          backend.name());
  for (const LayerWeights& layer : weights_->layers) {
    precision_.push_back(plan_precision(layer, options.activations, backend));
  }
  precision_note_ = describe_precision(*weights_, precision_, options.activations);
  rope_memory_.push_back(upload(backend, rope_frequencies({.base = config().rope_theta},
                                                          static_cast<int>(config().rope_dim))));
  rope_memory_.push_back(upload(backend, comp_frequencies(config())));
  rope_frequencies_ = rope_memory_[0].as<float>();
  comp_rope_frequencies_ = rope_memory_[1].as<float>();
  if (has_draft()) {
    precision_.push_back(plan_precision(weights_->draft->layer, options.activations, backend));
    prepare_draft();
  }
}

bool Model::is_exact() const {
  return !options_.simulate_rows && options_.kv == KvFormat::kF32 &&
         std::none_of(precision_.begin(), precision_.end(),
                      [](const LayerPrecision& layer) { return layer.quantizes(); });
}

std::unique_ptr<KvCache> Model::make_cache(std::int64_t capacity_tokens, int max_sessions) const {
  return std::make_unique<KvCache>(backend_, make_cache_schema(config(), options_, has_draft()),
                                   capacity_tokens, max_sessions);
}

void Model::check_batch(const StepBatch& batch) const {
  const auto num_tokens = static_cast<std::int64_t>(batch.token_ids.size());
  require(num_tokens <= options_.max_step_tokens, ErrorCode::kBadRequest,
          "a step of {} tokens; at most {}", num_tokens, options_.max_step_tokens);
  for (const std::int32_t id : batch.token_ids) {
    require(id >= 0 && id < config().vocab_size, ErrorCode::kBadRequest,
            "token id {} is outside the vocabulary of {}", id, config().vocab_size);
  }
  for (const StepSequence& sequence : batch.sequences) {
    require(sequence.first_position + sequence.num_tokens <= config().max_positions,
            ErrorCode::kBadRequest, "a session of {} tokens; the model takes at most {}",
            sequence.first_position + sequence.num_tokens, config().max_positions);
  }
  for (const std::int32_t row : batch.logits_rows)
    DSV4_CHECK(row >= 0 && row < num_tokens, "logits row {}", row);
}

void Model::forward(KvCache& cache, const StepBatch& batch, LayerObserver* observer) {
  check_batch(batch);
  reserve_all(batch.sequences);
  residuals_ = {};  // none, should this throw
  const StepPlan plan =
      arrays_.build(cache.schema, batch.token_ids, batch.sequences, batch.logits_rows);
  OpRunner ops(backend_, buffers_, workspace_);
  const MutableMatrixView residuals = StepBuffers::rows(buffers_.residuals, plan.num_tokens);
  ops.run(EmbeddingParams{.token_ids = plan.token_ids,
                          .table = weights_->embedding,
                          .num_copies = config().hc_copies,
                          .out = residuals});
  for (int i = 0; i < config().num_layers; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    run_layer(cache, plan, weights_->layers[idx], precision_[idx], i, observer);
  }
  residuals_ = residuals;
  run_head(plan, weights_->hc_head, weights_->final_norm);
  backend_.synchronize();
  for (const StepSequence& sequence : batch.sequences) sequence.cache->advance(sequence.num_tokens);
}

void Model::run_layer(KvCache& cache, const StepPlan& plan, const LayerWeights& layer,
                      const LayerPrecision& precision, int layer_idx, LayerObserver* observer) {
  OpRunner ops(backend_, buffers_, workspace_);
  const MutableMatrixView residuals = StepBuffers::rows(buffers_.residuals, plan.num_tokens);
  const MutableMatrixView x = StepBuffers::rows(buffers_.x, plan.num_tokens);
  const MutableMatrixView out = StepBuffers::rows(buffers_.sublayer_out, plan.num_tokens);
  const LayerContext context{
      .config = config(),
      .options = options_,
      .buffers = buffers_,
      .plan = plan,
      .cache = cache,
      .layer_idx = layer_idx,
      .frequencies = layer.compress_ratio == 0 ? rope_frequencies_ : comp_rope_frequencies_,
      .observer = observer};
  const auto mix_in = [&](const HcWeights& hc, const MatrixView& norm) {
    ops.run(HcPreParams{.x = residuals,
                        .copies = config().hc_copies,
                        .mix_weight = hc.mix_weight,
                        .scales = hc.scales,
                        .base = hc.base,
                        .sinkhorn_iters = config().sinkhorn_iters,
                        .hc_eps = static_cast<float>(config().hc_eps),
                        .norm_eps = static_cast<float>(config().norm_eps),
                        .norm_weight = norm,
                        .out = x,
                        .post = buffers_.hc_post,
                        .comb = buffers_.hc_comb});
  };
  const auto mix_out = [&] {
    ops.run(HcPostParams{.x = residuals,
                         .y = out,
                         .copies = config().hc_copies,
                         .post = buffers_.hc_post,
                         .comb = buffers_.hc_comb,
                         .out = residuals});
  };
  if (observer != nullptr) observer->before_layer(layer_idx, residuals);
  mix_in(layer.hc_attn, layer.attn_norm);
  run_attention(ops, context, layer, precision);
  if (observer != nullptr) observer->after_attention(layer_idx, out);
  mix_out();
  mix_in(layer.hc_ffn, layer.ffn_norm);
  run_experts(ops, context, layer, precision);
  if (observer != nullptr) observer->after_experts(layer_idx, out);
  mix_out();
  if (observer != nullptr) observer->after_layer(layer_idx, residuals);
}

void Model::run_head(const StepPlan& plan, const HcHeadWeights& hc_head, const MatrixView& norm) {
  const std::int64_t rows = plan.num_logits;
  const std::int64_t stream_dim = config().hc_copies * config().hidden_size;
  const auto float_bytes = static_cast<std::int64_t>(sizeof(float));
  if (logits_memory_.size_bytes() < rows * config().vocab_size * float_bytes) {
    logits_memory_ = backend_.allocate(rows * config().vocab_size * float_bytes);
    head_memory_ = backend_.allocate(rows * (stream_dim + config().hidden_size) * float_bytes);
  }
  const MutableMatrixView gathered = f32_matrix(head_memory_.as<float>(), rows, stream_dim);
  const MutableMatrixView x =
      f32_matrix(head_memory_.as<float>() + rows * stream_dim, rows, config().hidden_size);
  const MutableMatrixView logits =
      f32_matrix(logits_memory_.as<float>(), rows, config().vocab_size);
  OpRunner ops(backend_, buffers_, workspace_);
  // A gather of step rows is an embedding lookup in the residuals.
  ops.run(EmbeddingParams{.token_ids = plan.logits_rows,
                          .table = StepBuffers::rows(buffers_.residuals, plan.num_tokens),
                          .out = gathered});
  ops.run(HcHeadParams{.x = gathered,
                       .copies = config().hc_copies,
                       .mix_weight = hc_head.mix_weight,
                       .scale = hc_head.scale,
                       .base = hc_head.base,
                       .hc_eps = static_cast<float>(config().hc_eps),
                       .norm_eps = static_cast<float>(config().norm_eps),
                       .norm_weight = norm,
                       .out = x});
  ops.linear(x, weights_->head, logits, {});
  logits_ = logits;
}

}  // namespace dsv4
