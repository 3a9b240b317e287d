#include "runtime/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/mapped_file.h"
#include "text/strict_json.h"

namespace dsv4 {
namespace {

constexpr std::string_view kLayeredPrompt = "mid";
constexpr std::string_view kDraftPrompt = "short";
// Room for millions of tokens; a run takes far fewer.
constexpr std::size_t kMaxPromptsBytes = 64'000'000;

GoldenPrompt parse_prompt(const std::string& name, const nlohmann::json& value,
                          std::string_view where, std::int64_t vocab_size) {
  const auto demand = [&](bool condition, std::string_view requirement) {
    require(condition, ErrorCode::kBadCheckpoint, "{}: prompt {}: {}", where, quote(name),
            requirement);
  };
  demand(value.is_object() && value.contains("tokens") && value.contains("prefill"),
         "must be an object with \"tokens\" and \"prefill\"");
  const nlohmann::json& tokens = value["tokens"];
  const nlohmann::json& prefill = value["prefill"];
  demand(tokens.is_array(), "\"tokens\" must be an array of token ids");
  GoldenPrompt prompt;
  prompt.name = name;
  for (const nlohmann::json& token : tokens) {
    demand(token.is_number_unsigned(), "\"tokens\" must be an array of token ids");
    const auto id = token.get<std::uint64_t>();
    require(id < static_cast<std::uint64_t>(vocab_size), ErrorCode::kBadRequest,
            "{}: prompt {}: token id {} is outside the model's vocabulary of {}: these are the "
            "golden values of another model",
            where, quote(name), id, vocab_size);
    prompt.tokens.push_back(static_cast<TokenId>(id));
  }
  demand(prefill.is_number_unsigned(), "\"prefill\" must be a number of tokens");
  const auto num_prefilled = prefill.get<std::uint64_t>();
  demand(num_prefilled >= 1 && num_prefilled < prompt.tokens.size(),
         "\"prefill\" must be at least 1 and less than the number of tokens");
  prompt.num_prefilled = static_cast<std::int64_t>(num_prefilled);
  return prompt;
}

}  // namespace

std::vector<GoldenPrompt> parse_golden_prompts(std::string_view json, std::string_view where,
                                               std::int64_t vocab_size) {
  require(json.size() <= kMaxPromptsBytes, ErrorCode::kBadCheckpoint,
          "{}: {} bytes; at most {} are read", where, json.size(), kMaxPromptsBytes);
  const nlohmann::json root = parse_strict_json(json, where);
  require(root.is_object(), ErrorCode::kBadCheckpoint, "{}: must be an object of prompts by name",
          where);
  std::vector<GoldenPrompt> prompts;
  for (const auto& item : root.items()) {
    prompts.push_back(parse_prompt(item.key(), item.value(), where, vocab_size));
  }
  return prompts;
}

GoldenFile::GoldenFile(SafetensorsFile file, std::vector<GoldenPrompt> prompts)
    : file_(std::move(file)), prompts_(std::move(prompts)) {}

GoldenFile GoldenFile::open(const std::filesystem::path& path, const ModelConfig& config) {
  SafetensorsFile file = SafetensorsFile::open(path);
  const MappedFile prompts_file = MappedFile::open(path.parent_path() / kGoldenPromptsFileName);
  const std::string_view text(reinterpret_cast<const char*>(prompts_file.bytes().data()),
                              prompts_file.bytes().size());
  GoldenFile golden(std::move(file),
                    parse_golden_prompts(text, prompts_file.path().string(), config.vocab_size));
  golden.check_tensors(config);
  return golden;
}

const GoldenPrompt& GoldenFile::prompt(std::string_view name) const {
  const auto found = std::find_if(prompts_.begin(), prompts_.end(),
                                  [&](const GoldenPrompt& p) { return p.name == name; });
  require(found != prompts_.end(), ErrorCode::kBadCheckpoint, "{}: no prompt \"{}\"",
          (file_.path().parent_path() / kGoldenPromptsFileName).string(), name);
  return *found;
}

const GoldenPrompt& GoldenFile::layered_prompt() const { return prompt(kLayeredPrompt); }

const GoldenPrompt* GoldenFile::draft_prompt() const {
  const bool recorded = file_.find(fmt::format("{}.mtp_logits", kDraftPrompt)) != nullptr;
  return recorded ? &prompt(kDraftPrompt) : nullptr;
}

void GoldenFile::check_tensors(const ModelConfig& config) {
  const std::string where = file_.path().string();
  std::size_t num_known = 0;
  const auto expect = [&](const std::string& name, const Shape& shape) {
    const TensorInfo* tensor = file_.find(name);
    require(tensor != nullptr, ErrorCode::kBadCheckpoint,
            "{}: tensor {} is missing; not a golden file of this model and these prompts", where,
            name);
    require(tensor->dtype == DType::kF32, ErrorCode::kBadCheckpoint,
            "{}: tensor {} is {}, must be F32", where, name, dtype_name(tensor->dtype));
    require(tensor->shape == shape, ErrorCode::kBadRequest,
            "{}: tensor {} is {}, this model and prompts.json give {}: golden values of another "
            "model",
            where, name, tensor->shape.to_string(), shape.to_string());
    ++num_known;
  };
  const GoldenPrompt& layered = layered_prompt();
  const std::int64_t tokens = layered.num_tokens();
  const std::int64_t hidden = config.hidden_size;
  const auto layer_tensor = [](int layer, std::string_view what) {
    return fmt::format("{}.layers.{}.{}", kLayeredPrompt, layer, what);
  };
  has_sublayer_outputs_ = file_.find(layer_tensor(0, "attn_out")) != nullptr;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    expect(layer_tensor(layer, "streams_out"), {tokens, config.hc_copies, hidden});
    if (!has_sublayer_outputs_) continue;
    expect(layer_tensor(layer, "attn_out"), {tokens, hidden});
    expect(layer_tensor(layer, "ffn_out"), {tokens, hidden});
  }
  require(file_.find(layer_tensor(config.num_layers, "streams_out")) == nullptr,
          ErrorCode::kBadRequest,
          "{}: has more than the {} layers of this model: golden values of another model", where,
          config.num_layers);
  for (const GoldenPrompt& p : prompts_) {
    expect(p.name + ".prefill_logits", {p.num_prefill_rows(), config.vocab_size});
    expect(p.name + ".decode_logits", {p.num_decoded(), config.vocab_size});
  }
  if (const GoldenPrompt* draft = draft_prompt(); draft != nullptr) {
    expect(draft->name + ".mtp_logits", {draft->num_prefilled, config.vocab_size});
  }
  // A tensor that nothing compares would be a check that silently did not happen.
  require(num_known == file_.tensors().size(), ErrorCode::kBadCheckpoint,
          "{}: {} tensors of which only {} are known; is prompts.json beside it the right one?",
          where, file_.tensors().size(), num_known);
}

std::vector<float> GoldenFile::values(const std::string& name) const {
  const TensorInfo* tensor = file_.find(name);
  DSV4_CHECK(tensor != nullptr, "{}", name);
  const std::span<const std::byte> bytes = file_.bytes(*tensor);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace dsv4
