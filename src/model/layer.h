// layer.h: one layer in the paper's order, op by op, on a step's buffers. Model owns what it
// touches.
#pragma once

#include "checkpoint/weights.h"
#include "kv/kv_cache.h"
#include "model/layer_observer.h"
#include "model/options.h"
#include "model/precision.h"
#include "model/step_buffers.h"
#include "model/step_plan.h"

namespace dsv4 {

// Runs ops with a workspace that grows as needed, and linears with their activation formats.
class OpRunner {
 public:
  OpRunner(Backend& backend, const StepBuffers& buffers, DeviceBuffer& workspace)
      : backend_(backend), buffers_(buffers), workspace_(workspace) {}

  template <class Params>
  void run(const Params& params) {
    const std::int64_t bytes = backend_.workspace_bytes(params);
    if (workspace_.size_bytes() < bytes) workspace_ = backend_.allocate(bytes);
    backend_.run(params,
                 {.workspace = workspace_.data(), .workspace_bytes = workspace_.size_bytes()});
  }

  // y = x w^T; x is quantised first where `activation` says so.
  void linear(const MatrixView& x, const MatrixView& w, const MutableMatrixView& y,
              ActivationFormat activation, int num_parts = 1);
  // x as it enters a linear: itself, or its quantised copy in the step's buffers (one at a time).
  MatrixView activations(const MatrixView& x, ActivationFormat activation);

 private:
  Backend& backend_;
  const StepBuffers& buffers_;
  DeviceBuffer& workspace_;
};

// What a sublayer needs beside its weights.
struct LayerContext {
  const ModelConfig& config;
  const ModelOptions& options;
  StepBuffers& buffers;
  const StepPlan& plan;
  KvCache& cache;
  int layer_idx = 0;                   // in the cache's schema
  const float* frequencies = nullptr;  // RoPE of this layer
  LayerObserver* observer = nullptr;   // may be null
};

// buffers.x [tokens, h] (normalised input) -> buffers.sublayer_out; rows and states into the cache.
void run_attention(OpRunner& ops, const LayerContext& context, const LayerWeights& layer,
                   const LayerPrecision& precision);
// buffers.x -> buffers.sublayer_out = routed + shared experts.
void run_experts(OpRunner& ops, const LayerContext& context, const LayerWeights& layer,
                 const LayerPrecision& precision);

}  // namespace dsv4
