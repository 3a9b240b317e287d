// The expert sublayer: router, dispatch, routed experts, shared expert, combine.
#include "base/check.h"
#include "model/layer.h"

namespace dsv4 {
namespace {

using Buffers = StepBuffers;

ScoringFunction scoring_function(Scoring scoring) {
  switch (scoring) {
    case Scoring::kSqrtSoftplus:
      return ScoringFunction::kSqrtSoftplus;
    case Scoring::kSigmoid:
      return ScoringFunction::kSigmoid;
    case Scoring::kSoftmax:
      return ScoringFunction::kSoftmax;
  }
  return ScoringFunction::kSqrtSoftplus;
}

void route(OpRunner& ops, const LayerContext& c, const LayerWeights& layer) {
  Buffers& b = c.buffers;
  ops.run(RouterParams{.x = Buffers::rows(b.x, c.plan.num_tokens),
                       .weight = layer.router.weight,
                       .bias = layer.router.bias,
                       .hash_table = layer.router.hash_table,
                       .token_ids = c.plan.token_ids,
                       .vocab = c.config.vocab_size,
                       .scoring = scoring_function(c.config.scoring),
                       .routed_scale = static_cast<float>(c.config.routed_scale),
                       .experts_per_token = c.config.experts_per_token,
                       .expert_idx = b.expert_idx,
                       .expert_weights = b.expert_weights});
  ops.run(MoeDispatchParams{.expert_idx = b.expert_idx,
                            .expert_weights = b.expert_weights,
                            .tokens = c.plan.num_tokens,
                            .experts_per_token = c.config.experts_per_token,
                            .num_experts = static_cast<int>(layer.experts.gate.size()),
                            .expert_offsets = b.expert_offsets,
                            .row_tokens = b.row_tokens,
                            .row_experts = b.row_experts,
                            .row_weights = b.row_weights,
                            .token_rows = b.token_rows});
}

// Quantises the experts' input rows as they lie expert-major: each by its own expert's global
// scale.
MatrixView quantize_expert_rows(OpRunner& ops, const LayerContext& c, const MatrixView& x,
                                int num_experts, const std::int32_t* row_idx,
                                const DeviceBuffer& input_scales) {
  const std::int64_t rows = c.plan.num_tokens * c.config.experts_per_token;
  const MutableMatrixView out = c.buffers.quantized(Format::kNvfp4, rows, x.cols);
  const bool is_static = input_scales.size_bytes() > 0;
  ops.run(QuantizeParams{.x = x,
                         .out = out,
                         .static_global_scales = is_static ? input_scales.as<float>() : nullptr,
                         .global_scale_idx = is_static ? c.buffers.row_experts : nullptr,
                         .row_idx = row_idx,
                         .row_count = c.buffers.expert_offsets + num_experts});
  return out;
}

void run_routed_experts(OpRunner& ops, const LayerContext& c, const ExpertWeights& experts,
                        const LayerPrecision& precision) {
  Buffers& b = c.buffers;
  const std::int64_t rows = c.plan.num_tokens * c.config.experts_per_token;
  const int num_experts = static_cast<int>(experts.gate.size());
  const MutableMatrixView inter = Buffers::rows(b.expert_inter, rows);
  const MatrixView x = Buffers::rows(b.x, c.plan.num_tokens);

  ExpertGateUpParams gate_up{.x = x,
                             .row_tokens = b.row_tokens,
                             .gate_weights = experts.gate.data(),
                             .up_weights = experts.up.data(),
                             .num_experts = num_experts,
                             .expert_offsets = b.expert_offsets,
                             .row_weights = b.row_weights,
                             .swiglu_limit = static_cast<float>(c.config.swiglu_limit),
                             .out = inter};
  if (precision.expert_gate_up == Format::kNvfp4) {
    gate_up.x =
        quantize_expert_rows(ops, c, x, num_experts, b.row_tokens, precision.gate_up_input_scales);
    gate_up.row_tokens = nullptr;
  } else {
    gate_up.x = ops.activations(x, precision.expert_gate_up);
  }
  ops.run(gate_up);
  if (c.observer != nullptr) {
    c.observer->expert_inputs(c.layer_idx, {.x = x,
                                            .inter = inter,
                                            .expert_offsets = b.expert_offsets,
                                            .row_tokens = b.row_tokens,
                                            .num_experts = num_experts});
  }

  ExpertDownParams down{.x = inter,
                        .down_weights = experts.down.data(),
                        .num_experts = num_experts,
                        .expert_offsets = b.expert_offsets,
                        .out = Buffers::rows(b.expert_out, rows)};
  if (precision.expert_down == Format::kNvfp4) {
    down.x = quantize_expert_rows(ops, c, inter, num_experts, nullptr, precision.down_input_scales);
  } else if (precision.expert_down.has_value()) {
    const MutableMatrixView codes = b.quantized(*precision.expert_down, rows, inter.cols);
    ops.run(QuantizeParams{.x = inter, .out = codes, .row_count = b.expert_offsets + num_experts});
    down.x = codes;
  }
  ops.run(down);
}

// The shared expert is one expert that owns every token.
void run_shared_expert(OpRunner& ops, const LayerContext& c, const SharedExpertWeights& shared,
                       const LayerPrecision& precision) {
  const std::int64_t tokens = c.plan.num_tokens;
  const MutableMatrixView inter = Buffers::rows(c.buffers.shared_inter, tokens);
  const MutableMatrixView out = Buffers::rows(c.buffers.shared_out, tokens);
  ops.run(ExpertGateUpParams{
      .x = ops.activations(Buffers::rows(c.buffers.x, tokens), precision.shared_gate_up),
      .gate_weights = &shared.gate,
      .up_weights = &shared.up,
      .num_experts = 1,
      .expert_offsets = c.plan.all_tokens,
      .swiglu_limit = static_cast<float>(c.config.swiglu_limit),
      .out = inter});
  ops.linear(inter, shared.down, out, precision.shared_down);
}

}  // namespace

void run_experts(OpRunner& ops, const LayerContext& c, const LayerWeights& layer,
                 const LayerPrecision& precision) {
  Buffers& b = c.buffers;
  const std::int64_t tokens = c.plan.num_tokens;
  route(ops, c, layer);
  run_routed_experts(ops, c, layer.experts, precision);
  const bool has_shared = c.config.num_shared_experts > 0;
  if (has_shared) run_shared_expert(ops, c, layer.shared_expert, precision);
  ops.run(MoeCombineParams{
      .expert_out = Buffers::rows(b.expert_out, tokens * c.config.experts_per_token),
      .token_rows = b.token_rows,
      .experts_per_token = c.config.experts_per_token,
      .shared_out = has_shared ? MatrixView(Buffers::rows(b.shared_out, tokens)) : MatrixView{},
      .out = Buffers::rows(b.sublayer_out, tokens)});
}

}  // namespace dsv4
