// loaded_model.h: everything that a model directory gives to a program, opened together: weights,
// device, model, cache memory and tokenizer.
//
// What to compute with it is session.h's, generate.h's and perplexity.h's matter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "backends/backends.h"
#include "checkpoint/weights.h"
#include "kv/kv_cache.h"
#include "model/model.h"
#include "text/conversation.h"
#include "text/tokenizer.h"

namespace dsv4 {

// Tokens that the cache holds when nobody says how many: a model may allow a million.
inline constexpr std::int64_t kDefaultKvTokens = 32768;

struct ModelOpenOptions {
  std::filesystem::path model_dir;
  std::string device = "cpu";  // a name that open_backend takes
  int num_threads = 0;         // as open_backend takes it
  ModelOptions model;
  // Tokens of all sessions together. 0: a whole context of the model, at most kDefaultKvTokens.
  std::int64_t kv_tokens = 0;
  int max_sessions = 1;
  bool with_draft = false;
  bool with_tokenizer = true;  // false: the directory need not have one
  LoadProgressCallback load_progress = nullptr;
};

// `model_dir`/tokenizer.json. Throws what Tokenizer::load throws.
Tokenizer load_tokenizer(const std::filesystem::path& model_dir);
// The effort table of the release that a checkpoint belongs to.
EffortTable effort_table_of(const ModelConfig& config);

// Belongs to one thread at a time. Sessions hold parts of the cache: they must not outlive it.
class LoadedModel {
 public:
  // Throws Error: kNotFound, kBadCheckpoint, kUnsupported, kUnsupportedDevice, kBadRequest
  // (options out of range or in contradiction), kOutOfMemory, kIo.
  explicit LoadedModel(const ModelOpenOptions& options);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  const ModelWeights& weights() const { return *weights_; }
  const ModelConfig& config() const { return weights_->config; }
  // Its eos_ids are never empty: the config's, where generation_config.json names none.
  const GenerationDefaults& generation() const { return generation_; }
  Backend& backend() { return *backend_; }
  Model& model() { return model_; }
  KvCache& cache() { return *cache_; }
  // Tokens that one session can hold when it is alone.
  std::int64_t max_session_tokens() const { return max_session_tokens_; }

  bool has_tokenizer() const { return tokenizer_.has_value(); }
  // Throws Error kBadRequest if the model was opened without one.
  const Tokenizer& tokenizer() const;

 private:
  std::unique_ptr<Backend> backend_;
  std::shared_ptr<const ModelWeights> weights_;
  std::optional<Tokenizer> tokenizer_;
  GenerationDefaults generation_;
  Model model_;
  std::int64_t max_session_tokens_;
  std::unique_ptr<KvCache> cache_;
};

}  // namespace dsv4
