// checkpoint_variants.h: test models rewritten into other publishers' forms, and all values of a
// bound model, to compare what two forms of one model bind to.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_test_files.h"
#include "checkpoint/tensor_names.h"
#include "numerics/bf16.h"
#include "numerics/e8m0.h"

namespace dsv4 {

// Every weight of a model as FP32 under our names, for memcmp.
class ModelValues {
 public:
  explicit ModelValues(const ModelWeights& w) {
    matrix("embedding", w.embedding);
    matrix("head", w.head);
    matrix("final_norm", w.final_norm);
    hc_head("hc_head", w.hc_head, w.config);
    for (std::size_t i = 0; i < w.layers.size(); ++i) {
      layer("layer " + std::to_string(i), w.layers[i], w.config);
    }
    if (!w.draft) return;
    layer("draft", w.draft->layer, w.config);
    matrix("draft.e_proj", w.draft->e_proj);
    matrix("draft.h_proj", w.draft->h_proj);
    matrix("draft.e_norm", w.draft->e_norm);
    matrix("draft.h_norm", w.draft->h_norm);
    matrix("draft.norm", w.draft->norm);
    hc_head("draft.hc_head", w.draft->hc_head, w.config);
  }

  const std::map<std::string, std::vector<float>>& all() const { return values_; }

 private:
  void add(const std::string& name, std::vector<float> values) {
    if (!values_.emplace(name, std::move(values)).second) throw std::runtime_error("twice " + name);
  }
  void matrix(const std::string& name, const MatrixView& m) {
    std::vector<float> values(static_cast<std::size_t>(m.rows * m.cols));
    for (std::int64_t r = 0; r < m.rows; ++r) decode_matrix_row(m, r, values.data() + r * m.cols);
    add(name, std::move(values));
  }
  void array(const std::string& name, const float* data, std::int64_t count) {
    add(name, std::vector<float>(data, data + count));
  }
  void hc(const std::string& name, const HcWeights& hc, const ModelConfig& c) {
    matrix(name + ".mix_weight", hc.mix_weight);
    array(name + ".base", hc.base, c.num_hc_mixes());
    array(name + ".scales", hc.scales, 3);
  }
  void hc_head(const std::string& name, const HcHeadWeights& head, const ModelConfig& c) {
    matrix(name + ".mix_weight", head.mix_weight);
    array(name + ".base", head.base, c.hc_copies);
    array(name + ".scale", head.scale, 1);
  }
  void compressor(const std::string& name, const CompressorWeights& w, int ratio) {
    matrix(name + ".value_proj", w.value_proj);
    matrix(name + ".score_proj", w.score_proj);
    matrix(name + ".norm", w.norm);
    array(name + ".ape", w.ape, ratio * w.value_proj.rows);
  }
  void layer(const std::string& n, const LayerWeights& w, const ModelConfig& c) {
    hc(n + ".hc_attn", w.hc_attn, c);
    hc(n + ".hc_ffn", w.hc_ffn, c);
    const std::pair<const char*, const MatrixView*> matrices[] = {
        {".attn_norm", &w.attn_norm},
        {".ffn_norm", &w.ffn_norm},
        {".q_a", &w.q_a},
        {".q_norm", &w.q_norm},
        {".q_b", &w.q_b},
        {".kv", &w.kv},
        {".kv_norm", &w.kv_norm},
        {".o_a", &w.o_a},
        {".o_b", &w.o_b},
        {".router", &w.router.weight},
        {".shared.gate", &w.shared_expert.gate},
        {".shared.up", &w.shared_expert.up},
        {".shared.down", &w.shared_expert.down}};
    for (const auto& [name, view] : matrices) matrix(n + name, *view);
    array(n + ".attn_sink", w.attn_sink, c.num_heads);
    if (w.compressor) compressor(n + ".compressor", *w.compressor, w.compress_ratio);
    if (w.indexer) {
      matrix(n + ".indexer.q_b", w.indexer->q_b);
      matrix(n + ".indexer.head_weights", w.indexer->head_weights_proj);
      compressor(n + ".indexer.compressor", w.indexer->compressor, w.compress_ratio);
    }
    if (w.router.bias != nullptr) array(n + ".router.bias", w.router.bias, w.num_experts);
    if (w.router.hash_table != nullptr) {
      const std::int32_t* table = w.router.hash_table;
      add(n + ".hash_table", {table, table + c.vocab_size * c.experts_per_token});
    }
    for (std::size_t e = 0; e < w.experts.gate.size(); ++e) {
      const std::string expert = n + ".expert " + std::to_string(e);
      matrix(expert + ".gate", w.experts.gate[e]);
      matrix(expert + ".up", w.experts.up[e]);
      matrix(expert + ".down", w.experts.down[e]);
      add(expert + ".input_scales", {w.experts.gate_up_input_scales[e].value_or(-1),
                                     w.experts.down_input_scales[e].value_or(-1)});
    }
  }

  std::map<std::string, std::vector<float>> values_;
};

// The same weights, bit for bit.
inline void expect_same_values(const ModelWeights& got, const ModelWeights& want) {
  const ModelValues a(got), b(want);
  ASSERT_EQ(a.all().size(), b.all().size());
  for (const auto& [name, values] : b.all()) {
    const auto it = a.all().find(name);
    ASSERT_NE(it, a.all().end()) << name;
    ASSERT_EQ(it->second.size(), values.size()) << name;
    EXPECT_EQ(std::memcmp(it->second.data(), values.data(), values.size() * sizeof(float)), 0)
        << name;
  }
}

// What transformers 5.17 calls a tensor in memory, by the rules of its conversion_mapping.py, in
// their order. Written apart from the table under test.
inline std::string transformers_name(std::string name) {
  static const std::vector<std::pair<std::regex, std::string>> rules = [] {
    const std::pair<const char*, const char*> texts[] = {
        {"\\.attn\\.", ".self_attn."},
        {"\\.ffn\\.", ".mlp."},
        {"\\.indexer\\.compressor\\.", ".compressor.indexer."},
        {"^embed\\.weight$", "embed_tokens.weight"},
        {"^head\\.weight$", "lm_head.weight"},
        {"^hc_head_fn$", "hc_head.hc_fn"},
        {"^hc_head_base$", "hc_head.hc_base"},
        {"^hc_head_scale$", "hc_head.hc_scale"},
        {"\\.attn_norm\\.", ".input_layernorm."},
        {"\\.ffn_norm\\.", ".post_attention_layernorm."},
        {"\\.hc_attn_(fn|base|scale)$", ".attn_hc.$1"},
        {"\\.hc_ffn_(fn|base|scale)$", ".ffn_hc.$1"},
        {"\\.attn_sink$", ".sinks"},
        {"\\.indexer\\.weights_proj\\.", ".compressor.indexer.scorer.weights_proj."},
        {"\\.indexer\\.wq_b\\.", ".compressor.indexer.q_b_proj."},
        {"(compressor|indexer)\\.norm\\.", "$1.kv_norm."},
        {"\\.ape$", ".position_bias"},
        {"\\.wq_a\\.", ".q_a_proj."},
        {"\\.self_attn\\.wq_b\\.", ".self_attn.q_b_proj."},
        {"\\.wkv\\.", ".kv_proj."},
        {"\\.wgate\\.", ".gate_proj."},
        {"\\.wo_a\\.", ".o_a_proj."},
        {"\\.wo_b\\.", ".o_b_proj."},
        {"\\.q_norm\\.", ".q_a_norm."},
        {"\\.gate\\.bias$", ".gate.e_score_correction_bias"},
        {"experts(\\.[0-9]+)?\\.w1\\.", "experts$1.gate_proj."},
        {"experts(\\.[0-9]+)?\\.w2\\.", "experts$1.down_proj."},
        {"experts(\\.[0-9]+)?\\.w3\\.", "experts$1.up_proj."}};
    std::vector<std::pair<std::regex, std::string>> compiled;
    for (const auto& [from, to] : texts) compiled.emplace_back(std::regex(from), to);
    return compiled;
  }();
  for (const auto& [from, to] : rules) name = std::regex_replace(name, from, to);
  return name.starts_with("lm_head") ? name : "model." + name;
}

inline void rename_all(EditableModel& model,
                       const std::function<std::string(const std::string&)>& rename) {
  for (auto& tensor : model.tensors) tensor.name = rename(tensor.name);
}

inline bool has_suffix(const std::string& name, const std::string& suffix) {
  return name.size() >= suffix.size() && name.ends_with(suffix);
}

// ModelOpt's NVFP4 as compressed-tensors stores it: other names, reciprocal global scales, of shape
// [1] (as llm-compressor writes them) or [] (squeezed).
inline void to_compressed_tensors(EditableModel& model, const Shape& scalar_shape) {
  std::vector<std::string> packed;
  for (const auto& tensor : model.tensors) {
    if (!has_suffix(tensor.name, ".weight_scale_2")) continue;
    packed.push_back(tensor.name.substr(0, tensor.name.size() - std::strlen(".weight_scale_2")));
  }
  const auto invert = [&](const std::string& from, const std::string& to) {
    auto& tensor = model.tensor(from);
    float value;
    std::memcpy(&value, tensor.bytes.data(), sizeof(value));
    tensor.set<float>(0, 1.0f / value);
    tensor.name = to;
    tensor.shape = scalar_shape;
  };
  for (const std::string& matrix : packed) {
    model.tensor(matrix + ".weight").name = matrix + ".weight_packed";
    invert(matrix + ".weight_scale_2", matrix + ".weight_global_scale");
    invert(matrix + ".input_scale", matrix + ".input_global_scale");
  }
}

// The E8M0 scales of FP8 matrices under another name, as numbers in `dtype` (F32 or BF16).
inline void to_number_scales(EditableModel& model, const std::string& name, DType dtype) {
  for (auto& tensor : model.tensors) {
    const bool is_scale = tensor.dtype == DType::kE8M0 && has_suffix(tensor.name, ".scale");
    if (!is_scale) continue;
    const std::string matrix = tensor.name.substr(0, tensor.name.size() - 6);
    if (model.tensor(matrix + ".weight").dtype != DType::kE4M3) continue;
    const std::vector<std::byte> codes = tensor.bytes;
    tensor.name = matrix + "." + name;
    tensor.dtype = dtype;
    tensor.bytes.resize(codes.size() * static_cast<std::size_t>(dtype_bytes(dtype)));
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float value = decode_e8m0(static_cast<std::uint8_t>(codes[i]));
      if (dtype == DType::kF32) tensor.set<float>(i, value);
      if (dtype == DType::kBF16) tensor.set<std::uint16_t>(i, encode_bf16(value));
    }
  }
}

// Replaces a matrix by NVFP4 made of a pattern; the values follow by the format's definition.
inline void put_nvfp4(EditableModel& model, const std::string& matrix, const Shape& shape,
                      const Nvfp4Names& names, float global_scale) {
  const std::int64_t rows = shape[0], cols = shape[1];
  for (const char* key : {".weight", ".scale"}) {
    std::erase_if(model.tensors,
                  [&](const EditableModel::Tensor& t) { return t.name == matrix + key; });
  }
  const auto name = [&](std::string_view key) { return matrix + "." + std::string(key); };
  model.add(name(names.codes), DType::kU8, {rows, cols / 2});
  model.add(name(names.block_scales), DType::kE4M3, {rows, cols / 16});
  model.add(name(names.global_scale), DType::kF32, {});
  auto& codes = model.tensor(name(names.codes));
  for (std::size_t i = 0; i < codes.bytes.size(); ++i)
    codes.bytes[i] = static_cast<std::byte>((i * 37 + i / 64) & 255);
  auto& scales = model.tensor(name(names.block_scales));
  for (std::size_t i = 0; i < scales.bytes.size(); ++i)
    scales.bytes[i] = static_cast<std::byte>(0x28 + i % 24);
  model.tensor(name(names.global_scale))
      .set<float>(0, names.is_reciprocal ? 1.0f / global_scale : global_scale);
}

// Global scales whose reciprocal is an FP32, as those of a cast from MXFP4 are.
inline void make_scalars_powers_of_two(EditableModel& model) {
  for (auto& tensor : model.tensors) {
    if (!has_suffix(tensor.name, ".weight_scale_2") && !has_suffix(tensor.name, ".input_scale"))
      continue;
    float value;
    std::memcpy(&value, tensor.bytes.data(), sizeof(value));
    tensor.set<float>(0, std::exp2(std::round(std::log2(value))));
  }
}

// Keeps the first `keep` experts of a layer ("layers.2"), as pruning does: renumbered experts, rows
// of the router's weight and bias.
inline void prune_layer(EditableModel& model, const std::string& layer, int keep) {
  auto& router = model.tensor(layer + ".ffn.gate.weight");
  const std::int64_t before = router.shape[0];
  router.bytes.resize(router.bytes.size() / static_cast<std::size_t>(before) *
                      static_cast<std::size_t>(keep));
  router.shape = {keep, router.shape[1]};
  for (auto& tensor : model.tensors) {
    if (tensor.name != layer + ".ffn.gate.bias") continue;
    tensor.shape = {keep};
    tensor.bytes.resize(static_cast<std::size_t>(keep) * sizeof(float));
  }
  for (std::int64_t e = keep; e < before; ++e) {
    model.remove_prefix(layer + ".ffn.experts." + std::to_string(e) + ".");
  }
}

}  // namespace dsv4
