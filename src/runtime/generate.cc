#include "runtime/generate.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "runtime/sampler.h"
#include "runtime/text_output.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SamplingRow sampling_row(const GenerateOptions& options, std::int64_t position) {
  return {.temperature = options.temperature,
          .top_p = options.top_p,
          .min_p = options.min_p,
          .top_k = options.top_k,
          .seed = options.seed,
          .position = position};
}

bool contains(const std::vector<int>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Draws until something ends it, and says what did.
FinishReason decode(ModelSession& session, const GenerateOptions& options, TextOutput& text,
                    const TokenCallback& on_token, GenerateResult& result) {
  Sampler sampler(session.loaded_model().backend());
  const std::int64_t session_tokens = session.loaded_model().max_session_tokens();
  for (std::int64_t i = 0; i < options.max_tokens; ++i) {
    const auto start = Clock::now();
    // The token before is computed only now: the last one drawn never is.
    if (i > 0) {
      if (session.length() == session_tokens) return FinishReason::kLength;
      session.step(result.tokens.back());
    }
    const std::int64_t position = session.length();
    const TokenId token =
        sampler.sample(session.device_logits(), sampling_row(options, position)).token;
    if (token < 0) fail(ErrorCode::kBadCheckpoint, "{}", bad_logits_message(position));
    result.tokens.push_back(token);
    const bool stops = contains(options.stop_ids, token);
    const std::string piece = stops ? std::string() : text.push(token);
    result.text += piece;
    (i == 0 ? result.prefill_seconds : result.decode_seconds) += seconds_since(start);
    const bool goes_on = !on_token || on_token(token, piece);
    if (stops) return FinishReason::kStop;
    if (!goes_on) return FinishReason::kCancelled;
  }
  return FinishReason::kLength;
}

}  // namespace

GenerateResult generate(ModelSession& session, std::span<const TokenId> prompt,
                        const Tokenizer* tokenizer, const GenerateOptions& options,
                        const TokenCallback& on_token) {
  require(!prompt.empty(), ErrorCode::kBadRequest,
          "the prompt has no tokens; give it at least one");
  require(options.max_tokens >= 0, ErrorCode::kBadRequest,
          "max_tokens is {}; it must not be negative", options.max_tokens);
  check(sampling_row(options, 0));

  GenerateResult result;
  result.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  const auto start = Clock::now();
  result.computed_prompt_tokens = session.sync(prompt, options.prefill);
  result.prefill_seconds = seconds_since(start);

  TextOutput text(tokenizer, {});
  result.finish_reason = decode(session, options, text, on_token, result);
  const std::string rest = text.finish();
  result.text += rest;
  if (!rest.empty() && on_token) on_token(-1, rest);
  return result;
}

}  // namespace dsv4
