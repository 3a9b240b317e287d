#include "runtime/loaded_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/bind.h"
#include "checkpoint/model_dir.h"

namespace dsv4 {
namespace {

// Scratch memory grows with it; larger steps gain nothing on any device.
constexpr std::int64_t kMaxStepTokens = 65536;
constexpr int kMaxSessions = 65536;
constexpr std::int64_t kMaxPageRows = 65536;

void check_range(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  require(value >= low && value <= high, ErrorCode::kBadRequest,
          "{} is {}; it must be between {} and {}", name, value, low, high);
}

const ModelOpenOptions& checked(const ModelOpenOptions& options) {
  check_range("max_step_tokens", options.model.max_step_tokens, 1, kMaxStepTokens);
  check_range("page_rows", options.model.page_rows, 1, kMaxPageRows);
  check_range("max_sessions", options.max_sessions, 1, kMaxSessions);
  require(options.kv_tokens >= 0, ErrorCode::kBadRequest,
          "kv_tokens is {}; it must not be negative", options.kv_tokens);
  return options;
}

// Of all sessions together.
std::int64_t cache_tokens(const ModelOpenOptions& options, const ModelConfig& config) {
  const std::int64_t most = config.max_positions * options.max_sessions;
  if (options.kv_tokens > 0) return std::min(options.kv_tokens, most);
  return std::min(config.max_positions, kDefaultKvTokens) * options.max_sessions;
}

std::optional<Tokenizer> open_tokenizer(const ModelOpenOptions& options) {
  if (!options.with_tokenizer) return std::nullopt;
  return load_tokenizer(options.model_dir);
}

GenerationDefaults with_eos(const ModelWeights& weights) {
  GenerationDefaults defaults = weights.generation;
  if (defaults.eos_ids.empty()) defaults.eos_ids = weights.config.eos_ids;
  return defaults;
}

}  // namespace

Tokenizer load_tokenizer(const std::filesystem::path& model_dir) {
  std::error_code error;  // a directory needs no model beside its tokenizer
  if (!std::filesystem::is_directory(model_dir, error)) check_model_dir(model_dir);
  return Tokenizer::load(model_dir / "tokenizer.json");
}

EffortTable effort_table_of(const ModelConfig& config) {
  return config.has_dspark ? EffortTable::k0731 : EffortTable::kInitial;
}

LoadedModel::LoadedModel(const ModelOpenOptions& options)
    : backend_(open_backend(checked(options).device, options.num_threads)),
      weights_(load_checkpoint(options.model_dir, {.with_draft = options.with_draft,
                                                   .progress = options.load_progress})),
      tokenizer_(open_tokenizer(options)),
      generation_(with_eos(*weights_)),
      model_(weights_, *backend_, options.model),
      max_session_tokens_(std::min(config().max_positions, cache_tokens(options, config()))),
      cache_(model_.make_cache(cache_tokens(options, config()), options.max_sessions)) {}

const Tokenizer& LoadedModel::tokenizer() const {
  require(tokenizer_.has_value(), ErrorCode::kBadRequest,
          "this model was opened without its tokenizer; open it with one");
  return *tokenizer_;
}

}  // namespace dsv4
