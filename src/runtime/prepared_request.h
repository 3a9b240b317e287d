// prepared_request.h: a request as the engine runs it: checked, its text encoded, the model's
// defaults filled in. What is done with it: request_run.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dsv4/engine.h"
#include "ops/sampling.h"
#include "text/tokenizer.h"

namespace dsv4 {

struct PreparedRequest {
  std::vector<TokenId> prompt;  // at least one
  std::int64_t max_tokens = 0;
  SamplingOptions sampling;
  SamplingRow row;  // without its position
  std::vector<std::string> stop_strings;
  std::vector<TokenId> stop_tokens;  // the model's end tokens among them
  std::optional<int> logprobs;

  // Tokens that its cache must hold at the end: the last one drawn is never computed.
  std::int64_t cache_tokens() const {
    return static_cast<std::int64_t>(prompt.size()) + (max_tokens > 0 ? max_tokens - 1 : 0);
  }
};

// `tokenizer` may be null. Throws Error kBadRequest naming the field.
PreparedRequest prepare(const Request& request, const EngineInfo& engine,
                        const Tokenizer* tokenizer);

// Throws Error kBadRequest naming `field` unless all ids are in the vocabulary.
void check_token_ids(std::span<const TokenId> ids, std::int64_t vocab_size, std::string_view field);

}  // namespace dsv4
