// generate.h: continues a prompt token by token, with text pieces as they become complete.
//
// Prompts come as token ids: building them from text is text/'s matter.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsv4/request.h"
#include "runtime/model_session.h"
#include "text/tokenizer.h"

namespace dsv4 {

struct GenerateOptions {
  std::int64_t max_tokens = 512;  // 0: the prompt is computed, nothing drawn
  // As in SamplingRow (ops/sampling.h). The token at position p is drawn with (seed, p), so a run
  // repeats exactly, also when it is continued later.
  float temperature = 1;
  float top_p = 1;
  float min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<int> stop_ids;  // drawing one of them ends the generation
  SyncOptions prefill;
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // all that were drawn, a stop id included
  std::string text;             // of the tokens without the stop id, valid UTF-8
  // kLength also when the session is full, kCancelled when the callback returned false.
  FinishReason finish_reason = FinishReason::kLength;
  std::int64_t prompt_tokens = 0;
  std::int64_t computed_prompt_tokens = 0;  // the others were in the session already
  double prefill_seconds = 0;               // up to the first token
  double decode_seconds = 0;                // of the others, without the time that on_token takes
};

// Sees each drawn token and the text that it completes: valid UTF-8, often empty (also for a stop
// id). At the end, text that was held back comes with token -1. Returns false to cancel.
using TokenCallback = std::function<bool(TokenId token, std::string_view text)>;

// Makes `session` hold `prompt` and draws tokens. Afterwards the session holds the prompt and all
// drawn tokens but the last. `tokenizer` null: no text. A drawn id that is no token of `tokenizer`
// (models have more rows than their tokenizer has tokens) reads as U+FFFD.
// Throws Error: kBadRequest (empty prompt, sampling options, what ModelSession::sync refuses),
// kOverloaded, kBadCheckpoint when a logit is NaN or none is above -infinity.
GenerateResult generate(ModelSession& session, std::span<const TokenId> prompt,
                        const Tokenizer* tokenizer, const GenerateOptions& options,
                        const TokenCallback& on_token = {});

}  // namespace dsv4
