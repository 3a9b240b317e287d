// session.h: one token timeline on a loaded model: computes what is new, gives logits.
//
// Which token comes next is sampler.h's and generate.h's matter.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "dsv4/types.h"
#include "kv/handle.h"
#include "runtime/loaded_model.h"

namespace dsv4 {

struct SyncOptions {
  // Tokens a step, at most the model's max_step_tokens; 0: that. Results do not depend on it.
  std::int64_t chunk_tokens = 0;
  // Called after each step with the tokens computed so far and in all. May throw.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
};

// Belongs to the thread of its model. Bits of its logits depend on its tokens only: not on chunks,
// on earlier content or on other sessions.
class ModelSession {
 public:
  // Throws Error kOverloaded when max_sessions of the model are open.
  explicit ModelSession(LoadedModel& model);

  // Makes the session hold exactly `tokens` and returns the number of tokens computed. When they
  // extend the present ones, only the rest is computed; nothing if they are equal. Otherwise the
  // session starts over: compressor states and window rows are those of the present token and
  // cannot be taken back to an earlier one.
  // Throws Error kBadRequest for an id outside the vocabulary, more tokens than the model takes or
  // a chunk_tokens out of range; then nothing has changed. After any other exception (kOverloaded:
  // the cache is full) the session is empty.
  std::int64_t sync(std::span<const TokenId> tokens, const SyncOptions& options = {});

  // Appends one token. Throws as sync does.
  void step(TokenId token);

  // Forgets all tokens.
  void clear();

  std::span<const TokenId> tokens() const { return tokens_; }
  std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }

  // Logits after the last token, [vocab], on the host; valid until the session changes. Throws
  // Error kBadRequest for an empty session.
  std::span<const float> logits() const;
  // The same on the device, [1, vocab].
  MatrixView device_logits() const;

  LoadedModel& loaded_model() const { return *model_; }

 private:
  void check_extension(std::span<const TokenId> tokens, std::int64_t first_position) const;
  void append(std::span<const TokenId> tokens, const SyncOptions& options);
  void forward(std::span<const TokenId> chunk, bool wants_logits);

  LoadedModel* model_;
  SequenceCache cache_;
  std::vector<TokenId> tokens_;
  DeviceBuffer device_logits_;              // [vocab]: the model's own are every session's
  mutable std::vector<float> host_logits_;  // empty: not fetched yet
};

}  // namespace dsv4
