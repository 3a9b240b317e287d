// request.h: what may be asked of an engine, what it answers, and the handle of one request. Where
// requests are sent: engine.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dsv4/error.h"
#include "dsv4/types.h"

namespace dsv4 {

// Bounds on what a request may hold, so that none is a burden to the others.
inline constexpr int kMaxTopLogprobs = 20;
inline constexpr std::size_t kMaxStopStrings = 16;
inline constexpr std::size_t kMaxStopStringBytes = 256;

// How tokens are drawn. For a token with logit l, that was drawn n times in this request, and that
// the prompt holds or not, the logit that is sampled is, in FP32 and in this order:
//
//   l = l > 0 ? l / repetition_penalty : l * repetition_penalty   if n > 0 or the prompt holds it
//   l = l - (n * frequency_penalty + (n > 0 ? presence_penalty : 0))
//   l = l + logit_bias[token]
//
// The first line is of CTRL (Keskar et al. 2019, section 4.1), the second of OpenAI's API. Then
// top_k keeps the highest logits, the softmax at `temperature` gives probabilities, and top_p and
// min_p cut them. The draw at a position depends on (seed, position) and that row alone, so a
// request gives the same tokens whatever runs beside it.
struct SamplingOptions {
  // 0: the highest logit, ties to the lower id; none: the model's.
  std::optional<float> temperature = {};
  // Likeliest tokens whose sum reaches it, (0, 1]; none: the model's.
  std::optional<float> top_p = {};
  float min_p = 0;               // drop tokens less likely than this times the likeliest, [0, 1]
  std::int32_t top_k = 0;        // 0: all
  float repetition_penalty = 1;  // above 0; 1: none
  float presence_penalty = 0;    // 0: none
  float frequency_penalty = 0;   // 0: none
  std::uint64_t seed = 0;
  std::map<TokenId, float> logit_bias = {};  // -infinity forbids a token, +infinity forces it
};

struct Request {
  // Text is encoded as it stands, marks such as "<think>" become their tokens; for a conversation
  // see Engine::chat_prompt.
  std::variant<std::string, std::vector<TokenId>> prompt = {};
  bool add_bos = true;  // the begin mark before a text that does not begin with it

  std::int64_t max_tokens = 512;  // 0: the prompt is computed, nothing drawn
  SamplingOptions sampling = {};
  // Each ends the request. The text ends before a stop string; of several that end at the same
  // byte the longest counts. Valid UTF-8, at most kMaxStopStrings of at most kMaxStopStringBytes.
  std::vector<std::string> stop_strings = {};
  std::vector<TokenId> stop_tokens = {};
  bool ignore_eos = false;  // the model's own end tokens are tokens like others
  // 0 .. kMaxTopLogprobs: each token comes with its log-probability and those of so many most
  // likely ones. They are of the model's own logits at temperature 1: no option above changes them.
  std::optional<int> logprobs = {};
};

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0;  // natural logarithm; NaN if no logit of the model is above -infinity
};

// One drawn token. `text` is what it completes: whole UTF-8 characters, empty while a character or
// what may become a stop string is incomplete, and for a token that ends the request. An id that is
// no token of the tokenizer (models have more rows than it has tokens) reads as U+FFFD.
struct TokenEvent {
  TokenId token = -1;
  std::string text;
  std::optional<float> logprob;            // if Request::logprobs was set
  std::vector<TokenLogprob> top_logprobs;  // descending, ties to the lower id
};

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;  // drawn, one that ends the request included
};

// Measured where tokens are drawn: when events are read changes nothing.
struct Timings {
  double prompt_seconds = 0;  // from the request's start, waiting left out, to the first token
  double decode_seconds = 0;  // from there to the last token: completion_tokens - 1 steps
};

enum class FinishReason {
  kStop,       // an end token, a stop token or a stop string
  kLength,     // max_tokens were drawn
  kCancelled,  // by its handle, or because the engine was closed
};
std::string_view to_string(FinishReason reason);  // "stop", "length", "cancelled"

// The regular end. All texts of a request, in order, are the whole text.
struct FinishEvent {
  FinishReason reason = FinishReason::kLength;
  std::string text;         // what was held back until now
  std::string stop_string;  // the one that ended it; empty: none did
  Usage usage;
  Timings timings;
};

// The irregular end: kBadCheckpoint (a logit that is NaN, or all of -infinity), kBadRequest
// (logit_bias forbids every token), kOverloaded (sessions hold all memory), kOutOfMemory, what a
// device may throw, and kInternal for an exception that is no Error.
struct ErrorEvent {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

using Event = std::variant<TokenEvent, FinishEvent, ErrorEvent>;

// How far a request's prompt is; until the first token that is what a user waits for.
struct PromptProgress {
  std::int64_t computed_tokens = 0;
  std::int64_t total_tokens = 0;  // known from the start
};

class EventQueue;  // not public

// One submitted request; destroying the handle cancels it. Belongs to one thread at a time, except
// for cancel(). May outlive its engine.
class RequestHandle {
 public:
  RequestHandle(RequestHandle&&) noexcept;
  RequestHandle& operator=(RequestHandle&&) noexcept;
  ~RequestHandle();

  // Waits for the next event. Token events, then one finish or error event, then empty for ever.
  // Events are kept until they are asked for.
  std::optional<Event> next();
  // Whether next() returns at once; waits for that up to `timeout`.
  bool wait_for(std::chrono::milliseconds timeout) const;
  // As of some recent step; any thread may call it.
  PromptProgress prompt_progress() const;
  // Ends the request at the next step boundary, with events drawn before and FinishEvent
  // kCancelled; does nothing if it has ended. Any thread may call it.
  void cancel();

 private:
  friend class Engine;
  explicit RequestHandle(std::shared_ptr<EventQueue> events);
  std::shared_ptr<EventQueue> events_;
};

}  // namespace dsv4
