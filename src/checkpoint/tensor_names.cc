// tensor_names.cc: the tables of spellings, and the index; see tensor_names.h.
#include "checkpoint/tensor_names.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/json_fields.h"
#include "checkpoint/tensor_table.h"

namespace dsv4 {
namespace {

// Whole segments `published` of a name become `official`, if the official name so far ends in the
// segment `parent` (empty: anywhere). The first row that fits counts, so longer ones come first.
struct Spelling {
  std::string_view parent, published, official;
};

// Sources: transformers conversion_mapping.py ("deepseek_v4"), DeepSeek's inference/convert.py.
constexpr Spelling kSpellings[] = {
    {"", "embed_tokens", "embed"},
    {"", "lm_head", "head"},
    {"", "hc_head.hc_fn", "hc_head_fn"},
    {"", "hc_head.hc_base", "hc_head_base"},
    {"", "hc_head.hc_scale", "hc_head_scale"},
    {"", "input_layernorm", "attn_norm"},
    {"", "post_attention_layernorm", "ffn_norm"},
    {"", "attn_hc.fn", "hc_attn_fn"},
    {"", "attn_hc.base", "hc_attn_base"},
    {"", "attn_hc.scale", "hc_attn_scale"},
    {"", "ffn_hc.fn", "hc_ffn_fn"},
    {"", "ffn_hc.base", "hc_ffn_base"},
    {"", "ffn_hc.scale", "hc_ffn_scale"},
    {"", "self_attn", "attn"},
    {"", "mlp", "ffn"},

    // transformers hangs the indexer below the compressor, DeepSeek a compressor below the indexer.
    {"attn", "compressor.indexer.scorer.weights_proj", "indexer.weights_proj"},
    {"attn", "compressor.indexer.weights_proj", "indexer.weights_proj"},
    {"attn", "compressor.indexer.q_b_proj", "indexer.wq_b"},
    {"attn", "compressor.indexer.wq_b", "indexer.wq_b"},
    {"attn", "compressor.indexer", "indexer.compressor"},
    {"indexer", "q_b_proj", "wq_b"},
    {"compressor", "kv_proj", "wkv"},
    {"compressor", "gate_proj", "wgate"},
    {"compressor", "kv_norm", "norm"},
    {"compressor", "position_bias", "ape"},

    {"attn", "q_a_proj", "wq_a"},
    {"attn", "q_a_norm", "q_norm"},
    {"attn", "q_a_layernorm", "q_norm"},
    {"attn", "q_b_proj", "wq_b"},
    {"attn", "kv_proj", "wkv"},
    {"attn", "kv_a_layernorm", "kv_norm"},
    {"attn", "o_a_proj", "wo_a"},
    {"attn", "o_b_proj", "wo_b"},
    {"attn", "sinks", "attn_sink"},

    {"gate", "e_score_correction_bias", "bias"},
    {"", "gate_proj", "w1"},  // of routed and shared experts
    {"", "up_proj", "w3"},
    {"", "down_proj", "w2"},
    {"", "weight_scale_inv", "scale"},
};

constexpr std::string_view kPrefix = "model.";

bool starts_with_segments(std::string_view text, std::string_view segments) {
  return text.starts_with(segments) &&
         (text.size() == segments.size() || text[segments.size()] == '.');
}

bool ends_with_segment(std::string_view text, std::string_view segment) {
  return text.ends_with(segment) &&
         (text.size() == segment.size() || text[text.size() - segment.size() - 1] == '.');
}

// A part of an official name by which a scheme that we do not read is known.
struct ForeignMark {
  enum class Place { kStart, kEnd, kSegment } place;
  std::string_view text, what;
};

constexpr std::string_view kFused =
    "a matrix as vLLM fuses it in memory; use a checkpoint with the parts: wq_a and wkv, wkv and "
    "wgate, w1 and w3";
constexpr std::string_view kStacked =
    "all experts in one tensor, as transformers holds them in memory; save the model with one "
    "matrix an expert (save_pretrained's default)";
constexpr std::string_view kVision = "a tensor of DeepSeek-V4 Vision, which is not supported";
constexpr std::string_view kV41 = "a tensor of DeepSeek-V4.1, which is not supported";
constexpr std::string_view kGguf =
    "a GGUF name; use the model's original safetensors files with their config.json";
constexpr std::string_view kMlx =
    "a tensor of MLX's affine quantisation; use the model's original safetensors files";

constexpr ForeignMark kForeignMarks[] = {
    {ForeignMark::Place::kSegment, "fused_wqa_wkv", kFused},
    {ForeignMark::Place::kSegment, "fused_wkv_wgate", kFused},
    {ForeignMark::Place::kSegment, "w13", kFused},
    {ForeignMark::Place::kSegment, "w13_weight", kFused},
    {ForeignMark::Place::kSegment, "w13_weight_packed", kFused},
    {ForeignMark::Place::kSegment, "shared_experts.gate_up_proj", kFused},
    {ForeignMark::Place::kSegment, "experts.gate_up_proj", kStacked},
    {ForeignMark::Place::kSegment, "experts.w2", kStacked},
    {ForeignMark::Place::kSegment, "switch_mlp", kMlx},
    {ForeignMark::Place::kEnd, ".biases", kMlx},
    {ForeignMark::Place::kEnd, ".scales", kMlx},
    {ForeignMark::Place::kStart, "vision.", kVision},
    {ForeignMark::Place::kStart, "aligner.", kVision},
    {ForeignMark::Place::kEnd, ".gate.bias_vl", kVision},
    {ForeignMark::Place::kEnd, ".gate.e_score_correction_bias_vl", kVision},
    {ForeignMark::Place::kSegment, "engram", kV41},
    {ForeignMark::Place::kStart, "token_embd.", kGguf},
    {ForeignMark::Place::kStart, "blk.", kGguf},
};

bool matches(std::string_view name, const ForeignMark& mark) {
  switch (mark.place) {
    case ForeignMark::Place::kStart:
      return name.starts_with(mark.text);
    case ForeignMark::Place::kEnd:
      return name.ends_with(mark.text);
    case ForeignMark::Place::kSegment:
      for (std::size_t at = name.find(mark.text); at != name.npos;
           at = name.find(mark.text, at + 1)) {
        const bool begins = at == 0 || name[at - 1] == '.';
        if (begins && starts_with_segments(name.substr(at), mark.text)) return true;
      }
      return false;
  }
  return false;
}

}  // namespace

std::string official_name(std::string_view published) {
  std::string_view rest = published;
  if (rest.starts_with(kPrefix)) rest.remove_prefix(kPrefix.size());
  if (rest.empty() || rest.ends_with('.')) return std::string(published);
  std::string name;
  for (bool is_first = true; !rest.empty(); is_first = false) {
    std::string_view taken = rest.substr(0, rest.find('.'));
    std::string_view becomes = taken;
    for (const Spelling& row : kSpellings) {
      if (!starts_with_segments(rest, row.published)) continue;
      if (!row.parent.empty() && !ends_with_segment(name, row.parent)) continue;
      taken = row.published;
      becomes = row.official;
      break;
    }
    if (!is_first) name += '.';
    name += becomes;
    rest = rest.substr(std::min(taken.size() + 1, rest.size()));
  }
  return name;
}

std::string_view foreign_scheme(std::string_view official) {
  for (const ForeignMark& mark : kForeignMarks) {
    if (matches(official, mark)) return mark.what;
  }
  return {};
}

bool is_draft_copy(std::string_view official) {
  if (!official.starts_with(kDraftPrefix)) return false;
  const std::string_view stage = official.substr(kDraftPrefix.size());
  const std::string_view rest = stage.substr(std::min(stage.find('.'), stage.size()));
  return rest == ".emb.tok_emb.weight" || rest == ".embed.weight" || rest == ".head.weight";
}

NamedTensors::NamedTensors(const TensorStore& store) {
  std::vector<std::string_view> names;
  names.reserve(store.tensors().size());
  entries_.reserve(store.tensors().size());
  for (const StoredTensor& tensor : store.tensors()) {
    std::string_view official = tensor.info->name;
    std::string name = official_name(official);
    if (name != official) official = renamed_.emplace_back(std::move(name));
    const std::string_view foreign = foreign_scheme(official);
    require(foreign.empty(), ErrorCode::kUnsupported, "tensor {} is {}",
            in_quotes(tensor.info->name), foreign);
    names.push_back(official);
    entries_.push_back({official, tensor});
  }
  by_name_ = NameIndex(names);
  if (const auto pair = by_name_.duplicate()) {
    const auto published = [&](std::int64_t i) {
      return in_quotes(entries_[static_cast<std::size_t>(i)].tensor.info->name);
    };
    fail(ErrorCode::kBadCheckpoint,
         "tensors {} and {} are two spellings of one tensor; the checkpoint must have one of them",
         published(pair->first), published(pair->second));
  }
}

std::optional<StoredTensor> NamedTensors::find(std::string_view official) const {
  const std::optional<std::int64_t> position = by_name_.find(official);
  if (!position) return std::nullopt;
  return entries_[static_cast<std::size_t>(*position)].tensor;
}

bool NamedTensors::has_prefix(std::string_view prefix) const {
  for (const Entry& entry : entries_) {
    if (entry.official.starts_with(prefix)) return true;
  }
  return false;
}

}  // namespace dsv4
