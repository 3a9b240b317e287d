#include "runtime/prepared_request.h"

#include <cmath>

#include "base/error.h"
#include "text/utf8.h"

namespace dsv4 {
namespace {

void check_penalties(const SamplingOptions& sampling, std::int64_t vocab_size) {
  require(sampling.repetition_penalty > 0 && std::isfinite(sampling.repetition_penalty),
          ErrorCode::kBadRequest, "repetition_penalty is {}; it must be above 0 and finite",
          sampling.repetition_penalty);
  require(std::isfinite(sampling.presence_penalty), ErrorCode::kBadRequest,
          "presence_penalty is {}; it must be finite", sampling.presence_penalty);
  require(std::isfinite(sampling.frequency_penalty), ErrorCode::kBadRequest,
          "frequency_penalty is {}; it must be finite", sampling.frequency_penalty);
  for (const auto& [token, bias] : sampling.logit_bias) {
    check_token_ids({&token, 1}, vocab_size, "logit_bias");
    require(!std::isnan(bias), ErrorCode::kBadRequest,
            "logit_bias of token {} is no number; give one, or infinity", token);
  }
}

void check_stop_strings(const std::vector<std::string>& strings, bool has_tokenizer) {
  require(strings.empty() || has_tokenizer, ErrorCode::kBadRequest,
          "stop_strings need the tokenizer, without which this engine was opened; use stop_tokens");
  require(strings.size() <= kMaxStopStrings, ErrorCode::kBadRequest,
          "{} stop_strings; at most {} are possible", strings.size(), kMaxStopStrings);
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const std::string& text = strings[i];
    require(!text.empty() && text.size() <= kMaxStopStringBytes, ErrorCode::kBadRequest,
            "stop_strings[{}] has {} bytes; it must have 1 to {}", i, text.size(),
            kMaxStopStringBytes);
    require(valid_utf8_prefix(text) == text.size(), ErrorCode::kBadRequest,
            "stop_strings[{}] is not valid UTF-8", i);
  }
}

std::vector<TokenId> prompt_ids(const Request& request, const EngineInfo& engine,
                                const Tokenizer* tokenizer) {
  std::vector<TokenId> ids;
  if (const auto* given = std::get_if<std::vector<TokenId>>(&request.prompt)) {
    check_token_ids(*given, engine.vocab_size, "prompt");
    ids = *given;
  } else {
    require(tokenizer != nullptr, ErrorCode::kBadRequest,
            "the prompt is text, but the engine was opened without its tokenizer; give token ids");
    ids = tokenizer->encode(std::get<std::string>(request.prompt));
    if (request.add_bos && (ids.empty() || ids.front() != engine.bos_token)) {
      ids.insert(ids.begin(), engine.bos_token);
    }
    // A tokenizer may have more tokens than its model.
    check_token_ids(ids, engine.vocab_size, "prompt");
  }
  require(!ids.empty(), ErrorCode::kBadRequest, "the prompt has no tokens; give it at least one");
  return ids;
}

void check_size(std::int64_t prompt_tokens, std::int64_t max_tokens, std::int64_t most) {
  require(max_tokens >= 0, ErrorCode::kBadRequest, "max_tokens is {}; it must not be negative",
          max_tokens);
  require(prompt_tokens <= most, ErrorCode::kBadRequest,
          "the prompt has {} tokens; this engine takes at most {}; shorten it, or open the engine "
          "with a larger kv_tokens if the model allows it",
          prompt_tokens, most);
  require(max_tokens <= most - prompt_tokens, ErrorCode::kBadRequest,
          "max_tokens is {}; with a prompt of {} tokens this engine takes at most {}", max_tokens,
          prompt_tokens, most - prompt_tokens);
}

}  // namespace

void check_token_ids(std::span<const TokenId> ids, std::int64_t vocab_size,
                     std::string_view field) {
  for (const TokenId id : ids) {
    require(id >= 0 && id < vocab_size, ErrorCode::kBadRequest,
            "{} has token id {}; it must be in the model's vocabulary, 0 to {}", field, id,
            vocab_size - 1);
  }
}

PreparedRequest prepare(const Request& request, const EngineInfo& engine,
                        const Tokenizer* tokenizer) {
  const SamplingOptions& sampling = request.sampling;
  PreparedRequest prepared;
  prepared.row = {.temperature = sampling.temperature.value_or(engine.temperature),
                  .top_p = sampling.top_p.value_or(engine.top_p),
                  .min_p = sampling.min_p,
                  .top_k = sampling.top_k,
                  .seed = sampling.seed};
  check(prepared.row);
  check_penalties(sampling, engine.vocab_size);
  check_stop_strings(request.stop_strings, tokenizer != nullptr);
  check_token_ids(request.stop_tokens, engine.vocab_size, "stop_tokens");
  if (request.logprobs) {
    require(*request.logprobs >= 0 && *request.logprobs <= kMaxTopLogprobs, ErrorCode::kBadRequest,
            "logprobs is {}; it must be between 0 and {}", *request.logprobs, kMaxTopLogprobs);
  }
  prepared.prompt = prompt_ids(request, engine, tokenizer);
  check_size(static_cast<std::int64_t>(prepared.prompt.size()), request.max_tokens,
             engine.max_session_tokens);
  prepared.max_tokens = request.max_tokens;
  prepared.sampling = sampling;
  prepared.stop_strings = request.stop_strings;
  prepared.stop_tokens = request.stop_tokens;
  if (!request.ignore_eos) {
    prepared.stop_tokens.insert(prepared.stop_tokens.end(), engine.eos_tokens.begin(),
                                engine.eos_tokens.end());
  }
  prepared.logprobs = request.logprobs;
  return prepared;
}

}  // namespace dsv4
