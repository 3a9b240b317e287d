// The draft block: predicts the token after the next from the trunk's residual copies and the next
// token.
#include "base/error.h"
#include "model/layer.h"
#include "model/model.h"

namespace dsv4 {

// The ops' mHC-post computes X'_j = post_j y + sum_i comb[i][j] X_i; with post = 1 and comb = I it
// adds y to every residual copy, which is what the draft's input needs.
void Model::prepare_draft() {
  const std::int64_t tokens = options_.max_step_tokens;
  const int copies = config().hc_copies;
  std::vector<float> post(static_cast<std::size_t>(tokens * copies), 1.0f);
  std::vector<float> comb(static_cast<std::size_t>(tokens * copies * copies), 0.0f);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int j = 0; j < copies; ++j)
      comb[static_cast<std::size_t>((t * copies + j) * copies + j)] = 1.0f;
  }
  const auto upload = [&](const std::vector<float>& values) {
    const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(float));
    DeviceBuffer memory = backend_.allocate(bytes);
    backend_.copy_to_device(memory.data(), values.data(), bytes);
    backend_.synchronize();
    return memory;
  };
  draft_post_ = upload(post);
  draft_comb_ = upload(comb);
  draft_memory_ = backend_.allocate(static_cast<std::int64_t>(sizeof(float)) * tokens * copies *
                                    config().hidden_size);
  e_proj_activation_ = dense_activation(weights_->draft->e_proj, options_.activations);
  h_proj_activation_ = dense_activation(weights_->draft->h_proj, options_.activations);
}

void Model::forward_draft(KvCache& cache, const StepBatch& batch) {
  require(has_draft(), ErrorCode::kUnsupported, "this model has no draft block");
  check_batch(batch);
  const auto num_tokens = static_cast<std::int64_t>(batch.token_ids.size());
  DSV4_CHECK(num_tokens <= residuals_.rows, "{} draft tokens on the residuals of {}", num_tokens,
             residuals_.rows);
  residuals_ = {};  // overwritten from here on
  const DraftWeights& draft = *weights_->draft;
  const StepPlan plan =
      arrays_.build(cache.schema, batch.token_ids, batch.sequences, batch.logits_rows);
  OpRunner ops(backend_, buffers_, workspace_);
  const std::int64_t hidden = config().hidden_size;
  const int copies = config().hc_copies;
  const auto eps = static_cast<float>(config().norm_eps);
  const MutableMatrixView residuals = StepBuffers::rows(buffers_.residuals, num_tokens);
  const MutableMatrixView normed =
      f32_matrix(draft_memory_.as<float>(), num_tokens * copies, hidden);
  const MutableMatrixView x = StepBuffers::rows(buffers_.x, num_tokens);
  const MutableMatrixView e = StepBuffers::rows(buffers_.sublayer_out, num_tokens);

  ops.run(RmsNormParams{.x = StepBuffers::part(residuals, num_tokens * copies, hidden),
                        .weight = draft.h_norm,
                        .eps = eps,
                        .out = normed});
  ops.linear(normed, draft.h_proj, StepBuffers::part(residuals, num_tokens * copies, hidden),
             h_proj_activation_);
  ops.run(EmbeddingParams{.token_ids = plan.token_ids, .table = weights_->embedding, .out = x});
  ops.run(RmsNormParams{.x = x, .weight = draft.e_norm, .eps = eps, .out = x});
  ops.linear(x, draft.e_proj, e, e_proj_activation_);
  ops.run(HcPostParams{.x = residuals,
                       .y = e,
                       .copies = copies,
                       .post = draft_post_.as<float>(),
                       .comb = draft_comb_.as<float>(),
                       .out = residuals});

  const int layer_idx = config().num_layers;
  run_layer(cache, plan, draft.layer, precision_[static_cast<std::size_t>(layer_idx)], layer_idx,
            nullptr);
  run_head(plan, draft.hc_head, draft.norm);
  backend_.synchronize();
}

}  // namespace dsv4
