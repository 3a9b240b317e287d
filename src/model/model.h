// model.h: the forward pass of DeepSeek-V4: tokens of many sessions in, logits out, rows and states
// left in the cache.
//
// A Model belongs to one thread at a time. What it computes is docs/architecture.md's; how sessions
// share steps is runtime's matter.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/weights.h"
#include "kv/kv_cache.h"
#include "model/layer_observer.h"
#include "model/options.h"
#include "model/precision.h"
#include "model/step_buffers.h"
#include "model/step_plan.h"

namespace dsv4 {

struct StepBatch {
  std::span<const std::int32_t> token_ids;    // [tokens], sequence after sequence
  std::span<const StepSequence> sequences;    // first_position = the sequence's length
  std::span<const std::int32_t> logits_rows;  // step rows whose logits are wanted
};

class Model {
 public:
  // The backend must outlive the model. Throws Error: kUnsupported, kBadRequest, kOutOfMemory.
  Model(std::shared_ptr<const ModelWeights> weights, Backend& backend, const ModelOptions& options);

  const ModelConfig& config() const { return weights_->config; }
  const ModelOptions& options() const { return options_; }
  bool has_draft() const { return weights_->draft.has_value(); }
  // A sentence on how activations are treated, if there is something to say; else empty.
  const std::string& precision_note() const { return precision_note_; }
  // True if no value is rounded to a narrower format on its way: exact FP32 rows and activations
  // as they are in every linear.
  bool is_exact() const;

  // Memory for sessions of this model; `capacity_tokens` over all of them.
  std::unique_ptr<KvCache> make_cache(std::int64_t capacity_tokens, int max_sessions) const;

  // Computes the batch and advances its sequences. Throws Error kBadRequest for a token id outside
  // the vocabulary, a position past the model's or a batch above max_step_tokens, and kOverloaded
  // when the cache is full; then nothing has changed. After any other exception the batch's
  // sequences must be cleared.
  void forward(KvCache& cache, const StepBatch& batch, LayerObserver* observer = nullptr);

  // Of the last call: [logits_rows, vocab] and, from forward, [tokens, hc * h]; no rows after
  // forward_draft, which overwrites the residuals. Device memory, valid until the next call.
  MatrixView logits() const { return logits_; }
  MatrixView residuals() const { return residuals_; }

  // The draft block on the residuals of the forward call just made, one logits row a token: token i
  // of `batch` is the token after the i-th of that call, its position that of the i-th. At
  // most once after each forward call, whose residuals it uses up. It keeps its own window in the
  // cache; `sequences` need not advance.
  void forward_draft(KvCache& cache, const StepBatch& batch);

 private:
  void prepare_draft();
  void check_batch(const StepBatch& batch) const;
  void run_layer(KvCache& cache, const StepPlan& plan, const LayerWeights& layer,
                 const LayerPrecision& precision, int layer_idx, LayerObserver* observer);
  void run_head(const StepPlan& plan, const HcHeadWeights& hc_head, const MatrixView& norm);

  std::shared_ptr<const ModelWeights> weights_;
  Backend& backend_;
  ModelOptions options_;
  std::vector<LayerPrecision> precision_;
  std::string precision_note_;
  std::vector<DeviceBuffer> rope_memory_;
  const float* rope_frequencies_ = nullptr;       // [rope_dim / 2], layers of ratio 0
  const float* comp_rope_frequencies_ = nullptr;  // the others
  StepBuffers buffers_;
  StepArrays arrays_;
  DeviceBuffer logits_memory_, head_memory_, workspace_;
  DeviceBuffer draft_post_, draft_comb_, draft_memory_;
  ActivationFormat e_proj_activation_, h_proj_activation_;
  MatrixView logits_, residuals_;
};

}  // namespace dsv4
