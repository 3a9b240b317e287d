// golden_file.h: recorded values of a correct run of a model: prompts, logits, and what each layer
// gave. Comparing them is verify.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "dsv4/types.h"
#include "io/safetensors.h"

namespace dsv4 {

// The file beside the golden files of a model that names their prompts.
inline constexpr std::string_view kGoldenPromptsFileName = "prompts.json";
// Logits are recorded for at most this many positions of a prefill, its last ones.
inline constexpr std::int64_t kGoldenPrefillRows = 32;

struct GoldenPrompt {
  std::string name;
  std::vector<TokenId> tokens;
  std::int64_t num_prefilled = 0;  // in one step; at least 1; the rest one by one, at least one

  std::int64_t num_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_decoded() const { return num_tokens() - num_prefilled; }
  std::int64_t num_prefill_rows() const {
    return num_prefilled < kGoldenPrefillRows ? num_prefilled : kGoldenPrefillRows;
  }
};

// A golden file, checked against the model that it shall judge. Its tensors, all F32, are for every
// prompt P, with h hidden_size and hc hc_copies:
//   P.prefill_logits [num_prefill_rows, vocab], P.decode_logits [num_decoded, vocab]
//   mid.layers.L.streams_out [num_tokens of mid, hc, h]: the residual copies after layer L
//   mid.layers.L.attn_out, mid.layers.L.ffn_out [num_tokens of mid, h]: of all layers or of none
//   short.mtp_logits [num_prefilled of short, vocab]: perhaps
class GoldenFile {
 public:
  // Reads also prompts.json beside `path`. Throws Error: kNotFound, kIo, kBadCheckpoint (damaged:
  // a tensor missing or unknown, of another dtype or shape), kBadRequest (of another model).
  static GoldenFile open(const std::filesystem::path& path, const ModelConfig& config);

  std::span<const GoldenPrompt> prompts() const { return prompts_; }
  // The prompt whose layers are recorded.
  const GoldenPrompt& layered_prompt() const;
  bool has_sublayer_outputs() const { return has_sublayer_outputs_; }
  // The prompt whose prefill has logits of the draft block; null if none was recorded.
  const GoldenPrompt* draft_prompt() const;

  // Row-major. The name is one of those above.
  std::vector<float> values(const std::string& name) const;

 private:
  GoldenFile(SafetensorsFile file, std::vector<GoldenPrompt> prompts);
  const GoldenPrompt& prompt(std::string_view name) const;
  void check_tensors(const ModelConfig& config);

  SafetensorsFile file_;
  std::vector<GoldenPrompt> prompts_;
  bool has_sublayer_outputs_ = false;
};

// Of the text of a prompts.json: {"NAME": {"tokens": [..], "prefill": n}, ..}, in the order of the
// names. Throws Error kBadCheckpoint; `where` names the file.
std::vector<GoldenPrompt> parse_golden_prompts(std::string_view json, std::string_view where,
                                               std::int64_t vocab_size);

}  // namespace dsv4
