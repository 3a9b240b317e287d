// request_run.h: one request on its way through the engine: its tokens, its share of the cache, and
// the events that its tokens become. When it computes is scheduler.h's matter.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kv/handle.h"
#include "runtime/event_queue.h"
#include "runtime/penalties.h"
#include "runtime/prepared_request.h"
#include "runtime/text_output.h"

namespace dsv4 {

// Belongs to the engine's thread once it was submitted.
class RequestRun {
 public:
  // `tokenizer` may be null; otherwise it must outlive this.
  RequestRun(PreparedRequest request, std::shared_ptr<EventQueue> events,
             const Tokenizer* tokenizer);

  std::int64_t cache_tokens() const { return request_.cache_tokens(); }
  // Takes a session and all the room that the request can need. Throws Error kOverloaded.
  void start(KvCache& cache);
  SequenceCache& sequence() { return *sequence_; }
  // Known tokens that are not in the cache yet; not empty until the end.
  std::span<const TokenId> pending() const;

  bool is_cancelled() const { return events_->is_cancelled(); }
  bool has_ended() const { return has_ended_; }
  bool draws_tokens() const { return request_.max_tokens > 0; }
  SamplingRow sampling_row() const;
  const Penalties& penalties() const { return penalties_; }
  bool wants_logprobs() const { return request_.logprobs.has_value(); }

  // A step has computed more of it.
  void report_progress();
  // Takes the token drawn for the next position (-1: there was none to draw), and the model's own
  // logits of that row, which may be empty unless logprobs are wanted.
  void accept(TokenId token, std::span<const float> logits);
  // Each gives the cache back before the last event is out.
  void finish(FinishReason reason);
  void fail(ErrorCode code, const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;

  std::int64_t num_drawn() const;
  Timings timings() const;
  void end(Event event);

  PreparedRequest request_;
  std::shared_ptr<EventQueue> events_;
  Penalties penalties_;
  TextOutput text_;
  std::vector<TokenId> tokens_;  // the prompt and what was drawn
  std::optional<SequenceCache> sequence_;
  std::optional<Clock::time_point> start_, first_token_, last_token_;
  bool has_ended_ = false;
};

}  // namespace dsv4
