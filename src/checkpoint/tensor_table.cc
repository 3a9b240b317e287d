// tensor_table.cc: the table itself; see tensor_table.h. Names as published by
// https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash.
#include "checkpoint/tensor_table.h"

#include <fmt/format.h>

namespace dsv4 {
namespace {

// What `part` holds, or a new one: a table that is walked again over filled weights keeps them.
template <class T>
T& place_of(std::optional<T>& part) {
  return part ? *part : part.emplace();
}

// Visits the entries of one layer, or of the draft block's layer.
class LayerTable {
 public:
  LayerTable(const ModelConfig& config, TensorVisitor& visitor, std::string prefix)
      : c_(config), v_(visitor), prefix_(std::move(prefix)) {}

  void visit(bool by_hash, LayerWeights& layer) const {
    v_.norm(name("attn_norm.weight"), c_.hidden_size, layer.attn_norm);
    v_.norm(name("ffn_norm.weight"), c_.hidden_size, layer.ffn_norm);
    visit_hc("hc_attn", layer.hc_attn);
    visit_hc("hc_ffn", layer.hc_ffn);
    visit_attention(layer);
    layer.num_experts = v_.num_experts(name("ffn.gate.weight"), c_.experts_of_layer(by_hash));
    visit_router(by_hash, layer.num_experts, layer.router);
    visit_experts(layer.num_experts, layer.experts);
    visit_shared_expert(layer.shared_expert);
  }

 private:
  std::string name(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }

  void visit_hc(std::string_view which, HcWeights& hc) const {
    const std::int64_t mixes = c_.num_hc_mixes();
    v_.f32_matrix(name(fmt::format("{}_fn", which)), mixes, c_.hc_copies * c_.hidden_size,
                  hc.mix_weight);
    v_.f32(name(fmt::format("{}_base", which)), {mixes}, hc.base);
    v_.f32(name(fmt::format("{}_scale", which)), {3}, hc.scales);
  }

  void visit_attention(LayerWeights& layer) const {
    const std::int64_t o_width = c_.num_output_groups * c_.o_low_rank;
    v_.linear(name("attn.wq_a"), c_.q_low_rank, c_.hidden_size, layer.q_a);
    v_.norm(name("attn.q_norm.weight"), c_.q_low_rank, layer.q_norm);
    v_.linear(name("attn.wq_b"), c_.num_heads * c_.head_dim, c_.q_low_rank, layer.q_b);
    v_.linear(name("attn.wkv"), c_.head_dim, c_.hidden_size, layer.kv);
    v_.norm(name("attn.kv_norm.weight"), c_.head_dim, layer.kv_norm);
    v_.f32(name("attn.attn_sink"), {c_.num_heads}, layer.attn_sink);
    v_.linear(name("attn.wo_a"), o_width, c_.output_group_dim(), layer.o_a);
    v_.linear(name("attn.wo_b"), c_.hidden_size, o_width, layer.o_b);
    const int ratio = layer.compress_ratio;
    if (ratio != 0) {
      visit_compressor("attn.compressor", ratio, c_.head_dim, place_of(layer.compressor));
    }
    if (is_overlapping(ratio)) visit_indexer(ratio, place_of(layer.indexer));
  }

  void visit_compressor(std::string_view where, int ratio, std::int64_t row_dim,
                        CompressorWeights& out) const {
    const std::string prefix = name(where);
    const std::int64_t width = compressor_width(ratio, row_dim);
    v_.f32(prefix + ".ape", {ratio, width}, out.ape);
    v_.plain_linear(prefix + ".wkv", width, c_.hidden_size, out.value_proj);
    v_.plain_linear(prefix + ".wgate", width, c_.hidden_size, out.score_proj);
    v_.norm(prefix + ".norm.weight", row_dim, out.norm);
  }

  void visit_indexer(int ratio, IndexerWeights& out) const {
    v_.linear(name("attn.indexer.wq_b"), c_.index_heads * c_.index_head_dim, c_.q_low_rank,
              out.q_b);
    v_.plain_linear(name("attn.indexer.weights_proj"), c_.index_heads, c_.hidden_size,
                    out.head_weights_proj);
    visit_compressor("attn.indexer.compressor", ratio, c_.index_head_dim, out.compressor);
  }

  void visit_router(bool by_hash, int num_experts, RouterWeights& router) const {
    v_.plain(name("ffn.gate.weight"), num_experts, c_.hidden_size, router.weight);
    router.by_hash = by_hash;
    if (by_hash) {
      v_.hash_table(name("ffn.gate.tid2eid"), c_.vocab_size, c_.experts_per_token, num_experts,
                    router.hash_table);
    } else {
      v_.f32(name("ffn.gate.bias"), {num_experts}, router.bias);
    }
  }

  void visit_experts(int num_experts, ExpertWeights& experts) const {
    const auto count = static_cast<std::size_t>(num_experts);
    experts.gate.resize(count);
    experts.up.resize(count);
    experts.down.resize(count);
    experts.gate_up_input_scales.resize(count);
    experts.down_input_scales.resize(count);
    for (std::size_t e = 0; e < count; ++e) {
      const std::string expert = name(fmt::format("ffn.experts.{}", e));
      std::optional<float>& gate_input = experts.gate_up_input_scales[e];
      std::optional<float> up_input;
      v_.expert_linear(expert + ".w1", c_.expert_inter, c_.hidden_size, experts.gate[e],
                       gate_input);
      v_.expert_linear(expert + ".w3", c_.expert_inter, c_.hidden_size, experts.up[e], up_input);
      v_.expert_linear(expert + ".w2", c_.hidden_size, c_.expert_inter, experts.down[e],
                       experts.down_input_scales[e]);
      v_.check_shared_input(expert, gate_input, up_input);
    }
  }

  void visit_shared_expert(SharedExpertWeights& shared) const {
    v_.linear(name("ffn.shared_experts.w1"), c_.shared_inter(), c_.hidden_size, shared.gate);
    v_.linear(name("ffn.shared_experts.w3"), c_.shared_inter(), c_.hidden_size, shared.up);
    v_.linear(name("ffn.shared_experts.w2"), c_.hidden_size, c_.shared_inter(), shared.down);
  }

  const ModelConfig& c_;
  TensorVisitor& v_;
  std::string prefix_;
};

// `prefix` is empty or ends in a dot.
void visit_hc_head(const ModelConfig& c, TensorVisitor& visitor, const std::string& prefix,
                   HcHeadWeights& out) {
  visitor.f32_matrix(prefix + "hc_head_fn", c.hc_copies, c.hc_copies * c.hidden_size,
                     out.mix_weight);
  visitor.f32(prefix + "hc_head_base", {c.hc_copies}, out.base);
  visitor.f32(prefix + "hc_head_scale", {1}, out.scale);
}

void visit_layer(const ModelConfig& c, TensorVisitor& visitor, const std::string& name,
                 bool is_draft, bool by_hash, LayerWeights& layer) {
  visitor.begin_layer(name, is_draft);
  LayerTable(c, visitor, name).visit(by_hash, layer);
  visitor.end_layer(layer);
}

}  // namespace

void visit_trunk(const ModelConfig& c, TensorVisitor& visitor, ModelWeights& out) {
  visitor.plain("embed.weight", c.vocab_size, c.hidden_size, out.embedding);
  visitor.plain_linear("head", c.vocab_size, c.hidden_size, out.head);
  visitor.norm("norm.weight", c.hidden_size, out.final_norm);
  visit_hc_head(c, visitor, "", out.hc_head);
  out.layers.resize(static_cast<std::size_t>(c.num_layers));
  for (int i = 0; i < c.num_layers; ++i) {
    LayerWeights& layer = out.layers[static_cast<std::size_t>(i)];
    layer.compress_ratio = c.compress_ratios[static_cast<std::size_t>(i)];
    visit_layer(c, visitor, fmt::format("layers.{}", i), /*is_draft=*/false,
                /*by_hash=*/i < c.num_hash_layers, layer);
  }
}

void visit_draft(const ModelConfig& c, TensorVisitor& visitor, DraftWeights& out) {
  visit_layer(c, visitor, "mtp.0", /*is_draft=*/true, /*by_hash=*/false, out.layer);
  visitor.linear("mtp.0.e_proj", c.hidden_size, c.hidden_size, out.e_proj);
  visitor.linear("mtp.0.h_proj", c.hidden_size, c.hidden_size, out.h_proj);
  visitor.norm("mtp.0.enorm.weight", c.hidden_size, out.e_norm);
  visitor.norm("mtp.0.hnorm.weight", c.hidden_size, out.h_norm);
  visit_hc_head(c, visitor, "mtp.0.", out.hc_head);
  visitor.norm("mtp.0.norm.weight", c.hidden_size, out.norm);
}

}  // namespace dsv4
